package packet

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

const flagLetters = "FSRPAUEC" // bit 0 first

// String is one line, the inverse of Parse:
//
//	tcp 10.1.1.2:40000 -> 10.96.0.10:80 [S]
//	udp 10.1.1.2:40000 -> 10.96.0.10:53 ttl 5
//	sctp 10.1.1.2:40000 -> 10.96.0.10:80 [INIT]
//	icmp 10.1.1.2 -> 10.96.0.10 echo-request id 7
//	icmp 10.1.1.1 -> 10.1.1.2 type 3 code 1 about (udp 10.1.1.2:40000 -> 10.96.0.10:53)
//	icmpv6 2001:db8::2 -> 2001:db8::3 echo-request id 7
//	proto-47 10.1.1.2 -> 10.1.1.3
//	udp 10.1.1.2:40000 -> 10.96.0.10:53 fragment 7 offset 0 length 24 more
func (p Packet) String() string {
	s := p.Flow() + p.Fragment.label()
	if p.TTL != 0 {
		s += " ttl " + strconv.Itoa(int(p.TTL))
	}
	if p.Inner != nil {
		s += " about (" + p.Inner.String() + ")"
	}
	return s
}

// Flow is String without TTL and without the packet an ICMP error quotes.
func (p Packet) Flow() string {
	var b strings.Builder
	b.WriteString(strings.ToLower(p.Proto.String()))
	b.WriteByte(' ')
	if p.HasPorts() {
		b.WriteString(netip.AddrPortFrom(p.Src, p.SrcPort).String())
		b.WriteString(" -> ")
		b.WriteString(netip.AddrPortFrom(p.Dst, p.DstPort).String())
	} else {
		b.WriteString(p.Src.String())
		b.WriteString(" -> ")
		b.WriteString(p.Dst.String())
	}
	switch {
	case p.Proto == model.TCP:
		b.WriteString(" [" + FlagString(p.TCPFlags) + "]")
	case p.Proto == model.SCTP && p.Chunk != Data:
		b.WriteString(" [" + ChunkString(p.Chunk) + "]")
	case p.IsEcho() && p.ICMPCode == 0:
		name := " echo-request"
		if !p.IsEchoRequest() {
			name = " echo-reply"
		}
		fmt.Fprintf(&b, "%s id %d", name, p.ICMPID)
	case p.IsEcho():
		fmt.Fprintf(&b, " type %d code %d id %d", p.ICMPType, p.ICMPCode, p.ICMPID)
	case p.IsICMP():
		fmt.Fprintf(&b, " type %d code %d", p.ICMPType, p.ICMPCode)
	}
	return b.String()
}

// FlagString returns the letters of the set TCP flags, FIN first: "SA" is SYN+ACK; "-" none.
func FlagString(flags uint8) string {
	if flags == 0 {
		return "-"
	}
	var b strings.Builder
	for i := range len(flagLetters) {
		if flags&(1<<i) != 0 {
			b.WriteByte(flagLetters[i])
		}
	}
	return b.String()
}

// chunkNames are by chunk type.
func chunkNames() map[uint8]string {
	return map[uint8]string{
		Data: "DATA", Init: "INIT", InitAck: "INIT-ACK", Sack: "SACK", Heartbeat: "HEARTBEAT", HeartbeatAck: "HEARTBEAT-ACK", Abort: "ABORT",
		Shutdown: "SHUTDOWN", ShutdownAck: "SHUTDOWN-ACK", Error: "ERROR", CookieEcho: "COOKIE-ECHO", CookieAck: "COOKIE-ACK",
		ShutdownComplete: "SHUTDOWN-COMPLETE",
	}
}

// ChunkString returns the name of a chunk type of SCTP, or its number.
func ChunkString(chunk uint8) string {
	if name, ok := chunkNames()[chunk]; ok {
		return name
	}
	return strconv.Itoa(int(chunk))
}

// Parse is the inverse of String. TCP flags may be omitted (none set), and so may the chunk of SCTP (DATA).
func Parse(s string) (Packet, error) {
	head, inner, quoted := strings.Cut(s, " about (")
	p, err := parseOne(head)
	if err == nil && quoted {
		if !strings.HasSuffix(inner, ")") {
			err = fmt.Errorf("the quoted packet must end with )")
		} else {
			var in Packet
			in, err = parseOne(strings.TrimSuffix(inner, ")"))
			p.Inner = &in
		}
	}
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		return Packet{}, fmt.Errorf("packet %q: %w", s, err)
	}
	return p, nil
}

func parseOne(s string) (Packet, error) {
	words := strings.Fields(s)
	if len(words) < 4 || words[2] != "->" {
		return Packet{}, fmt.Errorf("must begin with <protocol> <source> -> <destination>")
	}
	proto, err := parseProtocol(words[0])
	if err != nil {
		return Packet{}, err
	}
	p := Packet{Proto: proto}
	if p.Src, p.SrcPort, err = parseEnd(words[1], p.HasPorts()); err != nil {
		return Packet{}, err
	}
	if p.Dst, p.DstPort, err = parseEnd(words[3], p.HasPorts()); err != nil {
		return Packet{}, err
	}
	return p, p.parseRest(words[4:])
}

