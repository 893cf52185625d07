package model

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// String is the rule in one line: "allow tcp from 10.0.0.0/8 not 10.1.0.0/16 to ports 80,8080-8090,http". A side that
// matches everything is left out; selectors are in braces. The text says what the rule does, not which object it comes
// from.
func (r *Rule) String() string {
	action := r.Action
	if action == "" {
		action = ActionAllow
	}
	parts := []string{string(action)}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if r.IPVersion != 0 {
		add("ipv%d", r.IPVersion)
	}
	if p := r.Protocol.String(); p != "" {
		add("%s", p)
	}
	if r.ICMP != nil {
		add("type %s", r.ICMP)
	}
	if p := r.NotProtocol.String(); p != "" {
		add("not %s", p)
	}
	if r.NotICMP != nil {
		add("not type %s", r.NotICMP)
	}
	if s := r.Source.peerText(); s != "" {
		add("from %s", s)
	}
	if s := r.Destination.peerText(); s != "" {
		add("to %s", s)
	}
	if r.HTTP != nil {
		add("http")
	}
	return strings.Join(parts, " ")
}

// String is the name, or the number, or "" for any protocol.
func (p RuleProtocol) String() string {
	if p.Name != "" || p.Number == 0 {
		return p.Name
	}
	return strconv.Itoa(int(p.Number))
}

// String is "8" or "8/0".
func (m *ICMPMatch) String() string {
	if m.HasCode {
		return fmt.Sprintf("%d/%d", m.Type, m.Code)
	}
	return strconv.Itoa(int(m.Type))
}

// String is a number, a range "80-90", or a name.
func (m PortMatch) String() string {
	switch {
	case m.Name != "":
		return m.Name
	case m.First == m.Last:
		return strconv.Itoa(int(m.First))
	}
	return fmt.Sprintf("%d-%d", m.First, m.Last)
}

func (p *Peer) peerText() string {
	var parts []string
	add := func(word, text string) {
		if text != "" {
			parts = append(parts, word+text)
		}
	}
	braced := func(s string) string {
		if s == "" {
			return ""
		}
		return "{" + s + "}"
	}
	add("", joined(p.Nets, netip.Prefix.String))
	add("not ", joined(p.NotNets, netip.Prefix.String))
	add("", braced(p.Selector))
	add("not ", braced(p.NotSelector))
	if p.Service.Name != "" {
		add("service ", p.Service.String())
	}
	add("ports ", joined(p.Ports, PortMatch.String))
	add("not ports ", joined(p.NotPorts, PortMatch.String))
	return strings.Join(parts, " ")
}

func joined[T any](list []T, text func(T) string) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = text(v)
	}
	return strings.Join(out, ",")
}
