package convert

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/contiv-agent/contiv-agent/model"
)

// Texts for refused names, one per rule, so that the same mistake always has the same text.
const (
	wantLabel     = "must be a DNS label: at most 63 lower-case letters, digits and '-', with a letter or digit at both ends"
	wantSubdomain = "must be a DNS name: at most 253 lower-case letters, digits, '-' and '.', with a letter or digit at both ends of each part"
	wantPort      = "must be 1 to 65535"
	wantProtocol  = "must be TCP, UDP or SCTP"
)

// names checks the metadata: the name by the kind's rule, the namespace if the kind has one, and the labels.
func (ps *problems) names(m *metav1.ObjectMeta, name func(ps *problems, field, value string)) {
	if m.Name == "" {
		ps.addProblem("metadata.name", "is missing", nil)
	} else {
		name(ps, "metadata.name", m.Name)
	}
	if m.Namespace != "" && ps.ref.Namespace != "" {
		label(ps, "metadata.namespace", m.Namespace)
	}
	for _, k := range sortedKeys(m.Labels) {
		field := "metadata.labels[" + k + "]"
		if len(validation.IsQualifiedName(k)) > 0 {
			ps.addProblem(field, "its key must be a qualified name: [DNS name/]at most 63 letters, digits, '-', '_' and '.'", nil)
		}
		if len(validation.IsValidLabelValue(m.Labels[k])) > 0 {
			ps.addProblem(field, "must be at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", m.Labels[k])
		}
	}
}

// label requires an RFC 1123 label: Services (since Kubernetes 1.34 no longer RFC 1035), Namespaces, port names.
func label(ps *problems, field, value string) {
	if len(validation.IsDNS1123Label(value)) > 0 {
		ps.addProblem(field, wantLabel, value)
	}
}

// subdomain requires an RFC 1123 subdomain: Pods, Nodes, EndpointSlices, ServiceCIDRs.
func subdomain(ps *problems, field, value string) {
	if len(validation.IsDNS1123Subdomain(value)) > 0 {
		ps.addProblem(field, wantSubdomain, value)
	}
}

// protocol reads a port's protocol; "" means TCP, the API's default.
func (ps *problems) protocol(field string, p corev1.Protocol) model.Protocol {
	switch p {
	case "", corev1.ProtocolTCP:
		return model.TCP
	case corev1.ProtocolUDP:
		return model.UDP
	case corev1.ProtocolSCTP:
		return model.SCTP
	}
	ps.addProblem(field, wantProtocol, string(p))
	return 0
}

// readPort reads a port number; it returns 0 for a wrong one.
func (ps *problems) readPort(field string, n int32) uint16 {
	if n < 1 || n > 65535 {
		ps.addProblem(field, wantPort, n)
		return 0
	}
	return uint16(n)
}

// optionalPort is port, but 0 means no port.
func (ps *problems) optionalPort(field string, n int32) uint16 {
	if n == 0 {
		return 0
	}
	return ps.readPort(field, n)
}

// addr reads an address in its strict form: no zone, no leading zeros, no IPv4-mapped IPv6. It returns the zero Addr for a
// wrong one.
func (ps *problems) addr(field, s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		ps.addProblem(field, "must be an IPv4 or IPv6 address in its plain form", s)
		return netip.Addr{}
	}
	return a
}

// hostAddr is addr for destinations of packets: it also refuses addresses that no host can have.
func (ps *problems) hostAddr(field, s string) netip.Addr {
	a := ps.addr(field, s)
	if !a.IsValid() {
		return a
	}
	if why := special(a); why != "" {
		ps.addProblem(field, "must not be "+why, s)
		return netip.Addr{}
	}
	return a
}

// special returns the class of an address that neither a Service nor an endpoint may have; "" for ordinary addresses.
func special(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "" // reported already
	case a.IsUnspecified():
		return "the unspecified address"
	case a.IsLoopback():
		return "a loopback address"
	case a.IsMulticast():
		return "a multicast address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address"
	}
	return ""
}

// prefix reads a CIDR and clears its host bits. It returns the zero Prefix for a wrong one.
func (ps *problems) prefix(field, s string) netip.Prefix {
	p, err := netip.ParsePrefix(strings.TrimSpace(s))
	if err != nil || p.Addr().Is4In6() {
		ps.addProblem(field, "must be an IPv4 or IPv6 range such as 10.1.0.0/16", s)
		return netip.Prefix{}
	}
	return p.Masked()
}

// dualStack checks Kubernetes' rule for cluster IPs, pod IPs and ranges: at most two, and two only with different families.
func (ps *problems) dualStack(field string, families []bool) {
	switch {
	case len(families) > 2:
		ps.addProblem(field, "must have at most two entries", len(families))
	case len(families) == 2 && families[0] == families[1]:
		ps.addProblem(field, "must have one entry per address family", nil)
	}
}

// addrs reads a list of addresses with rule. It keeps the order and drops duplicates; nil if none remains.
func (ps *problems) addrs(field string, list []string, rule func(field, s string) netip.Addr) []netip.Addr {
	var out []netip.Addr
	for i, s := range list {
		if a := rule(elementPath(field, i), s); a.IsValid() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// prefixes reads a list of ranges. It keeps the order and drops duplicates; nil if none remains.
func (ps *problems) prefixes(field string, list []string) []netip.Prefix {
	var out []netip.Prefix
	for i, s := range list {
		if p := ps.prefix(elementPath(field, i), s); p.IsValid() && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func addrFamilies(list []netip.Addr) []bool {
	out := make([]bool, len(list))
	for i, a := range list {
		out[i] = a.Is6()
	}
	return out
}

func prefixFamilies(list []netip.Prefix) []bool {
	out := make([]bool, len(list))
	for i, p := range list {
		out[i] = p.Addr().Is6()
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// cloned returns a copy of m, nil if m is empty.
func cloned(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}
