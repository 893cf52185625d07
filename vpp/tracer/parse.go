package tracer

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Packet is the path of one traced packet.
type Packet struct{ Steps []Step }

// Step is what one graph node did.
type Step struct {
	Node string // "ip4-input"
	Text string // the node's first line
	// Interface is the interface that the node names, by VPP's index; 0: none.
	Interface uint32
	Sends     bool    // Interface is where the packet leaves
	Header    *Header // nil: the node shows none
	ACL       *ACL    // nil: no node of access lists
}

// Header is a packet's header. Ports are 0 if VPP does not show them.
type Header struct {
	Source, Destination         netip.Addr
	Protocol                    uint8
	SourcePort, DestinationPort uint16
	Identifier                  uint16 // of an echo
	TTL                         uint8
	Flags                       uint8 // of TCP
}

// ACL is the verdict of a node of access lists.
type ACL struct {
	Output  bool
	List    int // VPP's index of the list; -1: none
	Rule    int // -1: no rule matched
	Session bool
	Permit  bool
	Reflect bool   // the rule makes a session
	Seen    Header // the header that was evaluated
}

// Names of protocols in VPP's traces.
var protocols = map[string]uint8{"ICMP": 1, "TCP": 6, "UDP": 17, "ICMP6": 58, "SCTP": 132}

var (
	nodeLine  = regexp.MustCompile(`^\d+:\d\d:\d\d:\d{6}: (\S+)$`)
	ends      = regexp.MustCompile(`^\s*([A-Z][A-Z0-9_-]*): (\S+) -> (\S+)$`)
	life      = regexp.MustCompile(`^\s+tos .*(?:ttl|hop limit) (\d+)`)
	flags     = regexp.MustCompile(`^\s+flags 0x([0-9a-f]{2})\b`)
	echo      = regexp.MustCompile(`^\s*ICMP6? echo_re(?:quest|ply) .* id (\d+)`)
	swIfIndex = regexp.MustCompile(`\bsw[-_]if[-_]index (\d+)`)
	verdict   = regexp.MustCompile(`acl-plugin: lc_index: -?\d+, sw_if_index (\d+), next index \d+, action: (\d+), match: acl (-?\d+) rule (-?\d+) trace_bits ([0-9a-f]+)`)
	evaluated = regexp.MustCompile(`^\s+lc_index -?\d+ l3 ip[46] (\S+) -> (\S+) l4 .* proto (\d+) .* l4_flags 0x([0-9a-f]+) port (\d+) -> (\d+) tcp flags \((?:in)?valid\) ([0-9a-f]{2})`)
)

// sessionBit marks a packet of an access list's session (acl_plugin's trace_bits, VPP 24.06 to 26.06).
const sessionBit = 1 << 31

// reflects is the action of a rule that permits and makes a session.
const reflects = 2

// Parse reads the text of VPP's "show trace", of all threads. Lines that it does not know are left out.
func Parse(text string) []Packet {
	var out []Packet
	var step *Step
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \r\n")
		if number, ok := strings.CutPrefix(line, "Packet "); ok && isNumber(number) {
			out, step = append(out, Packet{}), nil
			continue
		}
		if strings.HasPrefix(line, "-------") {
			step = nil
			continue
		}
		if len(out) == 0 {
			continue
		}
		if m := nodeLine.FindStringSubmatch(line); m != nil {
			p := &out[len(out)-1]
			p.Steps = append(p.Steps, Step{Node: m[1]})
			step = &p.Steps[len(p.Steps)-1]
		} else if step != nil && line != "" {
			step.readLine(line)
		}
	}
	return out
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

// readLine reads a line of a node.
func (s *Step) readLine(line string) {
	if s.Text == "" {
		s.Text = strings.TrimSpace(line)
	}
	if m := verdict.FindStringSubmatch(line); m != nil {
		s.Interface = parse32(m[1], 10)
		action := parse32(m[2], 10)
		s.ACL = &ACL{
			Output: strings.HasPrefix(s.Node, "acl-plugin-out-"), List: parseIndex(m[3]), Rule: parseIndex(m[4]),
			Session: parse32(m[5], 16)&sessionBit != 0, Permit: action != 0, Reflect: action == reflects,
		}
		return
	}
	if m := evaluated.FindStringSubmatch(line); m != nil && s.ACL != nil {
		s.ACL.Seen = evaluatedHeader(m)
		return
	}
	if m := swIfIndex.FindStringSubmatch(strings.ReplaceAll(line, "tx_sw_if", "tx sw_if")); m != nil && s.Interface == 0 {
		s.Interface, s.Sends = parse32(m[1], 10), strings.Contains(line, "tx_sw_if_index")
	}
	s.readHeader(line)
}

