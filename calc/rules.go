package calc

import (
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/calc/cidr"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/selector"
)

// scanner turns rules of the model into Felix's: selectors, named ports and services become IP sets.
type scanner struct {
	selectors *selectorCache
	known     map[string]*ipset // sets of the whole graph
	named     map[string]bool   // sets named by the rules scanned so far
	sets      []*ipset          // the same sets, in order
	notes     []string          // problems found
}

// beginPolicy prepares the scanner for the rules of another policy. It allocates new lists, because the caller keeps the
// old ones.
func (x *scanner) beginPolicy() {
	if len(x.named) > 64 { // clearing a map takes time for its largest size
		x.named = nil
	}
	clear(x.named)
	x.sets, x.notes = nil, nil
}

// scan converts a list of rules. A rule that cannot be understood fails closed: an allow or a log is left out; a deny
// applies without the part that cannot be understood, and so does a pass, which becomes a deny.
func (x *scanner) scan(rules []model.Rule) []*felix.Rule {
	list := make([]*felix.Rule, 0, len(rules))
	for i := range rules {
		known := len(x.notes)
		out := x.scanRule(&rules[i])
		out.RuleId = origin(&rules[i], i)
		if len(x.notes) > known {
			if a := rules[i].Action; !a.Denies() && !a.Passes() {
				continue
			}
			out.Action = string(model.ActionDeny)
		}
		list = append(list, out)
	}
	return list
}

// origin says which rule of the policy it is. Felix puts a hash into that field, which no program reads. The position
// in the message is not enough, because rules may be left out.
func origin(r *model.Rule, i int) string {
	if r.Origin != "" {
		return r.Origin
	}
	return "rule " + strconv.Itoa(i+1)
}

// side is one end of a rule, converted.
type side struct {
	nets, notNets         []string
	ports, notPorts       []*felix.PortRange
	sets, notSets         []string
	portSets, notPortSets []string
	ipPortSets            []string
}

func (x *scanner) scanRule(r *model.Rule) *felix.Rule {
	proto := namedPortProtocol(r.Protocol)
	src, dst := x.side(&r.Source, proto), x.side(&r.Destination, proto)
	if s := r.Source.Service; s.Name != "" {
		src.sets = append(src.sets, x.useServiceSet(s, false))
	}
	if s := r.Destination.Service; s.Name != "" {
		dst.ipPortSets = append(dst.ipPortSets, x.useServiceSet(s, true))
	}
	out := &felix.Rule{
		Action: string(r.Action), IpVersion: ipVersion(r),
		Protocol: protocol(r.Protocol), NotProtocol: protocol(r.NotProtocol),
		SrcNet: src.nets, SrcPorts: src.ports, DstNet: dst.nets, DstPorts: dst.ports,
		SrcIpSetIds: src.sets, DstIpSetIds: dst.sets, DstIpPortSetIds: dst.ipPortSets,
		SrcNamedPortIpSetIds: src.portSets, DstNamedPortIpSetIds: dst.portSets,
		NotSrcNet: src.notNets, NotSrcPorts: src.notPorts, NotDstNet: dst.notNets, NotDstPorts: dst.notPorts,
		NotSrcIpSetIds: src.notSets, NotDstIpSetIds: dst.notSets,
		NotSrcNamedPortIpSetIds: src.notPortSets, NotDstNamedPortIpSetIds: dst.notPortSets,
		HttpMatch: httpMatch(r.HTTP),
	}
	original(out, r)
	icmp(out, r)
	if len(r.Annotations) > 0 {
		out.Metadata = &felix.RuleMetadata{Annotations: r.Annotations}
	}
	return out
}

// ipVersion is the rule's IP version, or the one that its protocol implies.
func ipVersion(r *model.Rule) felix.IPVersion {
	switch {
	case r.IPVersion != 0:
		return felix.IPVersion(r.IPVersion)
	case r.Protocol.Name == "icmp":
		return felix.IPVersion_IPV4
	case r.Protocol.Name == "icmpv6":
		return felix.IPVersion_IPV6
	}
	return felix.IPVersion_ANY
}

// side converts one end of a rule as Felix does. If both a selector and a negated selector are given, they become one
// selector: the rule matches endpoints only. A negated selector alone becomes a negated set, which addresses without an
// endpoint match too. A named port becomes a separate set within the positive selector; if all ports are named, the
// selector's own set is not needed.
func (x *scanner) side(p *model.Peer, proto model.Protocol) side {
	s := side{nets: cidr.Texts(p.Nets), notNets: cidr.Texts(p.NotNets)}
	positive, negative := p.Selector, p.NotSelector
	if positive != "" && negative != "" {
		if x.parse(negative) != nil { // report the invalid part, not the combination
			positive = "(" + positive + ") && (!(" + negative + "))"
		}
		negative = ""
	}
	sel := x.parse(positive)
	var names, notNames []string
	s.ports, names = splitPorts(p.Ports)
	s.notPorts, notNames = splitPorts(p.NotPorts)
	s.portSets = x.usePortSets(sel, proto, names)
	s.notPortSets = x.usePortSets(sel, proto, notNames)
	if sel != nil && (len(s.ports) > 0 || len(names) == 0) {
		s.sets = []string{x.useSelectorSet(sel)}
	}
	if not := x.parse(negative); not != nil {
		s.notSets = []string{x.useSelectorSet(not)}
	}
	return s
}

