package check

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
	WantLabel     = "must be a DNS label: at most 63 lower-case letters, digits and '-', with a letter or digit at both ends"
	WantSubdomain = "must be a DNS name: at most 253 lower-case letters, digits, '-' and '.', with a letter or digit at both ends of each part"
	wantPort      = "must be 1 to 65535"
	WantProtocol  = "must be TCP, UDP or SCTP"
)

// Names checks the metadata: the name by the kind's rule, the namespace if the kind has one, and the labels.
func (ps *Problems) Names(m *metav1.ObjectMeta, name func(ps *Problems, field, value string)) {
	if m.Name == "" {
		ps.Add("metadata.name", "is missing", nil)
	} else {
		name(ps, "metadata.name", m.Name)
	}
	if m.Namespace != "" && ps.Ref.Namespace != "" {
		Label(ps, "metadata.namespace", m.Namespace)
	}
	for _, k := range slices.Sorted(maps.Keys(m.Labels)) {
		field := "metadata.labels[" + k + "]"
		if len(validation.IsQualifiedName(k)) > 0 {
			ps.Add(field, "its key must be a qualified name: [DNS name/]at most 63 letters, digits, '-', '_' and '.'", nil)
		}
		if len(validation.IsValidLabelValue(m.Labels[k])) > 0 {
			ps.Add(field, "must be at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", m.Labels[k])
		}
	}
}

// Label requires an RFC 1123 label: Services (since Kubernetes 1.34 no longer RFC 1035), Namespaces, port names.
func Label(ps *Problems, field, value string) {
	if len(validation.IsDNS1123Label(value)) > 0 {
		ps.Add(field, WantLabel, value)
	}
}

// Subdomain requires an RFC 1123 subdomain: Pods, Nodes, EndpointSlices, ServiceCIDRs.
func Subdomain(ps *Problems, field, value string) {
	if len(validation.IsDNS1123Subdomain(value)) > 0 {
		ps.Add(field, WantSubdomain, value)
	}
}

// Protocol reads a port's protocol; "" means TCP, the API's default.
func (ps *Problems) Protocol(field string, p corev1.Protocol) model.Protocol {
	switch p {
	case "", corev1.ProtocolTCP:
		return model.TCP
	case corev1.ProtocolUDP:
		return model.UDP
	case corev1.ProtocolSCTP:
		return model.SCTP
	}
	ps.Add(field, WantProtocol, string(p))
	return 0
}

// ReadPort reads a port number; it returns 0 for a wrong one.
func (ps *Problems) ReadPort(field string, n int32) uint16 {
	if n < 1 || n > 65535 {
		ps.Add(field, wantPort, n)
		return 0
	}
	return uint16(n)
}

// OptionalPort is port, but 0 means no port.
func (ps *Problems) OptionalPort(field string, n int32) uint16 {
	if n == 0 {
		return 0
	}
	return ps.ReadPort(field, n)
}

// Addr reads an address in its strict form: no zone, no leading zeros, no IPv4-mapped IPv6. It returns the zero Addr for a
// wrong one.
func (ps *Problems) Addr(field, s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		ps.Add(field, "must be an IPv4 or IPv6 address in its plain form", s)
		return netip.Addr{}
	}
	return a
}

// HostAddr is addr for destinations of packets: it also refuses addresses that no host can have.
func (ps *Problems) HostAddr(field, s string) netip.Addr {
	a := ps.Addr(field, s)
	if !a.IsValid() {
		return a
	}
	if why := Special(a); why != "" {
		ps.Add(field, "must not be "+why, s)
		return netip.Addr{}
	}
	return a
}

// Special returns the class of an address that neither a Service nor an endpoint may have; "" for ordinary addresses.
func Special(a netip.Addr) string {
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

// Prefix reads a CIDR and clears its host bits. It returns the zero Prefix for a wrong one.
func (ps *Problems) Prefix(field, s string) netip.Prefix {
	p, err := netip.ParsePrefix(strings.TrimSpace(s))
	if err != nil || p.Addr().Is4In6() {
		ps.Add(field, "must be an IPv4 or IPv6 range such as 10.1.0.0/16", s)
		return netip.Prefix{}
	}
	return p.Masked()
}

// DualStack checks Kubernetes' rule for cluster IPs, pod IPs and ranges: at most two, and two only with different families.
func (ps *Problems) DualStack(field string, families []bool) {
	switch {
	case len(families) > 2:
		ps.Add(field, "must have at most two entries", len(families))
	case len(families) == 2 && families[0] == families[1]:
		ps.Add(field, "must have one entry per address family", nil)
	}
}

// Addrs reads a list of addresses with rule. It keeps the order and drops duplicates; nil if none remains.
func (ps *Problems) Addrs(field string, list []string, rule func(field, s string) netip.Addr) []netip.Addr {
	var out []netip.Addr
	for i, s := range list {
		if a := rule(ElementPath(field, i), s); a.IsValid() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// Prefixes reads a list of ranges. It keeps the order and drops duplicates; nil if none remains.
func (ps *Problems) Prefixes(field string, list []string) []netip.Prefix {
	var out []netip.Prefix
	for i, s := range list {
		if p := ps.Prefix(ElementPath(field, i), s); p.IsValid() && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// AddrFamilies returns for each address whether it is IPv6, for DualStack.
func AddrFamilies(list []netip.Addr) []bool {
	out := make([]bool, len(list))
	for i, a := range list {
		out[i] = a.Is6()
	}
	return out
}

// PrefixFamilies returns for each range whether it is IPv6, for DualStack.
func PrefixFamilies(list []netip.Prefix) []bool {
	out := make([]bool, len(list))
	for i, p := range list {
		out[i] = p.Addr().Is6()
	}
	return out
}

// Cloned returns a copy of m, nil if m is empty.
func Cloned(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}
