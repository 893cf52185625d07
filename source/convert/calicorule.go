package convert

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// calicoRules reads the rules of one direction. namespace is that of the policy; "" for a cluster-wide policy or a profile.
func (ps *problems) calicoRules(field string, inbound bool, list []v3.Rule, namespace string) []model.Rule {
	direction := "egress"
	if inbound {
		direction = "ingress"
	}
	return ps.convertRules(field, direction, len(list), 0, func(f string, i int) (model.Action, []model.Rule) {
		x := calicoRuleReader{problems: ps, namespace: namespace, inbound: inbound}
		return x.readRule(f, &list[i])
	})
}

// calicoRuleReader reads one rule.
type calicoRuleReader struct {
	*problems
	namespace string
	inbound   bool
	family    uint8 // 4 or 6 if the rule's version or one of its ranges fixes it
}

func (x *calicoRuleReader) readRule(field string, in *v3.Rule) (model.Action, []model.Rule) {
	r := model.Rule{}
	if v := in.IPVersion; v != nil && *v != 4 && *v != 6 {
		x.Add(field+".ipVersion", "must be 4 or 6", *v)
	} else if v != nil {
		r.IPVersion = uint8(*v)
		x.family = r.IPVersion
	}
	r.Protocol = x.ruleProtocol(field+".protocol", in.Protocol)
	r.NotProtocol = x.ruleProtocol(field+".notProtocol", in.NotProtocol)
	r.ICMP = x.icmp(field+".icmp", in.ICMP, r.Protocol)
	r.NotICMP = x.icmp(field+".notICMP", in.NotICMP, r.Protocol)
	ports := hasPorts(r.Protocol)
	r.Source = x.entity(field+".source", &in.Source, ports, true)
	r.Destination = x.entity(field+".destination", &in.Destination, ports, false)
	if in.HTTP != nil {
		x.Add(field+".http", "is not supported: no data plane here looks into HTTP", nil)
	}
	if in.Metadata != nil {
		r.Annotations = check.Cloned(in.Metadata.Annotations)
	}
	switch in.Action {
	case "Allow":
		return model.ActionAllow, []model.Rule{r}
	case "Deny":
		return model.ActionDeny, []model.Rule{r}
	case "Log":
		return model.ActionLog, []model.Rule{r}
	case "Pass":
		return model.ActionPass, []model.Rule{r}
	}
	x.Add(field+".action", "must be Allow, Deny, Log or Pass", in.Action)
	return "", nil
}

func (x *calicoRuleReader) ruleProtocol(field string, p *v3.Protocol) model.RuleProtocol {
	m, ok := p.Model()
	if !ok {
		x.Add(field, "must be TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite or 1 to 255", p.String())
	}
	return m
}

func hasPorts(p model.RuleProtocol) bool {
	return p.Name == "tcp" || p.Name == "udp" || p.Name == "sctp" ||
		p.Name == "" && slices.Contains([]model.Protocol{model.TCP, model.UDP, model.SCTP}, model.Protocol(p.Number))
}

func (x *calicoRuleReader) icmp(field string, in *v3.ICMP, p model.RuleProtocol) *model.ICMPMatch {
	if in == nil {
		return nil
	}
	if p.Name != "icmp" && p.Name != "icmpv6" && p.Number != 1 && p.Number != 58 {
		x.Add(field, "needs protocol ICMP or ICMPv6", nil)
	}
	m := &model.ICMPMatch{}
	switch {
	case in.Type == nil && in.Code == nil:
		return nil
	case in.Type == nil:
		x.Add(field+".code", "needs a type", *in.Code)
	case *in.Type < 0 || *in.Type > 254:
		x.Add(field+".type", "must be 0 to 254", *in.Type)
	case in.Code != nil && (*in.Code < 0 || *in.Code > 255):
		x.Add(field+".code", "must be 0 to 255", *in.Code)
	default:
		m.Type = uint8(*in.Type)
		if in.Code != nil {
			m.Code, m.HasCode = uint8(*in.Code), true
		}
	}
	return m
}

// entity reads one side of a rule.
func (x *calicoRuleReader) entity(field string, in *v3.Entity, ports, source bool) model.Peer {
	if (len(in.Ports) > 0 || len(in.NotPorts) > 0) && !ports {
		x.Add(field, "must have no ports unless the protocol is TCP, UDP or SCTP", nil)
	}
	p := model.Peer{
		Nets:             x.nets(field+".nets", in.Nets, false),
		NotNets:          x.nets(field+".notNets", in.NotNets, true),
		Ports:            x.readPorts(field+".ports", in.Ports),
		NotPorts:         x.readPorts(field+".notPorts", in.NotPorts),
		Selector:         x.peerSelector(field, in),
		OriginalSelector: in.Selector, OriginalNamespaceSelector: in.NamespaceSelector, OriginalNotSelector: in.NotSelector,
	}
	if x.valid(field+".notSelector", in.NotSelector) {
		p.NotSelector = x.notNodes(field+".notSelector", in.NotSelector)
	}
	if a := in.ServiceAccounts; a != nil {
		p.ServiceAccountNames, p.ServiceAccountSelector = slices.Clone(a.Names), a.Selector
	}
	if in.Services != nil {
		p.Service = x.service(field, in, source)
	}
	return p
}

