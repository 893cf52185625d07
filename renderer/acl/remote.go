package acl

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// listRemote makes the lists of the interfaces to anywhere but local pods.
func (r *Renderer) listRemote() {
	guarded := r.checks.Outside(r.hosts.Enforces())
	if !r.pods.Leaving {
		return
	}
	r.pods.Leaving = false
	r.pods.Store.Fix(r.servedTable())
	r.checks.FixOutside()
	places := r.egress.RemotePlaces(r.hosts.HasExits())
	notes := r.crowded(places, nil)
	now := map[string]lists.Lists{}
	for _, name := range []string{r.pods.Node.Uplink, r.pods.Node.Overlay, r.pods.Node.Host} {
		outside := name != r.pods.Node.Host
		if name == "" {
			continue
		}
		if len(places) == 0 && !r.hosts.Enforces() && r.closed.Empty() {
			if outside && guarded {
				now[name] = r.checks.InFrontOutside(name, lists.Lists{})
			}
			continue
		}
		f, unfit := r.remoteFilter(name)
		l := lists.Lists{In: append(lists.Filled(r.pods.Store, table.ServedHigh), lists.Answers(false)), Out: []lists.Place{lists.Answers(name != r.pods.Node.Host)}}
		end := lists.Place{Table: l.Out[0].Table, Cause: &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "no pod's egress"}}
		switch e := r.hosts.Exit(name); {
		case e != nil:
			l.Out = append([]lists.Place{{Table: table.StaticOut}, {Table: table.Outgoing}}, places...)
			l.Out = append(l.Out, r.hosts.ExitPlaces(name, e, r.room(f)-len(l.Out)-4)...)
		case r.hosts.Hook(name) != nil && name != r.pods.Node.Host:
			l.Out = append(append([]lists.Place{{Table: table.StaticOut}, {Table: table.Outgoing}}, places...), end)
		case len(places) > 0:
			l.Out = append(append([]lists.Place{{Table: table.StaticOut}}, places...), end)
		}
		served, named, last := r.closed.InvitedPlaces(r.room(f) - len(l.Out) - 5)
		switch h := r.hosts.Hook(name); {
		case h != nil:
			l.In = r.hosts.HookPlaces(name, h, r.room(f)-len(l.Out)-len(named)-len(last))
			if outside && h.Forwards {
				l.In = slices.Insert(l.In, len(l.In)-1, slices.Concat(r.closed.Homeless(), named, last)...)
			}
		case outside:
			l.In = slices.Concat(r.closed.Homeless(), served, lists.Filled(r.pods.Store, table.ServedHigh), named, last, []lists.Place{lists.Answers(false)})
		}
		if l = r.letThrough(name, l, f); outside {
			l = r.checks.InFrontOutside(name, l)
		}
		now[name] = l
		notes = append(append(notes, r.hosts.CrowdedNotes(name, l)...), unfit...)
	}
	r.pods.Notes.Set("leaving", append(notes, r.closed.NotesLeftOut()...))
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

// peersOf returns the addresses of other nodes that the ingress rules of pods must not admit; nil: NAT gives them to no other sender.
func (r *Renderer) peersOf(seg *table.Segment) (out []netip.Prefix) {
	if seg.Scope.Egress || seg.Host || seg.Answers {
		return nil
	}
	for _, a := range r.pods.Node.Peers {
		if r.pods.Node.View(match.FamilyOf(a)) == dataplane.PreDNAT {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// servedTable makes sessions of packets to the high ports of local pods, on interfaces to destinations other than local pods.
func (r *Renderer) servedTable() *table.Table {
	t := &table.Table{Name: table.ServedHigh}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "to let answers pass"}
	for _, name := range slices.Sorted(maps.Keys(r.pods.Ifaces)) {
		i := r.pods.Ifaces[name]
		for _, a := range i.Addrs {
			dst := netip.PrefixFrom(a, a.BitLen())
			for _, proto := range [2]uint8{match.TCP, match.UDP} {
				for _, s := range i.Served.High(proto) {
					t.Add(match.Atom{Verb: match.Reflect, Src: match.FamilyOf(a).All(), Dst: dst, Proto: proto, SrcPorts: match.AllPorts, DstPorts: s}, cause)
				}
			}
		}
	}
	return t
}
