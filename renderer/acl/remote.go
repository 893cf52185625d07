package acl

import (
	"cmp"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/renderer/acl/group"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// measure counts the parts of weight. The counts are valid until the program's steps change.
func (j *outbound) measure() {
	j.clauses, j.sets, j.blind = 0, nil, j.p.steps.IgnoresSources()
	for i := range j.p.steps {
		for k := range j.p.steps[i].Clauses {
			j.clauses++
			for _, m := range j.p.steps[i].Clauses[k].Matches {
				j.sets = append(j.sets, m.Dst.Sets...)
			}
		}
	}
}

// weight estimates the number of rules in remote, as a power of two, so that it does not change with every member of a set.
func (j *outbound) weight(sets match.Sets) int {
	n := j.clauses
	for _, id := range j.sets {
		if s := sets[id]; s != nil {
			n += s.Size(match.V4) + s.Size(match.V6)
		}
	}
	return bits.Len(uint(n * len(j.sources)))
}

// writeRemote makes the segments of a program for the outputs to destinations other than local pods.
func (r *Renderer) writeRemote(j *outbound) {
	old := j.remote
	j.remote = nil
	for i := range j.p.steps {
		s := &j.p.steps[i]
		if len(j.sources) == 0 || j.p.free { // exits are at the end of the lists anyway
			break
		}
		role, sc := "r\x00"+j.p.key+"\x00"+s.Role, table.Scope{Egress: true, Sources: j.sources}
		switch {
		case j.last && s.Clauses[0].Verb == match.Deny:
		case j.last && s.Lone():
			continue // the end of the list decides the same
		case j.last:
			role, sc.Sources = s.Role, nil // other packets here may pass anyway
		}
		seg := r.segs.Take(role, sc, s.Clauses)
		j.remote = append(j.remote, seg)
	}
	for _, seg := range old {
		r.segs.Drop(seg)
	}
	r.dirty.remote = r.dirty.remote || !slices.Equal(old, j.remote)
}

// chooseLast picks the program that is last where packets leave: the one whose table shrinks most by it. With exits those are last.
func (r *Renderer) chooseLast() {
	var last *outbound
	best := -1
	for _, j := range r.outbound {
		if len(r.exits)+len(r.hosts) > 0 { // other packets here may be NAT's
			break
		}
		if w := j.weight(r.sets); w > best || w == best && j.p.key < last.p.key {
			last, best = j, w
		}
	}
	for _, j := range r.outbound {
		if j.last != (j == last) {
			j.last, r.dirty.remote = j == last, true
			r.writeRemote(j)
		}
	}
}

// listRemote makes the lists of the interfaces to anywhere but local pods.
func (r *Renderer) listRemote() {
	if r.checkOutside(); !r.dirty.remote {
		return
	}
	r.dirty.remote = false
	r.store.Fix(r.servedTable())
	r.fixOutside()
	places := r.remotePlaces()
	notes := r.crowded(places, nil)
	now := map[string]lists.Lists{}
	for _, name := range []string{r.node.Uplink, r.node.Overlay, r.node.Host} {
		outside := name != r.node.Host
		if name == "" {
			continue
		}
		if len(places)+len(r.hooks)+len(r.exits)+len(r.refuser.of) == 0 {
			if outside && r.outside != nil {
				now[name] = r.checkedOutside(name, lists.Lists{})
			}
			continue
		}
		f, unfit := r.remoteFilter(name)
		l := lists.Lists{In: append(r.optional(table.ServedHigh), lists.Answers(false)), Out: []lists.Place{lists.Answers(name != r.node.Host)}}
		end := lists.Place{Table: l.Out[0].Table, Cause: &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "no pod's egress"}}
		switch e := r.exits[name]; {
		case e != nil:
			l.Out = append([]lists.Place{{Table: table.StaticOut}, {Table: table.Outgoing}}, places...)
			l.Out = append(l.Out, r.exitPlaces(name, e, r.room(f)-len(l.Out)-4)...)
		case r.hooks[name] != nil && name != r.node.Host:
			l.Out = append(append([]lists.Place{{Table: table.StaticOut}, {Table: table.Outgoing}}, places...), end)
		case len(places) > 0:
			l.Out = append(append([]lists.Place{{Table: table.StaticOut}}, places...), end)
		}
		served, named, last := r.refuser.invitedPlaces(r.room(f) - len(l.Out) - 5)
		switch h := r.hooks[name]; {
		case h != nil:
			l.In = r.hostPlaces(name, h, r.room(f)-len(l.Out)-len(named)-len(last))
			if outside && h.forwards {
				l.In = slices.Insert(l.In, len(l.In)-1, slices.Concat(r.refuser.homeless(), named, last)...)
			}
		case outside:
			l.In = slices.Concat(r.refuser.homeless(), served, r.optional(table.ServedHigh), named, last, []lists.Place{lists.Answers(false)})
		}
		if l = r.letThrough(name, l, f); outside {
			l = r.checkedOutside(name, l)
		}
		now[name] = l
		notes = append(append(notes, r.crowdedHosts(name, l)...), unfit...)
	}
	r.notes.Set("leaving", append(notes, r.refuser.left()...))
	for name := range r.remote {
		if _, still := now[name]; !still {
			r.letThrough(name, lists.Lists{}, nil)
			r.out.Remove(name)
		}
	}
	for name, l := range now {
		r.out.Enlist(name, l)
	}
	r.remote = now
}

