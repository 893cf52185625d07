// Package ask turns the text of assertions about policies into values.
//
//	ns:dev -> ns:prod
//	pods:app=web -> service:shop/db:5432/TCP
//	any -> ns:shop,app=db:22,8000-8080/TCP
//
// Invariant: String of what Parse returns is the text that was parsed.
package ask

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Kind says what an assertion demands.
type Kind string

// The kinds. Never: policies allow no packet of a new connection from the left side to the right side. Always: they allow every one.
const (
	Never  Kind = "never"
	Always Kind = "always"
)

// Assertion is one demand on policies.
type Assertion struct {
	Name, Reason string // "" on the command line
	Kind         Kind
	From, To     Side
}

// String is "LEFT -> RIGHT".
func (a *Assertion) String() string { return a.From.Text + arrow + a.To.Text }

const arrow = " -> "

// Form is the form of a side.
type Form string

// The forms of sides.
const (
	Any        Form = "any"        // pods and what is outside
	Outside    Form = "outside"    // addresses outside the cluster
	Pod        Form = "pod"        // NAMESPACE/NAME
	Workload   Form = "workload"   // NAMESPACE/NAME of what made the pods
	Namespace  Form = "ns"         // NAME, and labels of pods
	Namespaces Form = "namespaces" // labels of namespaces
	Pods       Form = "pods"       // labels of pods
	Service    Form = "service"    // NAMESPACE/NAME
	CIDR       Form = "cidr"       // a prefix
)

// Side is the senders or the receivers of an assertion.
type Side struct {
	Text            string // as it was written
	Form            Form
	Namespace, Name string
	Labels          labels.Selector // nil: any
	Prefix          netip.Prefix
	Ports           []Port // the only ports of receivers; none: all headers, or all ports of a Service
}

// Port is ports of a protocol; of ICMP it is the whole protocol.
type Port struct {
	Protocol    uint16
	First, Last uint16
}

// The numbers of protocols that a side may name.
var protocols = map[string]uint16{"TCP": 6, "UDP": 17, "SCTP": 132, "ICMP": 1} // read only

// Parse reads "LEFT -> RIGHT".
func Parse(kind Kind, text string) (a Assertion, err error) {
	left, right, found := strings.Cut(text, "->")
	if !found || strings.Contains(right, "->") {
		return a, fmt.Errorf("%q: want LEFT -> RIGHT, such as ns:dev -> ns:prod", text)
	}
	a.Kind = kind
	if a.From, err = ParseSide(strings.TrimSpace(left)); err != nil {
		return a, err
	}
	if len(a.From.Ports) > 0 {
		return a, fmt.Errorf("%q: only the right side has ports: those that the left side dials", a.From.Text)
	}
	a.To, err = ParseSide(strings.TrimSpace(right))
	return a, err
}

// ParseSide reads one side.
func ParseSide(text string) (s Side, err error) {
	s.Text = text
	form, rest, _ := strings.Cut(text, ":")
	s.Form = Form(form)
	var value, ports string
	switch s.Form {
	case Any, Outside:
		ports = rest
	case CIDR:
		address, bits, _ := strings.Cut(rest, "/")
		bits, ports, _ = strings.Cut(bits, ":")
		value = address + "/" + bits
	case Pod, Workload, Namespace, Namespaces, Pods, Service:
		value, ports, _ = strings.Cut(rest, ":")
	default:
		return s, fmt.Errorf("%q: a side is any, outside, or begins with one of pod:, workload:, ns:, namespaces:, pods:, service:, cidr: and a value", text)
	}
	if err := s.readValue(value); err != nil {
		return s, fmt.Errorf("%q: %w", text, err)
	}
	if strings.HasSuffix(text, ":") {
		return s, fmt.Errorf("%q: nothing follows the last colon", text)
	}
	if ports != "" {
		if s.Ports, err = parsePorts(ports); err != nil {
			return s, fmt.Errorf("%q: %w", text, err)
		}
	}
	return s, nil
}

func (s *Side) readValue(value string) (err error) {
	switch s.Form {
	case CIDR:
		if s.Prefix, err = netip.ParsePrefix(value); err != nil {
			return fmt.Errorf("want a prefix, such as cidr:10.0.0.0/8 or cidr:2001:db8::/32:443")
		}
		if s.Prefix != s.Prefix.Masked() {
			return fmt.Errorf("the prefix has host bits: want %s", s.Prefix.Masked())
		}
	case Pod, Workload, Service:
		var found bool
		s.Namespace, s.Name, found = strings.Cut(value, "/")
		if !found || s.Namespace == "" || s.Name == "" || strings.ContainsAny(s.Name, "/,") {
			return fmt.Errorf("want %s:NAMESPACE/NAME", s.Form)
		}
	case Namespace:
		var wanted string
		var more bool
		if s.Namespace, wanted, more = strings.Cut(value, ","); s.Namespace == "" || strings.ContainsAny(s.Namespace, "/=! ") {
			return errors.New("want ns:NAME, or ns:NAME,KEY=VALUE for some of its pods")
		}
		if more {
			s.Labels, err = parseLabels(wanted)
		}
	case Namespaces, Pods:
		s.Labels, err = parseLabels(value)
	}
	return err
}

func parseLabels(text string) (labels.Selector, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("want labels, such as app=web")
	}
	return labels.Parse(text)
}

// parsePorts reads "80,443,8000-8080/TCP", "53/UDP" or "ICMP".
func parsePorts(text string) (list []Port, err error) {
	for item := range strings.SplitSeq(text, ",") {
		p, err := ParsePort(item)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// ParsePort reads "80", "80/UDP", "8000-8080/TCP", "UDP" or "ICMP". A port without a protocol is one of TCP.
func ParsePort(text string) (Port, error) {
	if number, known := protocols[text]; known {
		return Port{number, 0, 65535}, nil
	}
	ports, protocol, has := strings.Cut(text, "/")
	if !has {
		protocol = "TCP"
	}
	number, known := protocols[protocol]
	first, last, isRange := strings.Cut(ports, "-")
	low, err := strconv.ParseUint(first, 10, 16)
	high := low
	if isRange && err == nil {
		high, err = strconv.ParseUint(last, 10, 16)
	}
	if err != nil || !known || protocol == "ICMP" || low == 0 || high < low {
		return Port{}, fmt.Errorf("port %q: want a port such as 80, 53/UDP or 8000-8080/TCP, or a protocol: TCP, UDP, SCTP or ICMP", text)
	}
	return Port{number, uint16(low), uint16(high)}, nil
}
