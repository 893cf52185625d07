package acl

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

// exit has the packets that may not leave by an interface.
type exit struct {
	endpoint string
	steps    policy.Steps // the last decides everything
	uses     []table.Use  // the steps at the interface's output
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

// findExits finds the packets that host endpoints deny to leave, and marks the programs that must include those denials. It runs
// after endpoints are located.
func (r *Renderer) findExits() {
	if len(r.hosts)+len(r.exits) == 0 || !r.pods.Hosts && !r.pods.Book.Changed() {
		return
	}
	now := map[string]*exit{}
	for name, id := range r.hostsAt() {
		s := policy.SpecOf(true, r.hosts[id].GetEndpoint().GetForwardTiers(), nil)
		s.Forward = true
		if steps := r.pods.Flatten(&s); !steps.Opens() {
			now[name] = &exit{endpoint: id, steps: policy.Signed(steps, id)}
		}
	}
	if len(now)+len(r.exits) == 0 {
		return
	}
	old, wasNear, wasFar := r.exits, r.hostMatches[near], r.hostMatches[far]
	if r.exits = now; len(now) > 0 {
		r.findNear()
	}
	if wasNear == r.hostMatches[near] && wasFar == r.hostMatches[far] && sameExits(old, now) {
		r.exits = old
		return
	}
	for _, e := range now {
		r.exitUses(e)
	}
	for _, e := range old {
		r.leave(e)
	}
	for _, p := range r.pods.Programs {
		if p.Spec.Egress {
			r.pods.Stale[p] = struct{}{}
		}
	}
	r.pods.Leaving = true
}

func sameExits(a, b map[string]*exit) bool {
	for name, e := range a {
		if f := b[name]; f == nil || e.endpoint != f.endpoint || !slices.EqualFunc(e.steps, f.steps, policy.Step.Identical) {
			return false
		}
	}
	return len(a) == len(b)
}

// exitUses makes the segments of an exit for the output of its interface.
func (r *Renderer) exitUses(e *exit) {
	for i := range e.steps {
		s := &e.steps[i]
		c := &s.Clauses[len(s.Clauses)-1]
		if s.Lone() {
			e.uses = append(e.uses, table.Use{Seg: nil, Verb: c.Verb, Cause: c.Cause})
			continue
		}
		seg := r.pods.Segs.Take(s.Role, table.Scope{Egress: true}, s.Clauses)
		seg.Host = true
		e.uses = append(e.uses, table.Use{Seg: seg, Verb: c.Verb, Cause: nil})
	}
}

// leave releases the segments of an exit.
func (r *Renderer) leave(e *exit) {
	for _, u := range e.uses {
		if u.Seg != nil {
			r.pods.Segs.Drop(u.Seg)
		}
	}
}

// findNear computes the match of packets that do not leave by the uplink.
func (r *Renderer) findNear() {
	var here, there []netip.Prefix
	for _, n := range r.pods.Node.Near {
		here = append(here, n.Masked())
	}
	alone := func(a netip.Addr) {
		if !slices.ContainsFunc(here[:len(r.pods.Node.Near)], func(n netip.Prefix) bool { return n.Contains(a) }) {
			here = append(here, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	for _, i := range r.pods.Ifaces {
		for _, a := range i.Addrs {
			alone(a)
		}
	}
	for _, list := range [][]netip.Addr{r.pods.Node.Addrs, r.pods.Node.Hairpin} {
		for _, a := range list {
			alone(a)
		}
	}
	if r.pods.Node.Overlay != "" && r.pods.Node.Overlay != r.pods.Node.Uplink {
		for _, n := range r.pods.Node.Far {
			there = append(there, n.Masked())
		}
		if r.exits[r.pods.Node.Overlay] == nil {
			here = append(here, there...)
		}
	}
	for name, nets := range map[string][]netip.Prefix{near: here, far: there} {
		slices.SortFunc(nets, netset.Compare)
		r.hostMatch(name, match.Match{Proto: -1, Dst: match.Side{Nets: slices.Compact(append([]netip.Prefix{}, nets...))}})
	}
}

// behindExits returns a program of a local pod with the exits in front of it:
//
//	near: the pod's program │ far: the overlay's exit, and what that allows: the pod's program │ the uplink's exit likewise
func (r *Renderer) behindExits(own policy.Steps) policy.Steps {
	if len(r.exits) == 0 {
		return own
	}
	return policy.Unfold(r.inFront(own), r.pods.Node.ByteMatch6)
}

func (r *Renderer) inFront(own policy.Steps) policy.Steps {
	if own.Opens() {
		own = own[len(own)-1:]
	}
	uplink, overlay := r.exits[r.pods.Node.Uplink], r.exits[r.pods.Node.Overlay]
	var out []policy.Step
	if uplink != nil {
		for _, s := range own {
			out = append(out, s.And(r.hostMatches[near], near))
		}
	}
	if overlay != nil && r.pods.Node.Overlay != r.pods.Node.Uplink {
		for _, s := range overlay.steps {
			out = append(out, s.And(r.hostMatches[far], far).Before(own)...)
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

// exitPlaces returns the end of the output list of an interface with an exit, in at most the given number of tables, which is at least two.
func (r *Renderer) exitPlaces(name string, e *exit, most int) []lists.Place {
	out := lists.Places(e.uses, true)
	if len(out) <= most {
		return out
	}
	last := len(out) - 1 // the last step decides everything
	return []lists.Place{r.packs.Join(exitPack+table.NameOf(name), out[:last]), out[last]}
}

// leadingTable denies packets to Services at the node's addresses that lead out again, if the uplink's exit denies that: when they
// leave, they are masqueraded.
func (r *Renderer) leadingTable() *table.Table {
	t := &table.Table{Name: leading}
	e := r.exits[r.pods.Node.Uplink]
	if e == nil || r.pods.Node.Overlay == "" || r.pods.Node.Overlay == r.pods.Node.Uplink {
		return t // nothing is masqueraded
	}
	out := denial.NewSender(r.pods.Sets, e.steps.Each, netip.Addr{})
	for k := range r.pods.Node.Outer {
		o := &r.pods.Node.Outer[k]
		if r.pods.Node.View(match.FamilyOf(o.Addr)) != dataplane.PreDNAT {
			continue
		}
		for _, b := range o.Backends {
			to := netip.PrefixFrom(b.Addr(), b.Addr().BitLen())
			if match.Prefixes(r.hostMatches[near].Dst.Nets).Covers(to) || match.Prefixes(r.hostMatches[far].Dst.Nets).Covers(to) {
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
