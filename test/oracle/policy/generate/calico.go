package generate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// addService makes a Service with slices of both families, for clients and for rules that name it.
func (w *World) addService() policy.Object {
	if !w.kinds.Services {
		return nil
	}
	ns := pick(w, objectsOf[*corev1.Namespace](w)...)
	i := len(objectsOf[*corev1.Service](w)) + 1
	s := &corev1.Service{TypeMeta: policy.TypeOf(policy.GroupCore, "Service"), ObjectMeta: policy.Meta(ns.Name, fmt.Sprintf("svc-%d", i), nil)}
	s.Spec.Type = pick(w, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort)
	s.Spec.ClusterIP = fmt.Sprintf("10.96.0.%d", 10+i)
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	s.Spec.ExternalTrafficPolicy = ""
	port := corev1.ServicePort{Name: "p", Protocol: pick(w, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP), Port: 8000 + int32(i)}
	target := int32(w.portNumber())
	port.TargetPort = intstr.FromInt32(target)
	if s.Spec.Type == corev1.ServiceTypeNodePort {
		port.NodePort = 30000 + int32(i)
		s.Spec.ExternalTrafficPolicy = pick(w, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	s.Spec.Ports = []corev1.ServicePort{port}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		w.putObject(w.slice(s, family, port.Protocol, target))
	}
	return w.putObject(s)
}

// slice has some pods of the service's namespace as endpoints.
func (w *World) slice(s *corev1.Service, family discoveryv1.AddressType, proto corev1.Protocol, target int32) *discoveryv1.EndpointSlice {
	labels := map[string]string{discoveryv1.LabelServiceName: s.Name}
	e := &discoveryv1.EndpointSlice{
		TypeMeta: policy.TypeOf(policy.GroupDiscover, "EndpointSlice"), ObjectMeta: policy.Meta(s.Namespace, s.Name+"-"+strings.ToLower(string(family)), labels),
		AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: ptr("p"), Protocol: &proto, Port: &target}},
	}
	for _, p := range objectsOf[*corev1.Pod](w) {
		if p.Namespace != s.Namespace || p.Status.Phase != corev1.PodRunning || p.Spec.HostNetwork || w.chance(3) {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			if strings.Contains(ip.IP, ":") == (family == discoveryv1.AddressTypeIPv6) {
				e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{ip.IP}, NodeName: ptr(p.Spec.NodeName),
					TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name},
				})
			}
		}
	}
	return e
}

// addCalicoPlace makes a tier or a network set.
func (w *World) addCalicoPlace() policy.Object {
	if !w.kinds.Calico {
		return nil
	}
	if w.chance(2) {
		t := &policy.CalicoTier{TypeMeta: policy.TypeOf(policy.GroupCalico, "Tier"), ObjectMeta: policy.Meta("", w.name("tier"), nil)}
		if !w.chance(5) {
			t.Spec.Order = ptr(pick(w, 10.0, 500.5, 999.0, 5000.0, 2e6, 2e7) + float64(w.names)/1024) // no two alike
		}
		t.Spec.DefaultAction = pick(w, "", "Deny", "Pass")
		return w.putObject(t)
	}
	n := &policy.CalicoNetworkSet{TypeMeta: policy.TypeOf(policy.GroupCalico, "GlobalNetworkSet"), ObjectMeta: policy.Meta("", w.name("gns"), w.labels())}
	if w.chance(2) {
		n.TypeMeta, n.ObjectMeta = policy.TypeOf(policy.GroupCalico, "NetworkSet"), policy.Meta(pick(w, objectsOf[*corev1.Namespace](w)...).Name, w.name("ns"), w.labels())
	}
	for range w.rng.IntN(4) {
		n.Spec.Nets = append(n.Spec.Nets, w.network().String())
	}
	return w.putObject(n)
}

// addCalico makes a policy of Calico's in some tier.
func (w *World) addCalico() policy.Object {
	p := &policy.CalicoPolicy{TypeMeta: policy.TypeOf(policy.GroupCalico, "GlobalNetworkPolicy")}
	if w.chance(2) {
		p.TypeMeta, p.Namespace = policy.TypeOf(policy.GroupCalico, "NetworkPolicy"), pick(w, objectsOf[*corev1.Namespace](w)...).Name
	}
	p.Spec = w.calicoSpec(p.Namespace)
	p.Name = p.Spec.Tier + "." + w.name("cp") // up to Calico v3.31 names start with the tier
	if p.Spec.Tier == "" {
		p.Name = "default." + w.name("cp")
	}
	return w.putObject(p)
}

