package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// readCalico reads Calico's NetworkPolicy and GlobalNetworkPolicy.
func readCalico(c *Cluster, o *CalicoPolicy) (*policy, error) {
	p := &policy{name: KeyOf(o).String(), order: orderOf(o.Spec.Order), forward: o.Spec.ApplyOnForward}
	subject, err := c.readCalicoSubject(o)
	if err != nil {
		return nil, err
	}
	p.selects = func(q *pod) bool { return subject(q.calico.labels) }
	if o.Namespace == "" {
		p.selectsHost = func(h *host) bool { return subject(h.entity.labels) }
	}
	types := o.Spec.Types
	if len(types) == 0 { // the client library fills them in
		switch {
		case len(o.Spec.Egress) == 0:
			types = []string{"Ingress"}
		case len(o.Spec.Ingress) == 0:
			types = []string{"Egress"}
		default:
			types = []string{"Ingress", "Egress"}
		}
	}
	p.ingress, p.egress = slices.Contains(types, "Ingress"), slices.Contains(types, "Egress")
	if p.in, err = c.calicoRules(o.Namespace, o.Spec.Ingress); err != nil {
		return nil, err
	}
	p.out, err = c.calicoRules(o.Namespace, o.Spec.Egress)
	return p, err
}

func readProfile(c *Cluster, o *CalicoProfile) (p *policy, err error) {
	p = &policy{name: KeyOf(o).String()}
	if p.in, err = c.calicoRules("", o.Spec.Ingress); err != nil {
		return nil, err
	}
	p.out, err = c.calicoRules("", o.Spec.Egress)
	return p, err
}

// readCalicoSubject is what the policy applies to: endpoints of its namespace, or of the selected ones, with matching labels
// and a matching service account.
func (c *Cluster) readCalicoSubject(o *CalicoPolicy) (expression, error) {
	own, err := parseOr(o.Spec.Selector, everything)
	if err != nil {
		return nil, err
	}
	space, err := readSpace(o.Spec.NamespaceSelector)
	if err != nil {
		return nil, err
	}
	account, err := parseOr(o.Spec.ServiceAccountSelector, everything)
	if err != nil {
		return nil, err
	}
	return func(l map[string]string) bool {
		if o.Namespace != "" && l["projectcalico.org/namespace"] != o.Namespace {
			return false
		}
		if o.Namespace == "" && o.Spec.NamespaceSelector != "" && !space(l) {
			return false
		}
		return own(l) && (o.Spec.ServiceAccountSelector == "" || account(only(l, "pcsa.")))
	}, nil
}

func everything(map[string]string) bool { return true }

func parseOr(text string, otherwise expression) (expression, error) {
	if text == "" {
		return otherwise, nil
	}
	return parse(text)
}

// readSpace reads a namespace selector: it sees the labels of the namespace. global() selects what is in no namespace; all()
// selects what is in any.
func readSpace(text string) (expression, error) {
	inOne := func(l map[string]string) bool { _, has := l["projectcalico.org/namespace"]; return has }
	switch text {
	case "global()":
		return func(l map[string]string) bool { return !inOne(l) }, nil
	case "all()":
		return inOne, nil
	}
	e, err := parseOr(text, everything)
	return func(l map[string]string) bool { return e(only(l, "pcns.")) }, err
}

// only are the labels with a prefix, without it.
func only(labels map[string]string, prefix string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			out[rest] = v
		}
	}
	return out
}

func (c *Cluster) calicoRules(namespace string, list []CalicoRule) ([]ruling, error) {
	var out []ruling
	for i, r := range list {
		m, err := c.calicoRule(namespace, r)
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		out = append(out, ruling{map[string]action{"Allow": allow, "Deny": deny, "Pass": pass, "Log": log}[r.Action], m})
	}
	return out, nil
}

