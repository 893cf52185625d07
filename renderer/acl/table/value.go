package table

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
)

// The flags of TCP that show the beginning of a connection: SYN without ACK.
const (
	tcpSYN = 0x02
	tcpACK = 0x10
)

// wire has the rules of a table in VPP's form, at interfaces with these served ports. It is immutable.
type wire struct {
	served string
	rules  []*acl.ACL_Rule
	joined []match.Atom // the condensed table; the table's own rules if nothing was joined
	ends   []int32      // for each rule of the condensed table, the end of its rules in VPP
	from   []int32      // the rule of the table that each of the condensed ones begins with; nil: they are the table's own
}

// written returns the table at interfaces with these served ports; nil: not written yet.
func (t *Table) written(served string) *wire {
	for i := range t.wire {
		if t.wire[i].served == served {
			return &t.wire[i]
		}
	}
	return nil
}

// Value returns the table as a value for vppagent. Old is the table before; nil: none.
func (t *Table) Value(old *Table, served *law.Ports) *acl.ACL {
	w := t.written(served.Key())
	if w == nil {
		w = t.writeRules(old, served)
	}
	return &acl.ACL{Name: WireName(t.Name, served), Rules: w.rules}
}

// KeepWire takes what was written of a table with the same rules.
func (t *Table) KeepWire(old *Table) { t.wire = old.wire }

// RuleOf returns the table's rule that became the given rule of VPP's, at interfaces with these served ports.
func (t *Table) RuleOf(rule int, served *law.Ports) (int, bool) {
	if Lawless(t.Name) {
		served = nil
	}
	w := t.written(served.Key())
	if w == nil {
		w = t.writeRules(nil, served)
	}
	return w.tableRule(rule)
}

// writeRules writes the rules; rules that old has too keep their pointers.
func (t *Table) writeRules(old *Table, served *law.Ports) *wire {
	var before *wire
	start, end := 0, 0
	if old != nil {
		before = old.written(served.Key())
	}
	mine, from := match.Condenser{Egress: t.Egress, Join6: t.join6}.Condense(t.Rules, t.Causes)
	now := wire{served: served.Key(), joined: mine, ends: make([]int32, 0, len(mine)), from: from}
	if before != nil {
		start, end = Alike(before.joined, mine)
		now.ends = append(now.ends, before.ends[:start]...)
		now.rules = append(now.rules, before.rules[:before.end(start)]...)
	}
	by := t.lawOf(served).Writer()
	now.appendMiddle(before, start, mine[start:len(mine)-end], end, &by)
	if end > 0 {
		from := before.end(len(before.ends) - end)
		shift := int32(len(now.rules) - from)
		for _, e := range before.ends[len(before.ends)-end:] {
			now.ends = append(now.ends, e+shift)
		}
		now.rules = append(now.rules, before.rules[from:]...)
	}
	t.wire = append(t.wire, now)
	return &t.wire[len(t.wire)-1]
}

// appendMiddle appends the rules of middle. Before has start rules before these, and end after them.
func (w *wire) appendMiddle(before *wire, start int, middle []match.Atom, end int, by *law.Writer) {
	var known []int32
	if before != nil {
		known = common(before.joined[start:len(before.joined)-end], middle)
	}
	var atoms []match.Atom
	ends := make([]int, len(middle)) // in atoms
	for i, a := range middle {
		if known == nil || known[i] < 0 {
			atoms = by.AppendTo(atoms, a)
		}
		ends[i] = len(atoms)
	}
	rendered := make([]*acl.ACL_Rule, len(atoms))
	render(rendered, atoms)
	from := 0
	for i := range middle {
		if known == nil || known[i] < 0 {
			w.rules = append(w.rules, rendered[from:ends[i]]...)
		} else {
			at := start + int(known[i])
			w.rules = append(w.rules, before.rules[before.end(at):before.end(at+1)]...)
		}
		from = ends[i]
		w.ends = append(w.ends, int32(len(w.rules)))
	}
}

// common returns for each rule of now the index of the same rule in was, in ascending order; -1: it is new. It does not look far, so
// that after many removed rules all others may count as new.
func common(was, now []match.Atom) []int32 {
	const far = 16
	out, next := make([]int32, len(now)), 0
	for i := range now {
		out[i] = -1
		for k := next; k < min(next+far, len(was)); k++ {
			if was[k] == now[i] {
				out[i], next = int32(k), k+1
				break
			}
		}
	}
	return out
}

