package mutation

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// corners are values of fields at which some rule begins or ends to match, and the rules that a mutation touched.
type corners struct {
	four, six []netip.Addr
	pods      []netip.Addr
	protocols []uint8
	ports     []uint16
	touched   []space.Rule
}

func (l *Lab) corners(after *dump.State) *corners {
	c := &corners{protocols: []uint8{space.TCP, space.TCP, space.UDP, space.ICMP, space.ICMPv6, 47}, ports: []uint16{1, 8, 80, 128, 40000}}
	c.four = []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("0.0.0.1"), netip.MustParseAddr("255.255.255.254")}
	c.six = []netip.Addr{netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("::1")}
	for _, p := range l.cluster.Pods {
		c.pods = append(c.pods, p.IPs...)
	}
	c.touched = append(touched(l.before, after), touched(after, l.before)...)
	for i := range c.touched {
		r := &c.touched[i]
		for _, p := range []netip.Prefix{r.Src, r.Dst} {
			a := p.Masked().Addr()
			for _, a := range []netip.Addr{a, a.Prev(), a.Next()} {
				switch {
				case a.Is4():
					c.four = append(c.four, a)
				case a.Is6():
					c.six = append(c.six, a)
				}
			}
		}
		for _, s := range []space.Span{r.SrcPorts, r.DstPorts} {
			c.ports = append(c.ports, s.First, s.First-1, s.Last, s.Last+1)
		}
	}
	c.four, c.six, c.ports = unique(c.four, netip.Addr.Compare), unique(c.six, netip.Addr.Compare), unique(c.ports, func(a, b uint16) int { return int(a) - int(b) })
	return c
}

// touched is the rules of lists that the other state has not, or has elsewhere.
func touched(s, other *dump.State) (rules []space.Rule) {
	add := func(index uint32) {
		rules = append(rules, s.Lists[index].Space...)
	}
	for index, list := range s.Lists {
		for i, r := range list.Space {
			if theirs := other.Lists[index].Space; i >= len(theirs) || theirs[i] != r {
				rules = append(rules, r)
			}
		}
	}
	for index, i := range s.Interfaces {
		j := other.Interfaces[index]
		for _, pair := range [][2][]uint32{{i.Input, j.Input}, {i.Output, j.Output}} {
			for k, list := range pair[0] {
				if k >= len(pair[1]) || pair[1][k] != list {
					add(list)
				}
			}
		}
	}
	return rules
}

func unique[T comparable](list []T, compare func(a, b T) int) []T {
	slices.SortFunc(list, compare)
	return slices.Compact(list)
}

func drawFrom[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// header is a header that a touched rule matches in most fields.
func (c *corners) header(r *rand.Rand) space.Header {
	rule := space.Rule{Box: space.All4()}
	if r.IntN(3) == 0 {
		rule.Box = space.All6()
	}
	if len(c.touched) > 0 && r.IntN(8) > 0 {
		rule = drawFrom(r, c.touched)
	}
	six := rule.Src.Addr().Is6()
	addr := func(p netip.Prefix) netip.Addr {
		for range 12 {
			a := drawFrom(r, c.pods)
			switch r.IntN(4) {
			case 0:
				a = p.Masked().Addr()
			case 1:
				if a = drawFrom(r, c.four); six {
					a = drawFrom(r, c.six)
				}
			}
			if a.Is6() == six && (p.Contains(a) || r.IntN(10) == 0) {
				return a
			}
		}
		return p.Masked().Addr()
	}
	port := func(s space.Span) uint16 {
		for range 12 {
			if v := drawFrom(r, c.ports); s.First <= v && v <= s.Last || r.IntN(10) == 0 {
				return v
			}
		}
		return s.First
	}
	h := space.Header{Src: addr(rule.Src), Dst: addr(rule.Dst), Protocol: drawFrom(r, c.protocols), SrcPort: port(rule.SrcPorts), DstPort: port(rule.DstPorts)}
	if rule.Protocols.First == rule.Protocols.Last && r.IntN(10) > 0 {
		h.Protocol = uint8(rule.Protocols.First)
	}
	switch h.Protocol {
	case space.TCP:
		h.Flags = drawFrom(r, []uint8{space.SYN, space.SYN, space.ACK, space.SYN | space.ACK, space.RST})
	case space.ICMP, space.ICMPv6:
		h.SrcPort, h.DstPort = h.SrcPort%256, h.DstPort%256
	case space.UDP:
	default:
		h.SrcPort, h.DstPort = 0, 0
	}
	return h
}

// compared restates docs/verify.md: the packets that a check compares.
func (l *Lab) compared(h space.Header) bool {
	if h.Protocol == 0 || h.Protocol == space.SCTP || h.Protocol == 136 {
		return false
	}
	if h.Protocol == space.ICMP && h.Src.Is6() || h.Protocol == space.ICMPv6 && h.Src.Is4() || h.Src == h.Dst {
		return false
	}
	special := func(a netip.Addr) bool {
		if a.IsLinkLocalUnicast() || a.IsUnspecified() || slices.Contains(l.before.Pool, a) {
			return true
		}
		for _, n := range l.cluster.Nodes {
			if slices.Contains(n.Addrs(), a) {
				return true
			}
		}
		for _, s := range l.cluster.Services {
			if slices.Contains(s.ClusterIPs, a) || slices.Contains(s.ExternalIPs, a) {
				return true
			}
			for _, b := range s.LoadBalancerIPs {
				if b.Addr == a {
					return true
				}
			}
		}
		return slices.ContainsFunc(l.cluster.Ranges, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	if from := l.podOf(h.Src); from != nil && l.podOf(h.Dst) == nil && slices.Contains(l.unknown, from.ID.String()+" egress") {
		return false
	}
	return !special(h.Src) && !special(h.Dst)
}

func (l *Lab) podOf(a netip.Addr) *meaning.Pod {
	for _, p := range l.cluster.Pods {
		if p.NodeName == l.cfg.Node && slices.Contains(p.IPs, a) {
			return p
		}
	}
	return nil
}

// walk is the fate of a packet that the owner of its source sends, and of its answer: first the input of a local sender, then the output of a
// local receiver.
func (l *Lab) walk(s *dump.State, h space.Header) string {
	from, to := l.podOf(h.Src), l.podOf(h.Dst)
	fate := "passed"
	for _, hook := range []struct {
		pod   *meaning.Pod
		input bool
	}{{from, true}, {to, false}} {
		if hook.pod == nil {
			continue
		}
		switch l.linear(s, hook.pod, hook.input, h) {
		case dump.Deny:
			return "dropped"
		case dump.Permit:
			begins := h.Protocol == space.TCP && h.Flags == space.SYN
			answer := space.Header{Src: h.Dst, Dst: h.Src, Protocol: h.Protocol, SrcPort: h.DstPort, DstPort: h.SrcPort, Flags: space.SYN | space.ACK}
			if begins && l.linear(s, hook.pod, !hook.input, answer) == dump.Deny {
				fate = "passed without answer"
			}
		}
	}
	return fate
}

// linear is the verdict of an interface's lists.
func (l *Lab) linear(s *dump.State, p *meaning.Pod, input bool, h space.Header) uint8 {
	i := s.Interfaces[s.Behind[p.IPs[0]]]
	vector := i.Output
	if input {
		vector = i.Input
	}
	for _, index := range vector {
		for k := range s.Lists[index].Space {
			if r := &s.Lists[index].Space[k]; r.Contains(h) {
				return r.Verdict
			}
		}
	}
	if len(vector) == 0 {
		return dump.Permit
	}
	return dump.Deny
}