// calicoRule is a rule that matches the flows all its parts match. A part that is negated matches what the part does not,
// of either family.
func (c *Cluster) calicoRule(namespace string, r CalicoRule) (func(*Flow) bool, error) {
	src, err := c.calicoEntity(namespace, r.Source, func(f *Flow) (netip.Addr, uint16) { return f.Src, f.SrcPort }, false)
	if err != nil {
		return nil, err
	}
	dst, err := c.calicoEntity(namespace, r.Destination, func(f *Flow) (netip.Addr, uint16) { return f.Dst, f.DstPort }, true)
	if err != nil {
		return nil, err
	}
	return func(f *Flow) bool {
		switch {
		case r.IPVersion != nil && f.Dst.Is4() != (*r.IPVersion == 4):
			return false
		case r.Protocol != nil && calicoProtocol(*r.Protocol) != f.Proto:
			return false
		case r.NotProtocol != nil && calicoProtocol(*r.NotProtocol) == f.Proto:
			return false
		case r.ICMP != nil && !r.ICMP.match(f):
			return false
		case r.NotICMP != nil && r.NotICMP.match(f):
			return false
		}
		return src(f) && dst(f)
	}, nil
}

func (m *CalicoICMP) match(f *Flow) bool {
	return !f.Proto.Ports() && (m.Type == nil || int(f.Type) == *m.Type) && (m.Code == nil || int(f.Code) == *m.Code)
}

func calicoProtocol(p intstr.IntOrString) Protocol {
	if p.Type == intstr.Int {
		return Protocol(p.IntVal)
	}
	for _, known := range []Protocol{TCP, UDP, SCTP, ICMP, ICMPv6} {
		if known.String() == p.StrVal {
			return known
		}
	}
	return 136 // UDPLite
}

// side takes address and port of one side out of a flow.
type side func(*Flow) (netip.Addr, uint16)

func (c *Cluster) calicoEntity(namespace string, e *CalicoEntity, at side, destination bool) (func(*Flow) bool, error) {
	if e == nil {
		return func(*Flow) bool { return true }, nil
	}
	selected, selects, err := c.calicoSelected(namespace, e)
	if err != nil {
		return nil, err
	}
	nets, err := readNets(e.Nets)
	if err != nil {
		return nil, err
	}
	notNets, err := readNets(e.NotNets)
	if err != nil {
		return nil, err
	}
	refused := place(nowhere)
	if e.NotSelector != "" && selects == nil {
		not, err := parse(e.NotSelector)
		if err != nil {
			return nil, err
		}
		refused = c.entitiesWhere(not)
	}
	return func(f *Flow) bool {
		addr, number := at(f)
		switch {
		case selects != nil && !c.entitiesAt(addr, selected):
			return false
		case len(e.Nets) > 0 && !inAnyNet(nets)(addr):
			return false
		case inAnyNet(notNets)(addr) || refused(addr):
			return false
		case len(e.Ports) > 0 && !c.calicoPorts(e.Ports, f.Proto, addr, number, selected):
			return false
		case len(e.NotPorts) > 0 && c.calicoPorts(e.NotPorts, f.Proto, addr, number, selected):
			return false
		case e.Services != nil && !c.ofService(namespace, e.Services, f.Proto, addr, number, destination):
			return false
		}
		return true
	}, nil
}