// nets reads ranges or addresses; all in one rule must have the same family. A negated range of all addresses would match
// nothing: that is an error.
func (x *calicoRuleReader) nets(field string, list []string, negated bool) []netip.Prefix {
	var out []netip.Prefix
	for i, s := range list {
		p := x.netOrAddr(check.ElementPath(field, i), s)
		if !p.IsValid() {
			continue
		}
		family := uint8(4)
		if p.Addr().Is6() {
			family = 6
		}
		if x.family == 0 {
			x.family = family
		}
		if family != x.family {
			x.Add(check.ElementPath(field, i), "must be of the rule's IP version, and of the family of its other ranges", s)
		}
		if negated && p.Bits() == 0 {
			x.Add(check.ElementPath(field, i), "must not be everything there is", s)
		}
		out = append(out, p)
	}
	return out
}

// netOrAddr reads a range, or an address as a range of one.
func (ps *problems) netOrAddr(field, s string) netip.Prefix {
	if !strings.Contains(s, "/") {
		a := ps.Addr(field, s)
		if !a.IsValid() {
			return netip.Prefix{}
		}
		return netip.PrefixFrom(a, a.BitLen())
	}
	return ps.Prefix(field, s)
}

func (x *calicoRuleReader) readPorts(field string, list []v3.Port) []model.PortMatch {
	var out []model.PortMatch
	for i := range list {
		if m, ok := list[i].Model(); ok {
			out = append(out, m)
		} else {
			x.Add(check.ElementPath(field, i), "must be a port (0 to 65535), a range first:last, or the name of a port", list[i].String())
		}
	}
	return out
}

// peerSelector checks the selectors of one side of a rule and joins them.
func (x *calicoRuleReader) peerSelector(field string, in *v3.Entity) string {
	known := len(x.List)
	if a := in.ServiceAccounts; a != nil {
		x.inherited(field+".serviceAccounts.selector", a.Selector, model.PrefixServiceAccount)
		for i, n := range a.Names {
			check.Subdomain(&x.Problems, check.ElementPath(field+".serviceAccounts.names", i), n)
		}
	}
	x.valid(field+".selector", in.Selector)
	s := x.prefixed(field+".namespaceSelector", in.NamespaceSelector, model.PrefixNamespace)
	if strings.Contains(s, "global()") && s != "global()" {
		x.Add(field+".namespaceSelector", "must not have anything beside global()", in.NamespaceSelector)
	}
	if !x.understood(known) {
		return ""
	}
	text, err := in.PeerSelector(x.namespace)
	if err != nil {
		x.badSelector(field, err)
	}
	if text == "" {
		return ""
	}
	return x.notNodes(field, text)
}

// notNodes keeps the network sets of Nodes (model.NodeSet) out of a selector that would match them because it requires no
// label. It also checks the whole selector.
func (x *calicoRuleReader) notNodes(field, text string) string {
	s, err := selector.Parse(text)
	if err != nil {
		x.badSelector(field, err)
		return text
	}
	if !s.Matches(selector.Map(nil)) {
		return text
	}
	return "(" + text + ") && !has(" + model.LabelNode + ")"
}

// service reads a match of a Service's endpoints: by address if they are the source, by address and port if they are the
// destination.
func (x *calicoRuleReader) service(field string, in *v3.Entity, source bool) model.ServiceID {
	id := model.ServiceID{Name: in.Services.Name, Namespace: in.Services.Namespace}
	if id.Namespace == "" {
		id.Namespace = x.namespace
	}
	f := field + ".services"
	if len(validation.IsDNS1123Label(id.Name)) > 0 {
		x.Add(f+".name", check.WantLabel, id.Name)
	}
	if id.Namespace == "" {
		x.Add(f+".namespace", "is missing: a cluster-wide policy has none of its own", nil)
	} else if len(validation.IsDNS1123Label(id.Namespace)) > 0 {
		x.Add(f+".namespace", check.WantLabel, id.Namespace)
	}
	if source != x.inbound {
		x.Add(f, "must be the source of an ingress rule or the destination of an egress rule", nil)
	}
	if in.Selector != "" || in.NotSelector != "" || in.NamespaceSelector != "" || in.ServiceAccounts != nil ||
		len(in.Nets) > 0 || len(in.NotNets) > 0 {
		x.Add(f, "must not be given together with selectors, service accounts or nets", nil)
	}
	if !source && (len(in.Ports) > 0 || len(in.NotPorts) > 0) {
		x.Add(f, "must not be given together with ports: those of the service count", nil)
	}
	return id
}