func (r *Renderer) sortedOutbound() []*outbound {
	return slices.SortedFunc(maps.Values(r.outbound), func(a, b *outbound) int { return cmp.Compare(a.p.key, b.p.key) })
}

// remotePlaces returns the tables of all programs for where packets leave. Programs have separate sources, so that their order has no effect,
// except for the last. Too many tables (some room is kept) are joined by parts of programs; a part keeps its name whatever its content.
func (r *Renderer) remotePlaces() []lists.Place {
	var parts [group.Parts][]lists.Place
	var last, all []lists.Place
	for _, j := range r.sortedOutbound() {
		for _, seg := range j.remote {
			for _, t := range seg.Tables {
				at := lists.Place{Table: t.Name, Denies: t.Denies(), Egress: true}
				if j.last {
					at.Sources = j.sources
					last = append(last, at)
					continue
				}
				parts[j.p.part] = append(parts[j.p.part], at)
				all = append(all, at)
			}
		}
	}
	room, share := r.cfg.maxACLs()-10, 1 // number of parts in one pack
	if len(r.exits) > 0 {
		room, share = room-2, 2
	}
	if len(all)+len(last) > room {
		all = nil
		for n := 0; n < group.Parts; n += share {
			if part := slices.Concat(parts[n : n+share]...); len(part) > 0 {
				all = append(all, r.packs.Join("remote-part-"+strconv.Itoa(n), part))
			}
		}
	}
	return append(all, r.packs.Packed(last)...)
}

// peersOf returns the addresses of other nodes that the ingress rules of pods must not admit; nil: NAT gives them to no other sender.
func (r *Renderer) peersOf(seg *table.Segment) (out []netip.Prefix) {
	if seg.Scope.Egress || seg.Host || seg.Answers {
		return nil
	}
	for _, a := range r.node.Peers {
		if r.node.View(match.FamilyOf(a)) == dataplane.PreDNAT {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// servedTable makes sessions of packets to the high ports of local pods, on interfaces to destinations other than local pods.
func (r *Renderer) servedTable() *table.Table {
	t := &table.Table{Name: table.ServedHigh}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "to let answers pass"}
	for _, name := range slices.Sorted(maps.Keys(r.ifaces)) {
		i := r.ifaces[name]
		for _, a := range i.addrs {
			dst := netip.PrefixFrom(a, a.BitLen())
			for _, proto := range [2]uint8{match.TCP, match.UDP} {
				for _, s := range i.served.High(proto) {
					t.Add(match.Atom{Verb: match.Reflect, Src: match.FamilyOf(a).All(), Dst: dst, Proto: proto, SrcPorts: match.AllPorts, DstPorts: s}, cause)
				}
			}
		}
	}
	return t
}