// readHeader reads a line of a header: its ends, its ports, or a field of them.
func (s *Step) readHeader(line string) {
	if m := ends.FindStringSubmatch(line); m != nil {
		number, known := protocols[m[1]]
		src, errSrc := netip.ParseAddr(m[2])
		dst, errDst := netip.ParseAddr(m[3])
		switch {
		case known && errSrc == nil && errDst == nil && s.Header == nil:
			s.Header = &Header{Source: src, Destination: dst, Protocol: number}
		case known && s.Header != nil && s.Header.Protocol == number && isNumber(m[2]) && isNumber(m[3]):
			s.Header.SourcePort, s.Header.DestinationPort = parsePort(m[2]), parsePort(m[3])
		}
		return
	}
	if s.Header == nil {
		return
	}
	if m := life.FindStringSubmatch(line); m != nil {
		s.Header.TTL = parse8(m[1], 10)
	}
	if m := flags.FindStringSubmatch(line); m != nil && s.Header.Protocol == protocols["TCP"] {
		s.Header.Flags = parse8(m[1], 16)
	}
	if m := echo.FindStringSubmatch(line); m != nil {
		s.Header.Identifier = parsePort(m[1])
	}
}

// evaluatedHeader returns the header that an access list evaluated. For ICMP the ports are type and code.
func evaluatedHeader(m []string) Header {
	src, _ := netip.ParseAddr(m[1]) // the zero address if VPP writes another form
	dst, _ := netip.ParseAddr(m[2])
	return Header{
		Source: src, Destination: dst, Protocol: parse8(m[3], 10), SourcePort: parsePort(m[5]), DestinationPort: parsePort(m[6]), Flags: parse8(m[7], 16),
	}
}

// The numbers below come from regular expressions; one that is too large is 0.

func parse32(s string, base int) uint32 {
	n, err := strconv.ParseUint(s, base, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

func parse8(s string, base int) uint8 {
	n, err := strconv.ParseUint(s, base, 8)
	if err != nil {
		return 0
	}
	return uint8(n)
}

func parsePort(s string) uint16 {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

func parseIndex(s string) int {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return -1
	}
	return int(n)
}

// Opening is the header with which the packet came: that of the first node that shows one. Nil: no node does.
func (p *Packet) Opening() *Header {
	for i := range p.Steps {
		h := p.Steps[i].Header
		if h == nil {
			continue
		}
		if next := i + 1; h.SourcePort == 0 && next < len(p.Steps) && p.Steps[next].ACL != nil && p.Steps[next].ACL.Seen.Source == h.Source && !h.isICMP() {
			h.SourcePort, h.DestinationPort, h.Flags = p.Steps[next].ACL.Seen.SourcePort, p.Steps[next].ACL.Seen.DestinationPort, p.Steps[next].ACL.Seen.Flags
		}
		return h
	}
	return nil
}

func (h *Header) isICMP() bool {
	return h.Protocol == protocols["ICMP"] || h.Protocol == protocols["ICMP6"]
}

// Session reports whether the packet belongs to a session of an access list.
func (p *Packet) Session() bool {
	for _, s := range p.Steps {
		if s.ACL != nil && s.ACL.Session {
			return true
		}
	}
	return false
}

// Ended reports whether the trace has the end of the packet: it left VPP, was dropped, or was answered or taken by VPP or its host.
func (p *Packet) Ended() bool {
	for _, s := range p.Steps {
		switch {
		case strings.HasSuffix(s.Node, "-tx") && s.Node != "ip4-cnat-tx" && s.Node != "ip6-cnat-tx", s.Node == "drop", s.Node == "punt", s.Node == "ip4-local", s.Node == "ip6-local":
			return true
		}
	}
	return false
}