// calicoSpec is one whose order no other policy has: among equals it depends on how names are written. Nor has it the order
// of NetworkPolicies in the default tier.
func (w *World) calicoSpec(namespace string) policy.CalicoSpec {
	w.names++
	s := policy.CalicoSpec{Order: ptr(pick(w, 1.0, 10, 999, 1001, 5000) + float64(w.names)/1024)}
	tiers := []string{"", policy.TierDefault}
	for _, t := range objectsOf[*policy.CalicoTier](w) {
		tiers = append(tiers, t.Name, t.Name)
	}
	s.Tier = pick(w, tiers...)
	if !w.chance(4) {
		s.Selector = w.expression(2)
	}
	if namespace == "" && w.chance(3) {
		for s.NamespaceSelector == "" || s.NamespaceSelector == "global()" { // which is for peers
			s.NamespaceSelector = w.spaceExpression()
		}
		if s.NamespaceSelector != "all()" {
			s.NamespaceSelector = inOne(s.NamespaceSelector)
		}
	}
	if w.chance(5) {
		s.ServiceAccountSelector = inOne(w.expression(1))
	}
	if namespace == "" && w.kinds.Hosts {
		s.ApplyOnForward = w.chance(2)
	}
	switch w.rng.IntN(5) {
	case 0:
		s.Types = []string{"Ingress"}
	case 1:
		s.Types = []string{"Egress"}
	case 2:
		s.Types = []string{"Ingress", "Egress"}
	}
	for range w.rng.IntN(4) {
		s.Ingress = append(s.Ingress, w.calicoRule(true))
	}
	for range w.rng.IntN(4) {
		s.Egress = append(s.Egress, w.calicoRule(false))
	}
	return s
}

// inOne is a selector that does not hold for what has no namespace, or no service account, at all: whether a policy that
// selects by these applies to host endpoints, nobody says.
func inOne(text string) string { return "has(projectcalico.org/name) && (" + text + ")" }

// expression is a selector of Calico's over the labels that objects have.
func (w *World) expression(depth int) string {
	label, value := pick(w, "app", "app", "tier", "env", "none"), pick(w, values[:]...)
	switch n := w.rng.IntN(14); {
	case n < 3:
		return fmt.Sprintf("%s == '%s'", label, value)
	case n == 3:
		return fmt.Sprintf("%s != \"%s\"", label, value)
	case n == 4:
		return fmt.Sprintf("%s in {'%s', '%s'}", label, value, pick(w, "a", "b", "c"))
	case n == 5:
		return fmt.Sprintf("%s not in {'%s'}", label, value)
	case n == 6:
		return fmt.Sprintf("has(%s)", label)
	case n == 7:
		return "all()"
	case n == 8:
		return fmt.Sprintf("%s %s '%s'", label, pick(w, "contains", "starts with", "ends with"), value)
	case depth == 0:
		return fmt.Sprintf("!has(%s)", label)
	case n < 11:
		return fmt.Sprintf("%s && %s", w.expression(depth-1), w.expression(depth-1))
	case n < 13:
		return fmt.Sprintf("(%s || %s)", w.expression(depth-1), w.expression(depth-1))
	}
	return fmt.Sprintf("!(%s)", w.expression(depth-1))
}

// spaceExpression selects namespaces.
func (w *World) spaceExpression() string {
	switch w.rng.IntN(5) {
	case 0:
		return "all()"
	case 1:
		return "global()"
	case 2:
		return fmt.Sprintf("%s == '%s'", pick(w, "projectcalico.org/name", "kubernetes.io/metadata.name"), pick(w, "prod", "dev", "ops"))
	}
	for {
		if e := w.expression(1); !strings.Contains(e, "all()") { // Calico rewrites it wherever it stands
			return e
		}
	}
}

