package datastore

import (
	"net/netip"
	"slices"
	"strings"

	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
)

func orderOf(v *float64) model.Order {
	if v == nil {
		return model.Order{}
	}
	return model.OrderOf(*v)
}

func (r *reader) tier(data []byte) *model.Tier {
	var v Tier
	r.unmarshal(data, &v)
	if a := model.Action(v.DefaultAction); a != "" && a != model.TierDeny && a != model.TierPass {
		r.failField("defaultAction", "%.100q must be Deny or Pass", a)
	}
	return &model.Tier{Name: r.key.Name, Order: orderOf(v.Order), DefaultAction: model.Action(v.DefaultAction)}
}

// hintEverywhere is the only performance hint that exists.
const hintEverywhere = "AssumeNeededOnEveryNode"

func (r *reader) policy(data []byte) *model.Policy {
	var v Policy
	r.unmarshal(data, &v)
	p := &model.Policy{
		ID: r.key.PolicyID(), Tier: r.key.Tier, Order: orderOf(v.Order), Namespace: v.Namespace, Selector: v.Selector,
		InboundRules: r.readRules("inbound_rules", v.InboundRules), OutboundRules: r.readRules("outbound_rules", v.OutboundRules),
		Untracked: v.DoNotTrack, PreDNAT: v.PreDNAT, ApplyOnForward: v.ApplyOnForward,
		Everywhere: slices.Contains(v.PerformanceHints, hintEverywhere),
	}
	kind, _ := r.key.Object().Kind.Info()
	if a := model.StagedAction(v.StagedAction); kind.Staged && (a == model.StagedLearn || a == model.StagedIgnore) {
		p.Staged = a
	}
	if r.key.Kind == KeyPolicy {
		p.Tier = v.Tier
		if v.Tier == "" {
			p.Tier = model.TierDefault
		}
		p.Namespace = r.key.Namespace
	}
	for i, t := range v.Types {
		switch strings.ToLower(t) {
		case "ingress":
			p.Ingress = true
		case "egress":
			p.Egress = true
		default:
			r.failField(fieldAt("types", i), "%.100q must be ingress or egress", t)
		}
	}
	return p
}

func (r *reader) profileRules(data []byte) *model.ProfileRules {
	var v ProfileRules
	r.unmarshal(data, &v)
	return &model.ProfileRules{Inbound: r.readRules("inbound_rules", v.InboundRules), Outbound: r.readRules("outbound_rules", v.OutboundRules)}
}

func (r *reader) readRules(field string, list []Rule) []model.Rule {
	if len(list) == 0 {
		return nil
	}
	out := make([]model.Rule, len(list))
	for i := range list {
		out[i] = r.readRule(fieldAt(field, i)+".", &list[i])
	}
	return out
}

// readRule reads a rule; f is the prefix of its field names.
func (r *reader) readRule(f string, v *Rule) model.Rule {
	out := model.Rule{
		Action:   model.Action(v.Action),
		Protocol: r.ruleProtocol(f+"protocol", v.Protocol), NotProtocol: r.ruleProtocol(f+"!protocol", v.NotProtocol),
		ICMP: r.icmp(f, "", v.ICMPType, v.ICMPCode), NotICMP: r.icmp(f, "!", v.NotICMPType, v.NotICMPCode),
		Source: model.Peer{
			Nets: r.ruleNets(f+"src_net", v.SrcNet, v.SrcNets), NotNets: r.ruleNets(f+"!src_net", v.NotSrcNet, v.NotSrcNets),
			Ports: r.readPorts(f+"src_ports", v.SrcPorts), NotPorts: r.readPorts(f+"!src_ports", v.NotSrcPorts),
			Selector: v.SrcSelector, NotSelector: v.NotSrcSelector,
			Service:          model.ServiceID{Namespace: v.SrcServiceNamespace, Name: v.SrcService},
			OriginalSelector: v.OriginalSrcSelector, OriginalNamespaceSelector: v.OriginalSrcNamespaceSelector,
			OriginalNotSelector: v.OriginalNotSrcSelector,
			ServiceAccountNames: v.OriginalSrcServiceAccountNames, ServiceAccountSelector: v.OriginalSrcServiceAccountSelector,
		},
		Destination: model.Peer{
			Nets: r.ruleNets(f+"dst_net", v.DstNet, v.DstNets), NotNets: r.ruleNets(f+"!dst_net", v.NotDstNet, v.NotDstNets),
			Ports: r.readPorts(f+"dst_ports", v.DstPorts), NotPorts: r.readPorts(f+"!dst_ports", v.NotDstPorts),
			Selector: v.DstSelector, NotSelector: v.NotDstSelector,
			Service:          model.ServiceID{Namespace: v.DstServiceNamespace, Name: v.DstService},
			OriginalSelector: v.OriginalDstSelector, OriginalNamespaceSelector: v.OriginalDstNamespaceSelector,
			OriginalNotSelector: v.OriginalNotDstSelector,
			ServiceAccountNames: v.OriginalDstServiceAccountNames, ServiceAccountSelector: v.OriginalDstServiceAccountSelector,
		},
	}
	r.ruleRest(f, v, &out)
	return out
}