// parse reads a selector. It returns nil if there is none, or if it is invalid, which it notes.
func (x *scanner) parse(text string) *selector.Selector {
	if text == "" {
		return nil
	}
	sel, err := x.selectors.parse(text)
	if err != nil {
		x.notes = append(x.notes, err.Error())
		return nil
	}
	return sel
}

// useSet records that the rules name a set; fresh creates the set if the graph does not have it.
func (x *scanner) useSet(id string, fresh func() *ipset) string {
	if x.named[id] {
		return id
	}
	if x.named == nil {
		x.named = map[string]bool{}
	}
	x.named[id] = true
	s := x.known[id]
	if s == nil {
		s = fresh()
	}
	x.sets = append(x.sets, s)
	return s.id
}

func (x *scanner) useSelectorSet(sel *selector.Selector) string {
	return x.useSet(sel.UniqueID(), func() *ipset { return selectorSet(sel) })
}

func (x *scanner) useServiceSet(svc model.ServiceID, withPorts bool) string {
	s := serviceSet(svc, withPorts)
	return x.useSet(s.id, func() *ipset { return s })
}

func (x *scanner) usePortSets(sel *selector.Selector, proto model.Protocol, names []string) (ids []string) {
	if sel == nil && len(names) > 0 {
		sel = selector.All()
	}
	for _, name := range names {
		s := portSet(sel, proto, name)
		ids = append(ids, x.useSet(s.id, func() *ipset { return s }))
	}
	return ids
}

// namedPortProtocol is the protocol of a rule's named ports: TCP unless the rule says UDP or SCTP.
func namedPortProtocol(p model.RuleProtocol) model.Protocol {
	switch strings.ToLower(p.Name) {
	case "udp":
		return model.UDP
	case "sctp":
		return model.SCTP
	case "":
		if n := model.Protocol(p.Number); n == model.UDP || n == model.SCTP {
			return n
		}
	}
	return model.TCP
}

func splitPorts(list []model.PortMatch) (ranges []*felix.PortRange, names []string) {
	for _, p := range list {
		if p.Name != "" {
			names = append(names, p.Name)
		} else {
			ranges = append(ranges, &felix.PortRange{First: int32(p.First), Last: int32(p.Last)})
		}
	}
	return ranges, names
}

func protocol(p model.RuleProtocol) *felix.Protocol {
	switch {
	case p.Name != "":
		return &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: p.Name}}
	case p.Number != 0:
		return &felix.Protocol{NumberOrName: &felix.Protocol_Number{Number: int32(p.Number)}}
	}
	return nil
}

func icmp(out *felix.Rule, r *model.Rule) {
	if m := r.ICMP; m != nil && m.HasCode {
		out.Icmp = &felix.Rule_IcmpTypeCode{IcmpTypeCode: icmpTypeCode(m)}
	} else if m != nil {
		out.Icmp = &felix.Rule_IcmpType{IcmpType: int32(m.Type)}
	}
	if m := r.NotICMP; m != nil && m.HasCode {
		out.NotIcmp = &felix.Rule_NotIcmpTypeCode{NotIcmpTypeCode: icmpTypeCode(m)}
	} else if m != nil {
		out.NotIcmp = &felix.Rule_NotIcmpType{NotIcmpType: int32(m.Type)}
	}
}

func icmpTypeCode(m *model.ICMPMatch) *felix.IcmpTypeAndCode {
	return &felix.IcmpTypeAndCode{Type: int32(m.Type), Code: int32(m.Code)}
}

func httpMatch(m *model.HTTPMatch) *felix.HTTPMatch {
	if m == nil {
		return nil
	}
	out := &felix.HTTPMatch{Methods: m.Methods}
	for _, p := range m.Paths {
		path := &felix.HTTPMatch_PathMatch{PathMatch: &felix.HTTPMatch_PathMatch_Prefix{Prefix: p.Prefix}}
		if p.Exact != "" {
			path.PathMatch = &felix.HTTPMatch_PathMatch_Exact{Exact: p.Exact}
		}
		out.Paths = append(out.Paths, path)
	}
	return out
}

// original copies the text that the user wrote.
func original(out *felix.Rule, r *model.Rule) {
	src, dst := &r.Source, &r.Destination
	out.OriginalSrcSelector, out.OriginalDstSelector = src.OriginalSelector, dst.OriginalSelector
	out.OriginalSrcNamespaceSelector = src.OriginalNamespaceSelector
	out.OriginalDstNamespaceSelector = dst.OriginalNamespaceSelector
	out.OriginalNotSrcSelector, out.OriginalNotDstSelector = src.OriginalNotSelector, dst.OriginalNotSelector
	out.OriginalSrcService, out.OriginalSrcServiceNamespace = src.Service.Name, src.Service.Namespace
	out.OriginalDstService, out.OriginalDstServiceNamespace = dst.Service.Name, dst.Service.Namespace
	out.SrcServiceAccountMatch = serviceAccounts(src)
	out.DstServiceAccountMatch = serviceAccounts(dst)
}

func serviceAccounts(p *model.Peer) *felix.ServiceAccountMatch {
	if p.ServiceAccountSelector == "" && len(p.ServiceAccountNames) == 0 {
		return nil
	}
	return &felix.ServiceAccountMatch{Selector: p.ServiceAccountSelector, Names: p.ServiceAccountNames}
}
