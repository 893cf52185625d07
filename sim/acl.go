package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/sim/acl"
	"github.com/contiv-agent/contiv-agent/sim/hop"
)

// ACLMatch is the result of an interface's ACL node for a packet.
type ACLMatch = hop.ACLMatch

// The nodes of the ACL plugin.
const (
	aclInput4  = "acl-plugin-in-ip4-fa"
	aclOutput4 = "acl-plugin-out-ip4-fa"
	aclInput6  = "acl-plugin-in-ip6-fa"
	aclOutput6 = "acl-plugin-out-ip6-fa"
)

// bootACL returns an ACL plugin without ACLs.
func (v *VPP) bootACL() {
	v.acl = acl.New(acl.Config{
		Now:         func() time.Duration { return v.now.Sub(v.booted) },
		Reclassify:  !v.cfg.NoReclassify,
		PrefixBug:   v.cfg.older(25, 6),
		MaxSessions: v.cfg.ACLSessions,
		Threads:     uint32(1 + v.cfg.Workers),
	})
}

// older compares Version with a release. A version in another format than 24.06 counts as new.
func (c *Config) older(year, month int) bool {
	var y, m int
	if n, _ := fmt.Sscanf(c.Version, "%d.%d", &y, &m); n != 2 {
		return false
	}
	return y < year || y == year && m < month
}

func addACL(a *arcs, v *VPP) {
	in := func(node string) func(*flow) bool { return func(f *flow) bool { return f.checkACL(node, f.rx, true) } }
	out := func(node string) func(*flow) bool { return func(f *flow) bool { return f.checkACL(node, f.tx, false) } }
	a.addFeature(ip4Unicast, feature{name: aclInput4, on: v.acl.OnInput, run: in(aclInput4)})
	a.addFeature(ip4Output, feature{name: aclOutput4, on: v.acl.OnOutput, run: out(aclOutput4)})
	a.addFeature(ip6Unicast, feature{name: aclInput6, on: v.acl.OnInput, run: in(aclInput6)})
	a.addFeature(ip6Output, feature{name: aclOutput6, on: v.acl.OnOutput, run: out(aclOutput6)})
}

// bridged is the layer 2 input of a BVI, which gets what leaves by it: VPP has an interface's input list there, too.
func (f *flow) bridged() bool {
	return !f.v.acl.OnInput(f.tx) || f.checkACL(fmt.Sprintf("acl-plugin-in-ip%d-l2", version(f.p.Dst)), f.tx, true)
}

// checkACL is an ACL node.
func (f *flow) checkACL(node string, swIf uint32, in bool) bool {
	r := f.v.acl.Check(&f.p, swIf, in)
	m := &ACLMatch{
		Interface: f.v.ifs.name(swIf), Output: r.Output, Place: r.Place, Tag: r.Tag, Rule: r.Rule, Session: r.Session, Permit: r.Pass,
	}
	if r.Pass {
		f.hop(node, "%s", r)
	} else {
		f.drop(node, "%s", r)
	}
	if n := len(f.fate.Hops); n > 0 {
		f.fate.Hops[n-1].ACL = m
	}
	return r.Pass
}

// ACLSessions returns the flows that permit+reflect rules let pass, one line each, sorted.
func (v *VPP) ACLSessions() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []string
	for _, s := range v.acl.Sessions() {
		dir := "output"
		if s.Input {
			dir = "input"
		}
		out = append(out, fmt.Sprintf("%s %s %s by acl %d (%s) rule %d", v.ifs.name(s.SwIf), dir, s.Flow, s.Match.Place, s.Match.Tag, s.Match.Rule))
	}
	slices.Sort(out)
	return out
}

// ACLHits returns, for each rule of the ACLs with a tag, the packets it evaluated since it was last replaced, in the order in which
// the ACLs were made; nil unless acl_stats_intf_counters_enable is on. No rule evaluates packets of established flows.
func (v *VPP) ACLHits(tag string) []uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []uint64
	for _, a := range v.acl.ACLs(acl.None) {
		if a.Tag == tag {
			out = append(out, v.acl.Hits(a.Index)...)
		}
	}
	return out
}

// ACLMatches returns the packets that each rule of the ACL with that acl_index evaluated, as ACLHits does.
func (v *VPP) ACLMatches(index uint32) []uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.acl.Hits(index)
}

// dumpACL is the ACL plugin's part of Dump: ACLs by tag, lists by interface.
func (v *VPP) dumpACL(b *strings.Builder) {
	acls := v.acl.ACLs(acl.None)
	var texts []string
	for _, a := range acls {
		texts = append(texts, a.Text())
	}
	slices.Sort(texts)
	b.WriteString(strings.Join(texts, ""))
	v.dumpACLLists(b)
	texts = texts[:0]
	for _, m := range v.acl.MACIPs(acl.None) {
		texts = append(texts, m.Text())
	}
	slices.Sort(texts)
	b.WriteString(strings.Join(texts, ""))
	for swIf, i := range v.acl.MACIPInterfaces() {
		if m := v.acl.MACIPs(i); i != acl.None && len(m) == 1 {
			fmt.Fprintf(b, "macip-acl-on %s %q\n", v.ifs.name(uint32(swIf)), m[0].Tag)
		}
	}
}

func (v *VPP) dumpACLLists(b *strings.Builder) {
	for _, f := range v.ifs.sorted() {
		list, n := v.acl.List(f.index)
		for i, part := range [][]uint32{list[:n], list[n:]} {
			if len(part) == 0 {
				continue
			}
			fmt.Fprintf(b, "acl-list %s %s", f.name, []string{"input", "output"}[i])
			for _, a := range part {
				fmt.Fprintf(b, " %q", v.acl.Tag(a))
			}
			b.WriteByte('\n')
		}
		if etypes, n := v.acl.Etypes(f.index); len(etypes) > 0 {
			fmt.Fprintf(b, "acl-etypes %s input %04x output %04x\n", f.name, etypes[:n], etypes[n:])
		}
	}
}

// setACLPlugin executes `set acl-plugin`, as far as it concerns packets; false: not understood.
func (v *VPP) setACLPlugin(words []string) bool {
	var n uint32
	number := func() bool {
		_, err := fmt.Sscanf(words[len(words)-1], "%d", &n)
		return err == nil
	}
	if len(words) < 2 || !number() {
		return false
	}
	t := v.acl.Timeouts()
	switch strings.Join(words[:len(words)-1], " ") {
	case "reclassify-sessions":
		v.acl.SetReclassify(n != 0)
	case "use-hash-acl-matching":
		v.acl.SetHashLookup(n != 0)
	case "session table max-entries":
		v.acl.SetMaxSessions(n)
	case "session timeout udp idle":
		t.UDPIdle = n
	case "session timeout tcp idle":
		t.TCPIdle = n
	case "session timeout tcp transient":
		t.TCPTransient = n
	default:
		return false
	}
	v.acl.SetTimeouts(t)
	return true
}

func (v *VPP) showACLSessions(place uint64) string {
	var list []uint32
	for _, f := range v.ifs.all() {
		list = append(list, f.index)
	}
	return acl.ShowSessions(v.acl, list, place)
}

func (v *VPP) showACLs() string { return acl.ShowACLs(v.acl) }

// tagsOf returns the tags of the ACLs of a message, in its order.
func (v *VPP) tagsOf(list []uint32) map[uint32]string {
	tags := map[uint32]string{}
	for _, i := range list {
		tags[i] = cmp.Or(v.acl.Tag(i), fmt.Sprintf("unknown:%d", i))
	}
	return tags
}