func (r *reader) ruleRest(f string, v *Rule, out *model.Rule) {
	switch a := strings.ToLower(v.Action); a {
	case "", "allow", "deny", "log", "next-tier", "pass":
	default:
		r.failField(f+"action", "%.100q must be allow, deny, log or next-tier", v.Action)
	}
	if v.IPVersion != nil {
		if *v.IPVersion != 4 && *v.IPVersion != 6 {
			r.failField(f+"ip_version", "%d must be 4 or 6", *v.IPVersion)
		}
		out.IPVersion = uint8(*v.IPVersion)
	}
	for _, tag := range []struct{ field, value string }{
		{"src_tag", v.SrcTag}, {"dst_tag", v.DstTag}, {"!src_tag", v.NotSrcTag}, {"!dst_tag", v.NotDstTag},
	} {
		if tag.value != "" { // Felix v3.31 ignores it, which drops the match
			r.failField(f+tag.field, "tags are not supported any more")
		}
	}
	if v.HTTPMatch != nil {
		out.HTTP = &model.HTTPMatch{Methods: v.HTTPMatch.Methods}
		for _, p := range v.HTTPMatch.Paths {
			out.HTTP.Paths = append(out.HTTP.Paths, model.HTTPPath(p))
		}
	}
	if v.Metadata != nil {
		out.Annotations = v.Metadata.Annotations
	}
}

func (r *reader) ruleProtocol(field string, w *Word) model.RuleProtocol {
	if w == nil {
		return model.RuleProtocol{}
	}
	name, number, ok := protocolOf(*w)
	if !ok {
		r.failField(field, "%.100q is not a protocol", *w)
	}
	return model.RuleProtocol{Name: name, Number: number}
}

func (r *reader) icmp(f, not string, kind, code *int32) *model.ICMPMatch {
	switch {
	case kind == nil && code == nil:
		return nil
	case kind == nil:
		r.failField(f+not+"icmp_code", "needs a type")
		return nil
	case *kind < 0 || *kind > 254: // as in Felix: 255 is not allowed
		r.failField(f+not+"icmp_type", "%d must be 0 to 254", *kind)
	case code != nil && (*code < 0 || *code > 255):
		r.failField(f+not+"icmp_code", "%d must be 0 to 255", *code)
	}
	m := &model.ICMPMatch{Type: uint8(*kind)}
	if code != nil {
		m.Code, m.HasCode = uint8(*code), true
	}
	return m
}

func (r *reader) ruleNets(field, one string, list []string) (out []netip.Prefix) {
	out = r.networks(field+"s", list...)
	if one != "" {
		out = append(out, r.network(field, one).Masked())
	}
	return out
}

// readPorts reads numbers, ranges "80:90" and names.
func (r *reader) readPorts(field string, list []Port) []model.PortMatch {
	var out []model.PortMatch
	for i, p := range list {
		m, ok := v3.ParsePort(string(p))
		if !ok {
			r.failField(fieldAt(field, i), "%.100q is not a port, a range of ports, or the name of one", p)
		}
		out = append(out, m)
	}
	return out
}
