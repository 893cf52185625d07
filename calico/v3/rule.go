package v3

import (
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv-agent/contiv-agent/model"
)

// Rule is a rule of a policy or a profile. The order of its fields is that of Calico's JSON.
type Rule struct {
	Action      string    `json:"action"` // Allow, Deny, Log, Pass
	IPVersion   *int32    `json:"ipVersion,omitempty"`
	Protocol    *Protocol `json:"protocol,omitempty"`
	ICMP        *ICMP     `json:"icmp,omitempty"`
	NotProtocol *Protocol `json:"notProtocol,omitempty"`
	NotICMP     *ICMP     `json:"notICMP,omitempty"`
	Source      Entity    `json:"source"`
	Destination Entity    `json:"destination"`
	HTTP        *HTTP     `json:"http,omitempty"`
	Metadata    *Metadata `json:"metadata,omitempty"`
}

// ICMP matches a type, and of this type a code; nil matches any.
type ICMP struct {
	Type *int32 `json:"type,omitempty"`
	Code *int32 `json:"code,omitempty"`
}

// Entity is one side of a rule.
type Entity struct {
	Nets              []string  `json:"nets,omitempty"` // ranges or addresses
	Selector          string    `json:"selector,omitempty"`
	NamespaceSelector string    `json:"namespaceSelector,omitempty"`
	Services          *Service  `json:"services,omitempty"`
	Ports             []Port    `json:"ports,omitempty"`
	NotNets           []string  `json:"notNets,omitempty"`
	NotSelector       string    `json:"notSelector,omitempty"`
	NotPorts          []Port    `json:"notPorts,omitempty"`
	ServiceAccounts   *Accounts `json:"serviceAccounts,omitempty"`
}

// Service names a Service whose endpoints match; an empty namespace is the policy's.
type Service struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// Accounts matches service accounts by name and by labels.
type Accounts struct {
	Names    []string `json:"names,omitempty"`
	Selector string   `json:"selector,omitempty"`
}

// HTTP is a match of HTTP requests.
type HTTP struct {
	Methods []string   `json:"methods,omitempty"`
	Paths   []HTTPPath `json:"paths,omitempty"`
}

// HTTPPath is an exact path or a path prefix; exactly one field is set.
type HTTPPath struct {
	Exact  string `json:"exact,omitempty"`
	Prefix string `json:"prefix,omitempty"`
}

// Metadata holds annotations, passed on unchanged.
type Metadata struct {
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Protocol is a number, or one of Calico's names in any case.
type Protocol struct{ intstr.IntOrString }

// ProtocolOf returns a protocol with this text.
func ProtocolOf(text string) *Protocol { return &Protocol{intstr.FromString(text)} }

// MarshalJSON writes a number up to 255 as a number and all other text as it is, as Calico does.
func (p Protocol) MarshalJSON() ([]byte, error) { return numberOrText(p.String(), 8) }

// Model returns the protocol by its name in lower case, or by its number, which is 1 to 255; ok is false for all others. nil is
// any protocol, the zero value.
func (p *Protocol) Model() (m model.RuleProtocol, ok bool) {
	if p == nil {
		return m, true
	}
	text := strings.ToLower(p.String())
	if p.Type == intstr.String && slices.Contains([]string{"tcp", "udp", "icmp", "icmpv6", "sctp", "udplite"}, text) {
		return model.RuleProtocol{Name: text}, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 255 {
		return m, false
	}
	return model.RuleProtocol{Number: uint8(n)}, true
}

// Port is a port, an inclusive range "80:90", or the name of a port.
type Port struct{ intstr.IntOrString }

// PortOf returns the port that p describes.
func PortOf(p model.PortMatch) Port { return Port{intstr.FromString(PortText(p))} }

// UnmarshalJSON reads a number or a string. null becomes the empty text, which is no port: intstr would make port 0 of it.
func (p *Port) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*p = Port{intstr.FromString("")}
		return nil
	}
	return p.IntOrString.UnmarshalJSON(text)
}

// MarshalJSON writes a single port as a number and all other text as it is, as Calico does.
func (p Port) MarshalJSON() ([]byte, error) { return numberOrText(p.String(), 16) }

// Model returns the port as a range or a name; ok is false if it is neither.
func (p Port) Model() (m model.PortMatch, ok bool) {
	if p.Type == intstr.Int && p.IntVal < 0 {
		return m, false
	}
	return ParsePort(p.String())
}

// ParsePort reads a number (0 to 65535), a range "80:90", or a name: up to 128 letters, digits, "_", "." and "-", not all of
// them digits.
func ParsePort(text string) (m model.PortMatch, ok bool) {
	first, last, isRange := strings.Cut(text, ":")
	if !isRange {
		last = first
	}
	if !digits(first) || !digits(last) {
		return model.PortMatch{Name: text}, IsPortName(text)
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	return model.PortMatch{First: uint16(a), Last: uint16(b)}, errA == nil && errB == nil && a <= b
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// IsPortName reports whether Calico permits text as the name of an endpoint's port.
func IsPortName(text string) bool {
	other := func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_.-", c))
	}
	return text != "" && len(text) <= 128 && !strings.ContainsFunc(text, other)
}

// PortText returns the text that ParsePort reads.
func PortText(p model.PortMatch) string {
	switch {
	case p.Name != "":
		return p.Name
	case p.First == p.Last:
		return strconv.Itoa(int(p.First))
	}
	return strconv.Itoa(int(p.First)) + ":" + strconv.Itoa(int(p.Last))
}

// ParseNet returns a network without host bits; an address becomes the network of itself. It reads what Calico reads, which
// includes IPv4 addresses mapped into IPv6.
func ParseNet(text string) (p netip.Prefix, ok bool) {
	if _, n, err := net.ParseCIDR(text); err == nil {
		p, err = netip.ParsePrefix(n.String())
		return p, err == nil
	}
	if ip := net.ParseIP(text); ip != nil {
		a, _ := netip.AddrFromSlice(ip)
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	return p, false
}

func numberOrText(text string, bits int) ([]byte, error) {
	if n, err := strconv.ParseUint(text, 10, bits); err == nil {
		return strconv.AppendUint(nil, n, 10), nil
	}
	return json.Marshal(text)
}
