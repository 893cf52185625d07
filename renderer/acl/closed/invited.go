package closed

import (
	"cmp"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/group"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// A sender that is not a local pod is evaluated where its packets to closed pods enter: at the input of the uplink and the overlay. Its address
// may be any, so whole programs decide, as one list:
//
//	ingress of the closed pods ─┬─ allow ─▶ pass
//	                            └─ deny ──▶ their egress, with source and destination exchanged ─┬─ allow ─▶ pass
//	                                                                                            └─ deny ──▶ drop (TCP, UDP)
//
// Each rule names the closed pods' addresses, except the allowing rules of the last program in the list: other packets may pass anyway.
//
// Packets to high ports that a pod is known to serve reflect there (servedHigh). So invitations to such ports alone are first, under the law of
// these pods: all that they permit reflects, and hides nothing.

// invitation is the program for closed pods where packets enter from senders that are no local pods.
type invitation struct {
	*closedPods
	served *law.Ports     // nil: for all ports; else for the high ones of these alone
	addrs  []netip.Addr   // of those that serve these ports; sorted
	to     []*match.Match // packets to addrs: all, or those of TCP and of UDP to the served ports
	weight int            // estimated number of rules for one address, as a power of two
	last   bool
	moved  bool             // it became the last, or is no longer
	segs   []*table.Segment // nil: none is needed, or too big
	own    []*table.Segment // those of segs that the closed pods' own lists have not
	big    bool             // it would name too many addresses
	over   bool             // it is left out, and has no segments
	stale  bool
}

type invitationKey struct {
	in, out *endpoint.Program
	served  string
}

// invitations are the programs for all closed pods.
type invitations struct {
	of       map[invitationKey]*invitation
	tcp, udp *match.Match
	four     *match.Match // IPv4
}

func newInvitations() invitations {
	only := func(m match.Match) *match.Match {
		m.NotProto = -1
		return &m
	}
	return invitations{
		of: map[invitationKey]*invitation{}, tcp: only(match.Match{Proto: match.TCP}), udp: only(match.Match{Proto: match.UDP}),
		four: only(match.Match{Proto: -1, Version: felix.IPVersion_IPV4}),
	}
}

// MostInvited bounds the rules of all invitations that name addresses. Invitations beyond it are left out: those closed pods' own lists decide alone.
const MostInvited = 1 << 15

// invite updates the invitations. Closed pods are known.
func (g *Refuser) invite() {
	now := map[invitationKey][]netip.Addr{}
	served := map[string]*law.Ports{}
	for _, i := range g.pods.Ifaces {
		if g.closed[i.Progs] == nil {
			continue
		}
		for _, p := range []*law.Ports{nil, i.Served} {
			key := invitationKey{i.Progs[0], i.Progs[1], p.Key()}
			served[key.served] = p
			if list := g.pods.Node.Early(now[key], i.Addrs); len(list) > 0 && (p == nil || len(p.High(match.TCP))+len(p.High(match.UDP)) > 0) {
				now[key] = list
			}
			if i.Served == nil {
				break
			}
		}
	}
	for key, v := range g.of {
		if now[key] == nil {
			g.dropInvitation(v)
			delete(g.of, key)
		}
	}
	for key, list := range now {
		slices.SortFunc(list, netip.Addr.Compare)
		v := g.of[key]
		if v == nil {
			v = &invitation{served: served[key.served], stale: true}
			g.of[key] = v
		}
		v.closedPods = g.closed[[2]*endpoint.Program{key.in, key.out}]
		if !slices.Equal(v.addrs, list) {
			v.addrs, v.stale = list, true
			v.to = destinations(list, v.served)
		}
		v.stale = v.stale || v.closedPods.stale
	}
	g.weigh()
	for _, v := range g.inOrder() {
		if v.stale {
			v.stale = false
			g.writeInvitation(v)
		}
	}
}

func (v *invitation) title() string { return v.key + "\x00" + v.served.Key() }

func (g *Refuser) inOrder() []*invitation {
	return slices.SortedFunc(maps.Values(g.of), func(a, b *invitation) int { return cmp.Compare(a.title(), b.title()) })
}

// destinations returns the matches of packets to some addresses, and to served ports.
func destinations(list []netip.Addr, served *law.Ports) []*match.Match {
	all := match.Match{Proto: -1, NotProto: -1}
	for _, a := range list {
		all.Dst.Nets = append(all.Dst.Nets, netip.PrefixFrom(a, a.BitLen()))
	}
	if served == nil {
		return []*match.Match{&all}
	}
	var out []*match.Match
	for proto, spans := range map[int][]match.Span{match.TCP: served.High(match.TCP), match.UDP: served.High(match.UDP)} {
		if len(spans) > 0 {
			m := all
			m.Proto, m.Dst.Ports = proto, spans
			out = append(out, &m)
		}
	}
	slices.SortFunc(out, func(a, b *match.Match) int { return a.Proto - b.Proto })
	return out
}

// weigh estimates the sizes, and chooses the last: the biggest for all ports. Those that are too big to name addresses are left out.
func (g *Refuser) weigh() {
	var last *invitation
	for _, v := range g.inOrder() {
		v.weight = bits.Len(uint(g.sizeOf(v.in) + g.sizeOf(v.out)))
		if v.served == nil && (last == nil || v.rank() > last.rank()) {
			last = v
		}
	}
	list := slices.DeleteFunc(g.inOrder(), func(v *invitation) bool { return v == last })
	slices.SortStableFunc(list, func(a, b *invitation) int { return cmp.Compare(a.named(), b.named()) })
	sum := 0
	for _, v := range list {
		sum += v.named()
		v.choose(false, sum > min(MostInvited, g.pods.Segs.Most))
	}
	if last != nil {
		last.choose(true, false)
	}
}

// choose sets whether an invitation is the last, and whether it is too big.
func (v *invitation) choose(last, over bool) {
	v.stale, v.moved = v.stale || v.last != last || v.big != over, v.last != last
	v.last, v.big = last, over
}

// rank is the order of sizes. The small ones are equal, so that the last remains the same while they change.
func (v *invitation) rank() int { return max(10, bits.Len(uint(v.named()))) }

// named estimates the number of rules that name addresses.
func (v *invitation) named() int { return len(v.addrs) << v.weight }

// sizeOf estimates the number of rules of a program.
func (g *Refuser) sizeOf(p *endpoint.Program) (n int) {
	for c := range p.Steps.Each {
		most := 1
		for _, m := range c.Matches {
			m.EachSet(func(id string) {
				if s := g.pods.Sets[id]; s != nil {
					most = max(most, s.Size(match.V4))
				}
			})
		}
		n += most * c.Pieces(0, g.pods.Node.ByteMatch6)
	}
	return n
}

// writeInvitation makes the segments of an invitation.
func (g *Refuser) writeInvitation(v *invitation) {
	old, noted := v.segs, v.over
	v.segs, v.own = nil, nil
	steps, fits := g.stepsFor(v)
	if v.over = v.big || !fits; !v.over {
		for _, s := range steps {
			seg := g.pods.Segs.Take(s.Role, table.Scope{}, s.Clauses)
			seg.Answers = s.Answers
			if v.segs = append(v.segs, seg); strings.HasPrefix(s.Role, table.InvitedPrefix) {
				v.own = append(v.own, seg)
			}
		}
	}
	for _, seg := range old {
		g.pods.Segs.Drop(seg)
	}
	g.pods.Leaving = g.pods.Leaving || noted || v.over || v.moved || !slices.Equal(old, v.segs) // notes name the addresses
}

// leftOut reports whether an invitation is left out: it would name too many addresses, or have too many rules. Segments are compiled. A segment that is
// too big denies every packet of everybody, which the closed pods' own lists do not.
func (v *invitation) leftOut() bool {
	return v.over || slices.ContainsFunc(v.own, func(s *table.Segment) bool { return s.Coarse })
}

// dropInvitation removes the segments of an invitation.
func (g *Refuser) dropInvitation(v *invitation) {
	for _, seg := range v.segs {
		g.pods.Segs.Drop(seg)
	}
	g.pods.Leaving = g.pods.Leaving || v.over || len(v.segs) > 0
}

// stepsFor returns the program of an invitation: the closed pods' ingress, and what that denies: their egress in reverse. It reports whether that is
// small enough to write.
func (g *Refuser) stepsFor(v *invitation) (out []policy.Step, fits bool) {
	back, n := g.reversed(v), 0
	for k := range v.in.Steps {
		s := &v.in.Steps[k]
		if s.Clauses[0].Verb == match.Allow {
			out = append(out, g.allowing(v, *s, v.last))
			continue
		}
		for _, b := range back {
			both := policy.Step{Role: s.Role + "\x00" + b.Role, Answers: true}
			for _, c := range s.Clauses {
				for _, d := range b.Clauses {
					cause := d.Cause
					if d.Verb == match.Deny {
						cause = c.Cause
					}
					both.Clauses = append(both.Clauses, match.Clause{Verb: d.Verb, Matches: slices.Concat(d.Matches, c.Matches), Cause: cause})
				}
			}
			if n += len(both.Clauses); n > policy.MostUnfolded {
				return nil, false
			}
			if d := both.Clauses[0].Verb; d == match.Deny {
				out = append(out, g.denying(v, both))
			} else {
				out = append(out, g.allowing(v, both, false))
			}
		}
	}
	out = slices.DeleteFunc(out, func(s policy.Step) bool { return len(s.Clauses) == 0 })
	for len(out) > 0 && out[len(out)-1].Clauses[0].Verb == match.Allow { // all the rest passes anyway
		out = out[:len(out)-1]
	}
	return out, true
}

// allowing limits an allowing step to TCP, UDP and the closed pods. A shared step stays as it is: the closed pods' own lists have it.
func (g *Refuser) allowing(v *invitation, s policy.Step, shared bool) policy.Step {
	if shared {
		return s
	}
	out := policy.Step{Role: table.InvitedPrefix + v.title() + "\x00" + strconv.FormatBool(v.last) + s.Role, Answers: s.Answers}
	for _, c := range s.Clauses {
		if slices.ContainsFunc(c.Matches, func(m *match.Match) bool {
			return m.ICMP != nil || m.Proto >= 0 && m.Proto != match.TCP && m.Proto != match.UDP
		}) {
			continue
		}
		limits := v.to
		if v.last {
			limits = []*match.Match{g.four}
		}
		for _, m := range limits {
			out.Clauses = append(out.Clauses, g.only(c, m)...)
		}
	}
	return out
}

// only returns a clause for packets that another match has, too, of TCP and UDP alone if it negates protocols: those are many.
func (g *Refuser) only(c match.Clause, limit *match.Match) []match.Clause {
	c.Matches = append(slices.Clone(c.Matches), limit)
	if !slices.ContainsFunc(c.Matches, func(m *match.Match) bool { return m.NotProto > 0 || m.NotICMP != nil }) {
		return []match.Clause{c}
	}
	return g.transport(c)
}

// transport returns the clauses for TCP and UDP.
func (g *Refuser) transport(c match.Clause) (out []match.Clause) {
	for _, m := range []*match.Match{g.tcp, g.udp} {
		out = append(out, match.Clause{Verb: c.Verb, Matches: append(slices.Clone(c.Matches), m), Cause: c.Cause})
	}
	return out
}

// denying limits a denying step to TCP, UDP and the closed pods.
func (g *Refuser) denying(v *invitation, s policy.Step) policy.Step {
	out := policy.Step{Role: table.InvitedPrefix + v.title() + "\x00" + s.Role}
	for _, c := range s.Clauses {
		for _, m := range v.to {
			to := c
			if to.Matches = append(slices.Clone(c.Matches), m); m.Proto >= 0 {
				out.Clauses = append(out.Clauses, to)
			} else {
				out.Clauses = append(out.Clauses, g.transport(to)...)
			}
		}
	}
	return out
}

// reversed returns the egress program of closed pods for answers: with source and destination exchanged.
func (g *Refuser) reversed(v *invitation) []policy.Step {
	out := make([]policy.Step, len(v.out.Steps))
	for i, s := range v.out.Steps {
		out[i] = policy.Step{Role: "back\x00" + s.Role, Clauses: make([]match.Clause, len(s.Clauses))}
		for k, c := range s.Clauses {
			matches := make([]*match.Match, len(c.Matches))
			for n, m := range c.Matches {
				matches[n] = m.Reversed()
			}
			out[i].Clauses[k] = match.Clause{Verb: c.Verb, Matches: matches, Cause: c.Cause}
		}
	}
	return out
}

// InvitedPlaces returns the places of invitations at the inputs of uplink and overlay, in at most some tables: those to served ports, those that
// name addresses, and the last. Too many tables are joined.
func (g *Refuser) InvitedPlaces(most int) (served, named, last []lists.Place) {
	var parts [group.Parts][]lists.Place
	for _, v := range g.inOrder() {
		switch list := v.places(); {
		case v.last:
			last = list
		case v.served != nil:
			served = append(served, list...)
		default:
			parts[v.part] = append(parts[v.part], list...)
		}
	}
	named = slices.Concat(parts[:]...)
	for _, share := range []int{1, group.Parts} { // parts in one pack
		if len(served)+len(named)+len(last) <= most {
			break
		}
		named = nil
		for n := 0; n < group.Parts; n += share {
			named = append(named, g.joinTables(strconv.Itoa(share)+"-"+strconv.Itoa(n), slices.Concat(parts[n:n+share]...))...)
		}
	}
	if len(served)+len(named)+len(last) > most {
		last = g.joinTables("last", last)
	}
	if len(served)+len(named)+len(last) > most {
		served = nil
	}
	return served, named, last
}

func (v *invitation) places() (out []lists.Place) {
	if v.leftOut() {
		return nil
	}
	for _, seg := range v.segs {
		for _, t := range seg.Tables {
			out = append(out, lists.Place{Table: t.Name, Denies: t.Denies(), Repeats: true, Served: v.served})
		}
	}
	return out
}

// joinTables joins the tables of invitations; nil: they are too many rules.
func (g *Refuser) joinTables(name string, list []lists.Place) []lists.Place {
	n := 0
	for _, p := range list {
		if t := g.pods.Store.Lookup(p.Table); t != nil {
			n += len(t.Rules)
		}
	}
	if n == 0 || n > g.pods.Segs.Most {
		return nil
	}
	at := g.packs.Join(table.InvitedPrefix+name, list)
	at.Repeats = true
	return []lists.Place{at}
}

// Homeless returns the place that permits packets of the node's own processes, if these have no separate interface and there are closed pods.
func (g *Refuser) Homeless() []lists.Place {
	if g.pods.Node.Host != "" || len(g.of) == 0 || !g.pods.Store.Full(table.FromNode) {
		return nil
	}
	return []lists.Place{{Table: table.FromNode, Repeats: true}}
}

// NotesLeftOut notes the closed pods whose invitations are left out, or whose refusals are short.
func (g *Refuser) NotesLeftOut() (notes []model.Note) {
	for _, v := range g.inOrder() {
		for _, a := range v.addrs {
			if i := g.pods.Ifaces[g.pods.Node.Interfaces[a]]; v.leftOut() && i != nil {
				notes = append(notes, i.Notes("its policies make too many rules for the uplink: an endpoint elsewhere reaches it by a Service that it dials, although they deny that")...)
			}
		}
	}
	return append(notes, g.notesRefused()...)
}

// Empty reports whether there are no closed pods that other senders may reach.
func (g *Refuser) Empty() bool { return len(g.of) == 0 }
