package host

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/denial"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// The rules of a host endpoint for packets that the node forwards by its interface are evaluated in two places:
//
//	from a local pod ─▶ the pod's input: in front of its own program, for what is neither near nor far
//	from elsewhere ───▶ output of uplink or overlay
//
// The output of the uplink alone would not suffice: there, masqueraded packets have the node's address and look like packets of
// the node itself, which are evaluated where they enter.

// Exit has the packets that may not leave by an interface.
type Exit struct {
	Endpoint string
	steps    policy.Steps // the last decides everything
	Uses     []table.Use  // the steps at the interface's output
}

// Names of the matches that exits depend on.
const (
	near = "near" // local pods, the node itself, and addresses behind an overlay without a separate exit
	far  = "far"  // what is behind the overlay
)

// Names of the tables of exits, beside those of segments.
const (
	leading  = "leading" // Services that lead out again
	exitPack = "exit-"
)

// FindExits finds the packets that host endpoints deny to leave, and marks the programs that must include those denials. It runs
// after endpoints are located.
func (g *Endpoints) FindExits() {
	if len(g.all)+len(g.exits) == 0 || !g.pods.Hosts && !g.pods.Book.Changed() {
		return
	}
	now := map[string]*Exit{}
	for name, id := range g.hostsAt() {
		s := policy.SpecOf(true, g.all[id].GetEndpoint().GetForwardTiers(), nil)
		s.Forward = true
		if steps := g.pods.Flatten(&s); !steps.Opens() {
			now[name] = &Exit{Endpoint: id, steps: policy.Signed(steps, id)}
		}
	}
	if len(now)+len(g.exits) == 0 {
		return
	}
	old, wasNear, wasFar := g.exits, g.matches[near], g.matches[far]
	if g.exits = now; len(now) > 0 {
		g.findNear()
	}
	if wasNear == g.matches[near] && wasFar == g.matches[far] && sameExits(old, now) {
		g.exits = old
		return
	}
	for _, e := range now {
		g.exitUses(e)
	}
	for _, e := range old {
		g.dropExit(e)
	}
	for _, p := range g.pods.Programs {
		if p.Spec.Egress {
			g.pods.Stale[p] = struct{}{}
		}
	}
	g.pods.Leaving = true
}

func sameExits(a, b map[string]*Exit) bool {
	for name, e := range a {
		if f := b[name]; f == nil || e.Endpoint != f.Endpoint || !slices.EqualFunc(e.steps, f.steps, policy.Step.Identical) {
			return false
		}
	}
	return len(a) == len(b)
}

// exitUses makes the segments of an exit for the output of its interface.
func (g *Endpoints) exitUses(e *Exit) {
	for i := range e.steps {
		s := &e.steps[i]
		c := &s.Clauses[len(s.Clauses)-1]
		if s.Lone() {
			e.Uses = append(e.Uses, table.Use{Seg: nil, Verb: c.Verb, Cause: c.Cause})
			continue
		}
		seg := g.pods.Segs.Take(s.Role, table.Scope{Egress: true}, s.Clauses)
		seg.Host = true
		e.Uses = append(e.Uses, table.Use{Seg: seg, Verb: c.Verb, Cause: nil})
	}
}

// dropExit releases the segments of an exit.
func (g *Endpoints) dropExit(e *Exit) {
	for _, u := range e.Uses {
		if u.Seg != nil {
			g.pods.Segs.Drop(u.Seg)
		}
	}
}