func (w *World) calicoRule(ingress bool) policy.CalicoRule {
	r := policy.CalicoRule{Action: pick(w, "Allow", "Allow", "Deny", "Deny", "Pass", "Log")}
	v6, ports := w.chance(2), false // the ranges of a rule are of one family
	switch w.rng.IntN(10) {
	case 0, 1, 2, 3:
		r.Protocol, ports = ptr(pick(w, intstr.FromString("TCP"), intstr.FromString("UDP"), intstr.FromString("SCTP"), intstr.FromInt32(6))), true
	case 4, 5:
		r.Protocol, v6 = ptr(pick(w, intstr.FromString("ICMP"), intstr.FromInt32(1))), false
		r.ICMP, r.NotICMP = w.icmp(8, 13), w.icmp(8, 13)
	case 6:
		r.Protocol, v6 = ptr(intstr.FromString("ICMPv6")), true
		r.ICMP, r.NotICMP = w.icmp(128, 139), w.icmp(128, 139)
	case 7:
		r.NotProtocol = ptr(pick(w, intstr.FromString("TCP"), intstr.FromString("UDP"), intstr.FromInt32(132)))
	}
	if w.chance(8) {
		r.IPVersion = ptr(4)
		if v6 {
			r.IPVersion = ptr(6)
		}
	}
	r.Source, r.Destination = w.calicoEntity(ports, false, ingress, v6), w.calicoEntity(ports, true, !ingress, v6)
	if w.chance(2) { // mostly rules are about the peer alone
		if ingress {
			r.Destination = nil
		} else {
			r.Source = nil
		}
	}
	return r
}

func (w *World) icmp(types ...int) *policy.CalicoICMP {
	if !w.chance(3) {
		return nil
	}
	m := &policy.CalicoICMP{Type: ptr(pick(w, types...))}
	if w.chance(3) {
		m.Code = ptr(pick(w, 0, 1))
	}
	return m
}

// calicoEntity is one side of a rule.
func (w *World) calicoEntity(ports, destination, peer, v6 bool) *policy.CalicoEntity {
	var e policy.CalicoEntity
	if services := objectsOf[*corev1.Service](w); peer && !ports && len(services) > 0 && w.chance(8) {
		s := pick(w, services...)
		e.Services = &policy.CalicoService{Name: s.Name, Namespace: s.Namespace}
		return &e
	}
	if w.chance(3) {
		e.Selector = w.expression(2)
	}
	if w.chance(6) {
		e.NamespaceSelector = w.spaceExpression()
	}
	if w.chance(6) {
		e.NotSelector = w.expression(1)
	}
	if w.chance(8) {
		e.ServiceAccounts = &policy.CalicoAccounts{Names: some(w, w.rng.IntN(3), "default", "web", "unknown")}
		if len(e.ServiceAccounts.Names) == 0 || w.chance(4) {
			e.ServiceAccounts.Selector = w.expression(1)
		}
	}
	if w.chance(4) {
		e.Nets = w.networksOf(v6, 0)
	}
	if w.chance(6) {
		e.NotNets = w.networksOf(v6, 1) // not everything: that would be nothing
	}
	if ports && destination && w.chance(2) {
		e.Ports = w.calicoPortList()
	}
	if ports && destination && w.chance(5) {
		e.NotPorts = w.calicoPortList()
	}
	if ports && !destination && w.chance(8) {
		e.Ports = []intstr.IntOrString{pick(w, intstr.FromInt32(sourcePort), intstr.FromString("1024:65535"), intstr.FromString("1:1023"))}
	}
	return &e
}

// networksOf are networks of one family, none shorter than bits.
func (w *World) networksOf(v6 bool, bits int) []string {
	var out []string
	for range 10 {
		for _, text := range w.networks() {
			if p := netip.MustParsePrefix(text); p.Addr().Is6() == v6 && p.Bits() >= bits && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

func (w *World) calicoPortList() []intstr.IntOrString {
	var out []intstr.IntOrString
	for range 1 + w.rng.IntN(2) {
		switch w.rng.IntN(3) {
		case 0:
			out = append(out, intstr.FromString(pick(w, portNames[:]...)))
		case 1:
			first, last := w.portsFrom()
			out = append(out, intstr.FromString(fmt.Sprintf("%d:%d", first, last)))
		default:
			out = append(out, intstr.FromInt32(int32(w.portNumber())))
		}
	}
	return out
}
