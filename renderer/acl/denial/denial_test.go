package denial

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// clause returns a clause about TCP to the ports of a network; nil: all ports.
func clause(v match.Verb, dst string, text string, ports ...match.Span) *match.Clause {
	m := &match.Match{Proto: match.TCP, NotProto: -1, Dst: match.Side{Nets: []netip.Prefix{netip.MustParsePrefix(dst)}, Ports: ports}}
	return &match.Clause{Verb: v, Matches: []*match.Match{m}, Cause: &dataplane.Cause{Text: text}}
}

// TestFirstMatchDecides: a later denial does not have the ports that an earlier clause allows.
func TestFirstMatchDecides(t *testing.T) {
	here, there := netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.2.1")
	clauses := slices.Values([]*match.Clause{
		clause(match.Allow, "10.1.2.0/24", "web", match.Span{Lo: 80, Hi: 80}),
		clause(match.Deny, "10.9.0.0/16", "elsewhere"),
		clause(match.Deny, "10.1.0.0/16", "rest"),
	})
	got := Of(nil, clauses, here, there)
	size := 0
	for _, c := range got {
		size += c.Size()
		if c.Proto != match.TCP || c.Cause.Text != "rest" || c.Dport.Lo <= 80 && 80 <= c.Dport.Hi {
			t.Errorf("%+v", c)
		}
	}
	if size != 65536*65535 {
		t.Errorf("%d pairs of ports: %+v", size, got)
	}
}

// TestDeniedWholly: a port that is denied from some source ports only is not denied wholly.
func TestDeniedWholly(t *testing.T) {
	c := clause(match.Deny, "10.1.2.1/32", "low")
	c.Matches[0].Src.Ports = []match.Span{{Lo: 0, Hi: 1023}}
	s := NewSender(nil, slices.Values([]*match.Clause{c}), netip.Addr{})
	to := netip.MustParseAddrPort("10.1.2.1:80")
	if s.Denied(to, match.TCP, false) != c.Cause || s.Denied(to, match.TCP, true) != nil || s.Denied(to, match.UDP, false) != nil {
		t.Error("denied from some source ports alone is reported wrong")
	}
}

// TestSameBytes: the bytes of two rects are equal only if their packets are, whatever the causes.
func TestSameBytes(t *testing.T) {
	a := Rect{Proto: match.TCP, Sport: match.AllPorts, Dport: match.Span{Lo: 80, Hi: 80}}
	b, c := a, a
	b.Cause, c.Dport.Hi = &dataplane.Cause{Text: "other"}, 81
	if !slices.Equal(a.AppendTo(nil), b.AppendTo(nil)) || slices.Equal(a.AppendTo(nil), c.AppendTo(nil)) {
		t.Error("bytes differ from packets")
	}
}
