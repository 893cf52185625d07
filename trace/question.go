package trace

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace/hops"
)

// Question asks for the fate of a connection's first packet. Its JSON form is the trace command's input line.
type Question struct {
	// From is pod:<ns>/<name>, node:<name> or external:<ip>@<node>.
	From string `json:"from"`
	// To is <ip>:<port> ([ip]:port for IPv6, <ip> alone for ICMP), pod:<ns>/<name>:<port> or service:<ns>/<name>:<port>.
	To string `json:"to"`
	// Protocol is TCP, UDP, SCTP (the packet is an INIT) or ICMP.
	Protocol string `json:"protocol"`
}

// Verdict is the fate of a packet as its sender sees it.
type Verdict string

// The verdicts. Rejected means that the client gets an ICMP error or a RST, Dropped that it gets no answer.
const (
	Delivered Verdict = "delivered"
	Rejected  Verdict = "rejected"
	Dropped   Verdict = "dropped"
)

// Answer is the trace command's output line.
type Answer struct {
	From     string  `json:"from"`
	To       string  `json:"to"`
	Protocol string  `json:"protocol"`
	Verdict  Verdict `json:"verdict,omitempty"`
	Reason   string  `json:"reason,omitempty"`
	// Sender is the true sender, whatever source address the packet has: pod:<ns>/<name>, node:<name>, or an address
	// outside. Only Cluster.Send sets it.
	Sender   string    `json:"sender,omitempty"`
	Outcomes []Outcome `json:"outcomes"`
	// Path is the hops of the packet if no outcome has them: no backend was chosen.
	Path []hops.Hop `json:"path,omitempty"`
	// Error is why the question is invalid (unknown names, syntax); Verdict is then empty.
	Error string `json:"error,omitempty"`
}

// Outcome is the fate of the packet if the load balancer chooses one backend.
type Outcome struct {
	Backend string     `json:"backend"` // pod:<ns>/<name>, node:<name>, or <ip>
	Address string     `json:"address"` // <ip>:<port>; <ip> alone for ICMP
	Source  string     `json:"source"`  // source address that the backend sees
	Verdict Verdict    `json:"verdict"`
	Reason  string     `json:"reason"`
	Hops    []string   `json:"hops"` // the lines of Path
	Path    []hops.Hop `json:"path"`
}

// MarshalJSON encodes no outcomes as [], never null; an answer with an error has no outcomes.
func (a Answer) MarshalJSON() ([]byte, error) {
	if a.Error != "" {
		return json.Marshal(struct {
			Question
			Error string `json:"error"`
		}{Question{a.From, a.To, a.Protocol}, a.Error})
	}
	type plain Answer
	if a.Outcomes == nil {
		a.Outcomes = []Outcome{}
	}
	for i := range a.Outcomes {
		if a.Outcomes[i].Hops == nil {
			a.Outcomes[i].Hops, a.Outcomes[i].Path = []string{}, []hops.Hop{}
		}
	}
	return json.Marshal(plain(a))
}

// target is a parsed Question.To: an address and a port (0 for ICMP).
type target struct {
	addr netip.Addr
	port uint16
}

// String returns "ip:port", or "ip" without a port.
func (t target) String() string {
	if t.port == 0 {
		return t.addr.String()
	}
	return netip.AddrPortFrom(t.addr, t.port).String()
}

// objectPort parses "<ns>/<name>:<port>"; the port may be missing for ICMP.
func objectPort(s string, icmp bool) (ns, name string, port uint16, err error) {
	object := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if port, err = parsePort(s[i+1:]); err != nil {
			return "", "", 0, err
		}
		object = s[:i]
	} else if !icmp {
		return "", "", 0, fmt.Errorf("to %q: no port", s)
	}
	ns, name, ok := strings.Cut(object, "/")
	if !ok || ns == "" || name == "" {
		return "", "", 0, fmt.Errorf("to %q: want <namespace>/<name>", object)
	}
	return ns, name, port, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %q: must be 1 to 65535", s)
	}
	return uint16(n), nil
}

// addressPort parses "<ip>:<port>", "[<ip>]:<port>", and for ICMP also "<ip>".
func addressPort(s string, proto model.Protocol) (target, error) {
	if proto == model.ICMP {
		if addr, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
			return target{addr: addr}, nil
		}
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return target{}, fmt.Errorf("to %q: want <ip>:<port>, pod:<ns>/<name>:<port> or service:<ns>/<name>:<port>", s)
	}
	if proto == model.ICMP {
		return target{addr: ap.Addr()}, nil
	}
	if ap.Port() == 0 {
		return target{}, fmt.Errorf("to %q: port 0", s)
	}
	return target{addr: ap.Addr(), port: ap.Port()}, nil
}
