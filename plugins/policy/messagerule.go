package policy

import (
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// written returns a rule of a message in the form of a user's policy, for display. Sets of addresses appear as their selectors, or
// as their names if the message has no selector.
func written(r *felix.Rule) model.Rule {
	out := model.Rule{
		Action: model.Action(actionText(r.GetAction())), IPVersion: asByte(int32(r.GetIpVersion())),
		Protocol: protocolOf(r.GetProtocol()), NotProtocol: protocolOf(r.GetNotProtocol()),
		Source: model.Peer{
			Nets: netsOf(r.GetSrcNet()), NotNets: netsOf(r.GetNotSrcNet()),
			Ports: portsOf(r.GetSrcPorts(), r.GetSrcNamedPortIpSetIds()), NotPorts: portsOf(r.GetNotSrcPorts(), r.GetNotSrcNamedPortIpSetIds()),
			Selector: selected(r.GetOriginalSrcSelector(), r.GetSrcIpSetIds()), NotSelector: selected(r.GetOriginalNotSrcSelector(), r.GetNotSrcIpSetIds()),
		},
		Destination: model.Peer{
			Nets: netsOf(r.GetDstNet()), NotNets: netsOf(r.GetNotDstNet()),
			Ports: portsOf(r.GetDstPorts(), r.GetDstNamedPortIpSetIds()), NotPorts: portsOf(r.GetNotDstPorts(), r.GetNotDstNamedPortIpSetIds()),
			Selector:    selected(r.GetOriginalDstSelector(), slices.Concat(r.GetDstIpSetIds(), r.GetDstIpPortSetIds())),
			NotSelector: selected(r.GetOriginalNotDstSelector(), r.GetNotDstIpSetIds()),
			Service:     model.ServiceID{Namespace: r.GetOriginalDstServiceNamespace(), Name: r.GetOriginalDstService()},
		},
	}
	switch i := r.GetIcmp().(type) {
	case *felix.Rule_IcmpType:
		out.ICMP = &model.ICMPMatch{Type: asByte(i.IcmpType)}
	case *felix.Rule_IcmpTypeCode:
		out.ICMP = &model.ICMPMatch{Type: asByte(i.IcmpTypeCode.GetType()), Code: asByte(i.IcmpTypeCode.GetCode()), HasCode: true}
	}
	switch i := r.GetNotIcmp().(type) {
	case *felix.Rule_NotIcmpType:
		out.NotICMP = &model.ICMPMatch{Type: asByte(i.NotIcmpType)}
	case *felix.Rule_NotIcmpTypeCode:
		out.NotICMP = &model.ICMPMatch{Type: asByte(i.NotIcmpTypeCode.GetType()), Code: asByte(i.NotIcmpTypeCode.GetCode()), HasCode: true}
	}
	if r.GetHttpMatch() != nil {
		out.HTTP = &model.HTTPMatch{}
	}
	return out
}

// asByte and asPort return the nearest number that the model can hold. The driver refuses a rule with another number, and the
// displayed rule must not look valid.
func asByte(n int32) uint8  { return uint8(min(max(n, 0), math.MaxUint8)) }
func asPort(n int32) uint16 { return uint16(min(max(n, 0), math.MaxUint16)) }

func protocolOf(p *felix.Protocol) model.RuleProtocol {
	return model.RuleProtocol{Number: asByte(p.GetNumber()), Name: strings.ToLower(p.GetName())}
}

func netsOf(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		if p, ok := prefixOf(text); ok {
			out = append(out, p)
		}
	}
	return out
}

func portsOf(ranges []*felix.PortRange, sets []string) []model.PortMatch {
	var out []model.PortMatch
	for _, r := range ranges {
		out = append(out, model.PortMatch{First: asPort(r.GetFirst()), Last: asPort(r.GetLast())})
	}
	for _, id := range sets {
		out = append(out, model.PortMatch{Name: id})
	}
	return out
}

// selected returns the selector that a set is made from.
func selected(selector string, sets []string) string {
	if selector != "" || len(sets) == 0 {
		return selector
	}
	return "in " + strings.Join(sets, " and ")
}

func writtenAll(rules []*felix.Rule) []model.Rule {
	out := make([]model.Rule, len(rules))
	for i, r := range rules {
		out[i] = written(r)
	}
	return out
}

func actionText(a string) string {
	switch action := model.Action(a); {
	case action.Allows():
		return "allow"
	case action.Passes():
		return "pass"
	}
	return a
}