// findNear computes the match of packets that do not leave by the uplink.
func (g *Endpoints) findNear() {
	var here, there []netip.Prefix
	for _, n := range g.pods.Node.Near {
		here = append(here, n.Masked())
	}
	alone := func(a netip.Addr) {
		if !slices.ContainsFunc(here[:len(g.pods.Node.Near)], func(n netip.Prefix) bool { return n.Contains(a) }) {
			here = append(here, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	for _, i := range g.pods.Ifaces {
		for _, a := range i.Addrs {
			alone(a)
		}
	}
	for _, list := range [][]netip.Addr{g.pods.Node.Addrs, g.pods.Node.Hairpin} {
		for _, a := range list {
			alone(a)
		}
	}
	if g.pods.Node.Overlay != "" && g.pods.Node.Overlay != g.pods.Node.Uplink {
		for _, n := range g.pods.Node.Far {
			there = append(there, n.Masked())
		}
		if g.exits[g.pods.Node.Overlay] == nil {
			here = append(here, there...)
		}
	}
	for name, nets := range map[string][]netip.Prefix{near: here, far: there} {
		slices.SortFunc(nets, netset.Compare)
		g.matches.keepMatch(name, match.Match{Proto: -1, Dst: match.Side{Nets: slices.Compact(append([]netip.Prefix{}, nets...))}})
	}
}

// BehindExits returns a program of a local pod with the exits in front of it:
//
//	near: the pod's program │ far: the overlay's exit, and what that allows: the pod's program │ the uplink's exit likewise
func (g *Endpoints) BehindExits(own policy.Steps) policy.Steps {
	if len(g.exits) == 0 {
		return own
	}
	return policy.Unfold(g.inFront(own), g.pods.Node.ByteMatch6)
}

func (g *Endpoints) inFront(own policy.Steps) policy.Steps {
	if own.Opens() {
		own = own[len(own)-1:]
	}
	uplink, overlay := g.exits[g.pods.Node.Uplink], g.exits[g.pods.Node.Overlay]
	var out []policy.Step
	if uplink != nil {
		for _, s := range own {
			out = append(out, s.And(g.matches[near], near))
		}
	}
	if overlay != nil && g.pods.Node.Overlay != g.pods.Node.Uplink {
		for _, s := range overlay.steps {
			out = append(out, s.And(g.matches[far], far).Before(own)...)
		}
	}
	if uplink == nil {
		return append(out, own...)
	}
	for i := range uplink.steps {
		s := &uplink.steps[i]
		switch {
		case s.Lone() && s.Clauses[0].Verb == match.Allow:
			return append(out, own...)
		default:
			out = append(out, s.Before(own)...)
		}
	}
	return out
}

// ExitPlaces returns the end of the output list of an interface with an exit, in at most the given number of tables, which is at least two.
func (g *Endpoints) ExitPlaces(name string, e *Exit, most int) []lists.Place {
	out := lists.Places(e.Uses, true)
	if len(out) <= most {
		return out
	}
	last := len(out) - 1 // the last step decides everything
	return []lists.Place{g.packs.Join(exitPack+table.NameOf(name), out[:last]), out[last]}
}

// leadingTable denies packets to Services at the node's addresses that lead out again, if the uplink's exit denies that: when they
// leave, they are masqueraded.
func (g *Endpoints) leadingTable() *table.Table {
	t := &table.Table{Name: leading}
	e := g.exits[g.pods.Node.Uplink]
	if e == nil || g.pods.Node.Overlay == "" || g.pods.Node.Overlay == g.pods.Node.Uplink {
		return t // nothing is masqueraded
	}
	out := denial.NewSender(g.pods.Sets, e.steps.Each, netip.Addr{})
	for k := range g.pods.Node.Outer {
		o := &g.pods.Node.Outer[k]
		if g.pods.Node.View(match.FamilyOf(o.Addr)) != dataplane.PreDNAT {
			continue
		}
		for _, b := range o.Backends {
			to := netip.PrefixFrom(b.Addr(), b.Addr().BitLen())
			if match.Prefixes(g.matches[near].Dst.Nets).Covers(to) || match.Prefixes(g.matches[far].Dst.Nets).Covers(to) {
				continue
			}
			if c := out.Denied(b, o.Proto, false); c != nil {
				t.Add(node.OuterAtom(o, match.Deny, match.FamilyOf(o.Addr).All()), c)
				break
			}
		}
	}
	return t
}