// end returns the end of the VPP rules of the first n table rules.
func (w *wire) end(n int) int {
	if n == 0 {
		return 0
	}
	return int(w.ends[n-1])
}

// tableRule returns the index of the table rule that became the given rule of VPP's.
func (w *wire) tableRule(rule int) (int, bool) {
	if rule < 0 || rule >= len(w.rules) {
		return 0, false
	}
	i, _ := slices.BinarySearch(w.ends, int32(rule+1))
	if w.from != nil {
		i = int(w.from[i])
	}
	return i, true
}

// render writes rules. One allocation has the memory of all.
func render(out []*acl.ACL_Rule, atoms []match.Atom) {
	n := len(atoms)
	rules, ips, ranges := make([]ruleValue, n), make([]acl.ACL_Rule_IpRule_Ip, n), make([]acl.ACL_Rule_IpRule_PortRange, 2*n)
	cache := map[netip.Prefix]string{}
	for i := range atoms {
		a, v := &atoms[i], &rules[i]
		ips[i].SourceNetwork, ips[i].DestinationNetwork = text(cache, a.Src), text(cache, a.Dst)
		v.ip.Ip = &ips[i]
		switch a.Proto {
		case match.ICMP, match.ICMP6:
			v.icmp(a)
		case match.TCP:
			src, dst := rangesOf(a, ranges[2*i:2*i+2])
			v.ip.Tcp = &acl.ACL_Rule_IpRule_Tcp{SourcePortRange: src, DestinationPortRange: dst}
			if a.SYN {
				v.ip.Tcp.TcpFlagsMask, v.ip.Tcp.TcpFlagsValue = tcpSYN|tcpACK, tcpSYN
			}
		case match.UDP:
			src, dst := rangesOf(a, ranges[2*i:2*i+2])
			v.ip.Udp = &acl.ACL_Rule_IpRule_Udp{SourcePortRange: src, DestinationPortRange: dst}
		default:
			ips[i].Protocol = uint32(a.Proto)
		}
		v.rule.Action, v.rule.IpRule = actionOf(a.Verb), &v.ip
		out[i] = &v.rule
	}
}

type ruleValue struct {
	rule acl.ACL_Rule
	ip   acl.ACL_Rule_IpRule
}

func text(cache map[netip.Prefix]string, p netip.Prefix) string {
	s, ok := cache[p]
	if !ok {
		s = p.String()
		cache[p] = s
	}
	return s
}

func rangesOf(a *match.Atom, r []acl.ACL_Rule_IpRule_PortRange) (src, dst *acl.ACL_Rule_IpRule_PortRange) {
	r[0].LowerPort, r[0].UpperPort = uint32(a.SrcPorts.Lo), uint32(a.SrcPorts.Hi)
	r[1].LowerPort, r[1].UpperPort = uint32(a.DstPorts.Lo), uint32(a.DstPorts.Hi)
	return &r[0], &r[1]
}

// icmp writes types and codes. The other family's ICMP is an ordinary protocol.
func (v *ruleValue) icmp(a *match.Atom) {
	if match.FamilyOf(a.Src.Addr()).ICMP() != a.Proto {
		v.ip.Ip.Protocol = uint32(a.Proto)
		return
	}
	v.ip.Icmp = &acl.ACL_Rule_IpRule_Icmp{
		Icmpv6:        a.Proto == match.ICMP6,
		IcmpTypeRange: &acl.ACL_Rule_IpRule_Icmp_Range{First: uint32(a.SrcPorts.Lo), Last: uint32(min(a.SrcPorts.Hi, 255))},
		IcmpCodeRange: &acl.ACL_Rule_IpRule_Icmp_Range{First: uint32(a.DstPorts.Lo), Last: uint32(min(a.DstPorts.Hi, 255))},
	}
}

func actionOf(v match.Verb) acl.ACL_Rule_Action {
	switch v {
	case match.Allow, match.Reflect:
		return acl.ACL_Rule_REFLECT
	case match.Admit:
		return acl.ACL_Rule_PERMIT
	}
	return acl.ACL_Rule_DENY
}

// lawOf returns the law of a table at an interface with these served ports.
func (t *Table) lawOf(served *law.Ports) law.Law {
	return law.Law{Egress: t.Egress, Served: served}
}