// calicoSelected are the endpoints and network sets an entity of a rule selects; selects is nil if it does not speak of any.
// In a namespaced policy they are those of the policy's namespace as soon as it speaks of any, be it negatively. A negated
// selector beside them speaks of the same endpoints: one that it matches is not selected.
func (c *Cluster) calicoSelected(namespace string, e *CalicoEntity) (selected map[*entity]bool, selects expression, err error) {
	own, err := parseOr(e.Selector, everything)
	if err != nil {
		return nil, nil, err
	}
	space, err := readSpace(e.NamespaceSelector)
	if err != nil {
		return nil, nil, err
	}
	account := expression(everything)
	if e.ServiceAccounts != nil {
		if account, err = readAccounts(*e.ServiceAccounts); err != nil {
			return nil, nil, err
		}
	}
	// An empty match of service accounts restricts nothing, as in Calico (libcalico-go, updateprocessors/rules.go).
	accounts := e.ServiceAccounts != nil && (e.ServiceAccounts.Selector != "" || len(e.ServiceAccounts.Names) > 0)
	speaks := e.Selector != "" || e.NamespaceSelector != "" || accounts
	switch {
	case e.NamespaceSelector != "":
	case namespace != "" && (speaks || e.NotSelector != ""):
		speaks = true
		space = func(l map[string]string) bool { return l["projectcalico.org/namespace"] == namespace }
	}
	if !speaks {
		return c.selected(everything), nil, nil
	}
	not, err := parseOr(e.NotSelector, func(map[string]string) bool { return false })
	if err != nil {
		return nil, nil, err
	}
	all := func(l map[string]string) bool { return own(l) && space(l) && account(l) && !not(l) }
	return c.selected(all), all, nil
}

func readAccounts(a CalicoAccounts) (expression, error) {
	sel, err := parseOr(a.Selector, everything)
	return func(l map[string]string) bool {
		if a.Selector != "" && !sel(only(l, "pcsa.")) {
			return false
		}
		name, has := l["projectcalico.org/serviceaccount"]
		return len(a.Names) == 0 || has && slices.Contains(a.Names, name)
	}, err
}

func (c *Cluster) selected(sel expression) map[*entity]bool {
	out := map[*entity]bool{}
	for _, e := range c.entities {
		if sel(e.labels) {
			out[e] = true
		}
	}
	return out
}

func (c *Cluster) entitiesAt(a netip.Addr, selected map[*entity]bool) bool {
	for e := range selected {
		if inAnyNet(e.nets)(a) {
			return true
		}
	}
	return false
}

func (c *Cluster) entitiesWhere(sel expression) place {
	selected := c.selected(sel)
	return func(a netip.Addr) bool { return c.entitiesAt(a, selected) }
}

// calicoPorts: numbers, ranges "80:90", and names, which selected endpoints give to ports of theirs.
func (c *Cluster) calicoPorts(list []intstr.IntOrString, proto Protocol, a netip.Addr, number uint16, selected map[*entity]bool) bool {
	if !proto.Ports() {
		return false
	}
	for _, p := range list {
		if first, last, isNumber := portRange(p); isNumber {
			if first <= number && number <= last {
				return true
			}
			continue
		}
		for e := range selected {
			for _, q := range e.ports {
				if q.name == p.StrVal && q.proto == proto && q.number == number && inAnyNet(e.nets)(a) {
					return true
				}
			}
		}
	}
	return false
}

func portRange(p intstr.IntOrString) (first, last uint16, ok bool) {
	if p.Type == intstr.Int {
		return uint16(p.IntVal), uint16(p.IntVal), true
	}
	low, high, isRange := strings.Cut(p.StrVal, ":")
	if !isRange {
		high = low
	}
	a, err := strconv.ParseUint(low, 10, 16)
	b, err2 := strconv.ParseUint(high, 10, 16)
	return uint16(a), uint16(b), err == nil && err2 == nil
}

// ofService reports that an address is one of the service's endpoints', whatever its condition; as a destination, the port too.
func (c *Cluster) ofService(namespace string, s *CalicoService, proto Protocol, a netip.Addr, number uint16, destination bool) bool {
	if s.Namespace != "" {
		namespace = s.Namespace
	}
	for _, slice := range c.slices {
		if slice.Namespace != namespace || slice.Labels["kubernetes.io/service-name"] != s.Name {
			continue
		}
		here := !destination
		for _, p := range slice.Ports {
			here = here || p.Port != nil && *p.Port == int32(number) && protocolOf(string(*p.Protocol)) == proto
		}
		for _, ep := range slice.Endpoints {
			if here && len(ep.Addresses) > 0 && ep.Addresses[0] == a.String() {
				return true
			}
		}
	}
	return false
}