func parseProtocol(s string) (model.Protocol, error) {
	if n, ok := strings.CutPrefix(s, "proto-"); ok {
		v, err := strconv.ParseUint(n, 10, 8)
		return model.Protocol(v), err
	}
	if s == "icmpv6" {
		return model.ICMPv6, nil
	}
	return model.ParseProtocol(strings.ToUpper(s))
}

func parseEnd(s string, port bool) (netip.Addr, uint16, error) {
	if !port {
		a, err := netip.ParseAddr(s)
		return a, 0, err
	}
	ap, err := netip.ParseAddrPort(s)
	return ap.Addr(), ap.Port(), err
}

// parseRest parses the words after the addresses: [flags], echo-request, echo-reply, and pairs of a name and a number.
func (p *Packet) parseRest(words []string) error {
	for len(words) > 0 {
		switch w := words[0]; {
		case strings.HasPrefix(w, "["):
			if err := p.parseBrackets(w); err != nil {
				return err
			}
			words = words[1:]
		case w == "echo-request" || w == "echo-reply":
			p.ICMPType = echoType(p.Proto, w == "echo-reply")
			words = words[1:]
		case w == "more":
			p.Fragment.More = true
			words = words[1:]
		case len(words) < 2:
			return fmt.Errorf("%q lacks a number", w)
		default:
			if err := p.setField(w, words[1]); err != nil {
				return err
			}
			words = words[2:]
		}
	}
	return nil
}

func echoType(proto model.Protocol, reply bool) uint8 {
	switch {
	case proto == model.ICMPv6 && reply:
		return EchoReply6
	case proto == model.ICMPv6:
		return EchoRequest6
	case reply:
		return EchoReply
	}
	return EchoRequest
}

// SetEcho turns an ICMP packet into the echo with the given name: echo-request or echo-reply.
func (p *Packet) SetEcho(name string) error {
	if name != "echo-request" && name != "echo-reply" {
		return fmt.Errorf("type %q: must be echo-request or echo-reply", name)
	}
	p.ICMPType = echoType(p.Proto, name == "echo-reply")
	return nil
}

// parseBrackets parses TCP flags, or the chunk of SCTP.
func (p *Packet) parseBrackets(w string) (err error) {
	if p.Proto == model.SCTP {
		p.Chunk, err = parseChunk(w)
	} else {
		p.TCPFlags, err = parseFlags(w)
	}
	return err
}

func parseChunk(w string) (uint8, error) {
	name, ok := strings.CutSuffix(w[1:], "]")
	if !ok {
		return 0, fmt.Errorf("chunk %q must end with ]", w)
	}
	return ParseChunk(name)
}

// ParseChunk parses the output of ChunkString.
func ParseChunk(name string) (uint8, error) {
	for chunk, n := range chunkNames() {
		if n == name {
			return chunk, nil
		}
	}
	n, err := strconv.ParseUint(name, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("chunk %q: must be a name like INIT, or a number up to 255", name)
	}
	return uint8(n), nil
}

func parseFlags(w string) (uint8, error) {
	letters, ok := strings.CutSuffix(w[1:], "]")
	if !ok {
		return 0, fmt.Errorf("flags %q must end with ]", w)
	}
	return ParseFlags(letters)
}

// ParseFlags parses the output of FlagString; letters may be in any order.
func ParseFlags(letters string) (uint8, error) {
	if letters == "-" {
		return 0, nil
	}
	var flags uint8
	for _, c := range letters {
		i := strings.IndexRune(flagLetters, c)
		if i < 0 {
			return 0, fmt.Errorf("flag %q: must be one of %s", c, flagLetters)
		}
		flags |= 1 << i
	}
	return flags, nil
}

func (p *Packet) setField(name, number string) error {
	bits := 16
	if name == "ttl" || name == "type" || name == "code" {
		bits = 8
	}
	v, err := strconv.ParseUint(number, 10, bits)
	if err != nil {
		return fmt.Errorf("%s %q: %w", name, number, err)
	}
	switch name {
	case "ttl":
		p.TTL = uint8(v)
	case "type":
		p.ICMPType = uint8(v)
	case "code":
		p.ICMPCode = uint8(v)
	case "id":
		p.ICMPID = uint16(v)
	case "fragment":
		p.Fragment.ID = uint16(v)
	case "offset":
		p.Fragment.Offset = uint16(v)
	case "length":
		p.Fragment.Length = uint16(v)
	default:
		return fmt.Errorf("unknown word %q", name)
	}
	return nil
}

// ErrorName names the type of an ICMP error that VPP sends, of ICMPv6 if is6.
func ErrorName(is6 bool, t, code uint8) string {
	switch {
	case !is6 && t == TimeExceeded, is6 && t == TimeExceeded6:
		return "time exceeded"
	case is6 && t == Unreachable6 && code == CodeNoRoute6:
		return "no route"
	case is6 && t == Unreachable6 && code == CodeAdminProhibited6:
		return "administratively prohibited"
	case !is6 && t == Unreachable && code == CodeHost:
		return "host unreachable"
	case !is6 && t == Unreachable && code == CodePort, is6 && t == Unreachable6 && code == CodePort6:
		return "port unreachable"
	case !is6 && t == Unreachable && code == CodeHostProhibited:
		return "host administratively prohibited"
	}
	return fmt.Sprintf("type %d code %d", t, code)
}
