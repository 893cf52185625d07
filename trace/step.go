package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// Step is a question with more fields for its packet, and with things to do before the packet. A zero field changes nothing:
// a Step with only a Question equals that Question. Its JSON form is the trace command's input line.
type Step struct {
	Question
	// SourceAddress is a forged source address, different from the sender's own. Such a packet gets no answer.
	SourceAddress string `json:"sourceAddress,omitempty"`
	// SourcePort is the client's port, or the identifier of an echo; 0: 40000, or 4000.
	SourcePort uint16 `json:"sourcePort,omitempty"`
	// DestinationPort replaces the port of To.
	DestinationPort uint16 `json:"destinationPort,omitempty"`
	// Flags are flags of TCP ("S", "SA", "A", "PA", "FA", "R"), the chunk of SCTP ("INIT", "INIT-ACK", "DATA") or the type
	// of an echo ("echo-request", "echo-reply"); "": those that open a connection. An answer (SYN+ACK, echo reply, reset)
	// gets no answer.
	Flags string `json:"flags,omitempty"`
	// OneWay means no answer: the verdict is about this packet only.
	OneWay bool `json:"oneWay,omitempty"`
	// Fragments is in how many fragments the packet is sent, 2 to 16; 0: whole. The receiver gets it when all have arrived, of this and of
	// earlier steps.
	Fragments int `json:"fragments,omitempty"`
	// Only is which fragments are sent: "first", "later" (all others), "reversed" (all, the last one first); "": all, in order.
	Only string `json:"only,omitempty"`
	// Identification is that of the fragments; 0: one that no other step gets.
	Identification uint16 `json:"identification,omitempty"`

	// Restart is vpp:<node> or agent:<node>: it restarts first.
	Restart string `json:"restart,omitempty"`
	// Apply lists folders and files of manifests, whose objects are created or replaced next.
	Apply []string `json:"apply,omitempty"`
	// Delete lists the objects that are removed next: "NetworkPolicy prod/web", "Node node-1".
	Delete []string `json:"delete,omitempty"`
	// After is the time that then passes, as a Go duration: "90s".
	After string `json:"after,omitempty"`
}

// ParseStep parses one JSON object. Unknown fields are errors. Errors name the field.
func ParseStep(line []byte) (Step, error) {
	var s Step
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	err := dec.Decode(&s)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		wrong.Struct, wrong.Field = "Question", wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
		if strings.HasSuffix(wrong.Field, "Port") {
			return s, fmt.Errorf("%s: %s: must be a number from 1 to 65535", wrong.Field, wrong.Value)
		}
	}
	if err != nil {
		return s, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return s, errors.New("more text after the object: want one JSON object per line")
	}
	return s, nil
}

// needsState returns the first field that needs the state of earlier questions; "": none.
func (s *Step) needsState() string {
	switch {
	case s.Restart != "":
		return "restart"
	case len(s.Apply) > 0:
		return "apply"
	case len(s.Delete) > 0:
		return "delete"
	case s.After != "":
		return "after"
	}
	return ""
}

// sending is a packet and its sender.
type sending struct {
	from   place
	packet sim.Packet
	parts  []sim.Packet // the fragments that are sent in its place; nil: it is sent whole
	oneWay bool
}

// packet resolves a step into its sender and its packet.
func (c *Cluster) packet(s *Step) (sending, error) {
	from, p, err := wholePacket(c, s)
	out := sending{from: from, packet: p, oneWay: s.OneWay}
	if err == nil {
		out.parts, err = fragments(c, s, &p)
	}
	return out, err
}

// wholePacket is packet without fragments.
func wholePacket(c *Cluster, s *Step) (place, sim.Packet, error) {
	q := s.Question
	if s.DestinationPort != 0 {
		q.To = withPort(q.To, s.DestinationPort)
	}
	from, p, err := c.resolve(q)
	if err != nil {
		return from, p, err
	}
	if p.IsICMP() && s.DestinationPort != 0 {
		return from, p, errors.New("destinationPort: ICMP has no ports")
	}
	if s.SourcePort != 0 && p.IsICMP() {
		p.ICMPID = s.SourcePort
	} else if s.SourcePort != 0 {
		p.SrcPort = s.SourcePort
	}
	if s.SourceAddress != "" {
		src, err := netip.ParseAddr(s.SourceAddress)
		if err != nil {
			return from, p, fmt.Errorf("sourceAddress: %q is not an IP address", s.SourceAddress)
		}
		if src.Is4() != p.Dst.Is4() || src.Is4In6() || src.Zone() != "" {
			return from, p, fmt.Errorf("sourceAddress: %s and the destination %s must be of one family", src, p.Dst)
		}
		p.Src = src
	}
	return from, p, s.flags(&p)
}

// withPort returns To with another port; it adds one if To has none.
func withPort(to string, port uint16) string {
	head, isName := to, strings.HasPrefix(to, "pod:") || strings.HasPrefix(to, "service:")
	if isName {
		if i := strings.LastIndexByte(to, ':'); i > strings.IndexByte(to, ':') {
			head = to[:i]
		}
		return fmt.Sprintf("%s:%d", head, port)
	}
	if ap, err := netip.ParseAddrPort(to); err == nil {
		return netip.AddrPortFrom(ap.Addr(), port).String()
	}
	if a, err := netip.ParseAddr(strings.Trim(to, "[]")); err == nil {
		return netip.AddrPortFrom(a, port).String()
	}
	return to
}

func (s *Step) flags(p *sim.Packet) (err error) {
	switch {
	case s.Flags == "":
		return nil
	case p.Proto == model.TCP:
		p.TCPFlags, err = packet.ParseFlags(s.Flags)
	case p.Proto == model.SCTP:
		p.Chunk, err = packet.ParseChunk(s.Flags)
	case p.IsICMP():
		err = p.SetEcho(s.Flags)
	default:
		err = fmt.Errorf("%s has none", p.Proto)
	}
	if err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	return nil
}

// isAnswer reports whether a packet's receiver does not answer it.
func isAnswer(p *sim.Packet) bool {
	switch p.Proto {
	case model.TCP:
		return p.TCPFlags&packet.RST != 0 || p.TCPFlags&packet.SYN != 0 && p.TCPFlags&packet.ACK != 0
	case model.SCTP:
		switch p.Chunk {
		case packet.Init, packet.Data, packet.Heartbeat, packet.Shutdown, packet.CookieEcho:
			return false
		}
		return true
	}
	return p.IsICMP() && !p.IsEchoRequest()
}

// duration parses After.
func (s *Step) duration() (time.Duration, error) {
	if s.After == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s.After)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("after: %q is not a positive duration: want one like 90s or 5m", s.After)
	}
	return d, nil
}
