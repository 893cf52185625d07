package acl

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// place is a table in a list.
type place struct {
	table  string
	cause  *dataplane.Cause // cause of all its rules; nil: the table's causes
	denies bool             // its rules deny
	mixed  bool             // only some rules deny
	source bool             // it is the source check
	egress bool             // a part of the egress of the packets' source, at its interface or where they leave
	dials  bool             // it permits packets to addresses that VPP translates: they may reach any interface
	srcs   []netip.Addr     // its rules decide only about these sources, although they do not name them; nil: they name their sources
	// repeats: it denies only what the list of the packet's receiver denies, too, unless a session there passes it. So it adds nothing to what
	// two hooks decide together, and has no effect that an interim state depends on. Or it denies what no other hook evaluates: see fixFronts.
	repeats bool
	served  *law.Ports // replaces lists.served; nil: does not
}

// lists are the lists of one interface.
type lists struct {
	in, out []place
	filter  *filter    // of SCTP, beside them; nil: none
	served  *law.Ports // high ports of the pod; nil: none
	check   *sources   // of sources, in front of in; nil: none
}

// each calls f for each place.
func (l lists) each(f func(place)) {
	for _, p := range slices.Concat(l.in, l.out) {
		f(p)
	}
}

// Names of the tables without a policy.
const (
	staticIn   = "static-input"
	staticOut  = "static-output"
	fromNode   = "from-node"
	fromPool   = "from-pool"   // addresses of the node that NAT gives to other senders
	fromHidden = "from-hidden" // the same, for lists with rules about peers
	hairpinAll = "hairpin"     // for pods that hidden clients reach: hairpin-<interface>
	keptOuter  = "services"    // outer addresses that keep their clients
	barred     = "barred"      // per program: outer addresses that it does not allow
	led        = "led"         // per program: outer addresses that it allows although it would deny the dialled address
	denyAll    = "deny-all"
	servedHigh = "served" // high ports of local pods, for packets from elsewhere
	// permitEgress and permitIngress permit everything, each under the law of its direction.
	permitEgress  = "permit-all-egress"
	permitIngress = "permit-all-ingress"
	groupPrefix   = "egress-" // of residueGroups
	closedPrefix  = "closed-" // of refusalGroups
)

// permitAll returns the name of the table that permits all packets that pods, or the node, send (egress) or receive.
func permitAll(egress bool) string {
	if egress {
		return permitEgress
	}
	return permitIngress
}

func permitsAll(table string) bool { return table == permitEgress || table == permitIngress }

// list makes the lists of an interface. An unrestricted pod has only its source check.
func (r *Renderer) list(i *iface) {
	var now lists
	in, out := i.progs[0], i.progs[1]
	var notes []model.Note
	var f *filter
	switch {
	case in == nil || out == nil:
		now, notes = r.isolated(), shared(i)
		now.served = i.served
	case in.open && out.open && len(i.groups) == 0 && len(r.refuser.places(i)) == 0:
	default:
		now, f, notes = r.podLists(i, in, out)
	}
	r.notes.set("interface\x00"+i.name, append(notes, r.sourceNotes(i)...))
	r.enlist(i.name, r.checked(i, r.letThrough(i.name, now, f)))
}

// podLists returns the lists of a pod with these programs and the tables beside them.
func (r *Renderer) podLists(i *iface, in, out *program) (now lists, f *filter, notes []model.Note) {
	now = lists{in: r.direction(i, out, r.refuser.places(i)), out: r.direction(i, in, groupPlaces(i.groups)), served: i.served}
	fits := true
	if asksPorts(in.uses) || asksPorts(out.uses) {
		before := func(list []place, uses []use) []place { return list[:len(list)-len(places(uses, false))] }
		f, fits = r.filterOf(origins(before(now.in, out.uses), out.uses), origins(before(now.out, in.uses), in.uses))
	}
	if f == nil {
		now.in, now.out = withoutSCTP(now.in, in.open), withoutSCTP(now.out, out.open)
	}
	fronts := frontPlaces(r, out)
	now = r.shorten(i.name, now, r.room(f)-len(fronts))
	now.in = inFront(now.in, fronts)
	notes = r.crowded(slices.Concat(now.in, now.out), i)
	if !fits {
		notes = append(notes, i.unfiltered()...)
	}
	return now, f, notes
}

// shared notes that an interface has several endpoints: it is unknown whose policies apply.
func shared(i *iface) (notes []model.Note) {
	for _, w := range i.work {
		if len(i.work) > 1 {
			notes = append(notes, model.Note{Ref: w.ref(), Reason: "another endpoint has one of its addresses: it is isolated", Refused: true})
		}
	}
	return notes
}

// direction returns the places of a program in an interface's list, behind those of other pods' programs.
func (r *Renderer) direction(i *iface, p *program, others []place) []place {
	var out []place
	if !p.open {
		out = r.static(!p.spec.Egress, asksPeers(p.uses))
		if !p.spec.Down {
			out = append(out, r.unasked(i, p)...)
		}
	}
	return slices.Concat(out, others, flagged(places(p.uses, p.spec.Egress), p.spec.Egress, false))
}

func groupPlaces(groups []*residueGroup) (out []place) {
	for _, g := range groups {
		out = append(out, place{table: g.name, denies: true, egress: true})
	}
	return out
}

// flagged sets the flags of places.
func flagged(list []place, egress, dials bool) []place {
	for k := range list {
		list[k].egress, list[k].dials = egress, dials
	}
	return list
}

// places returns the places of uses, for packets that pods, or the node, send (egress) or receive.
func places(uses []use, egress bool) []place {
	var out []place
	for _, u := range uses {
		switch {
		case u.seg != nil:
			for _, t := range u.seg.tables {
				out = append(out, place{table: t.name, denies: t.denies()})
			}
		case u.verb == match.Deny:
			out = append(out, place{table: denyAll, cause: u.cause, denies: true})
		default:
			out = append(out, place{table: permitAll(egress), cause: u.cause})
		}
	}
	return out
}

// unasked returns the places for packets that the program does not decide about, or only in another form.
func (r *Renderer) unasked(i *iface, p *program) []place {
	var out []place
	if p.spec.Egress {
		out = append(r.outer(p), flagged(r.optional(r.own(i)), false, true)...)
	} else {
		out = append(r.hairpins(i), r.optional(r.self(i))...)
	}
	return out
}

// static returns the places that do not depend on policies, except on whether they match the sender (peers).
func (r *Renderer) static(output, peers bool) []place {
	switch {
	case !output:
		return []place{{table: staticIn}}
	}
	out := []place{{table: staticOut}}
	if len(r.fixed[fromNode].rules) > 0 {
		out = append(out, place{table: fromNode})
	}
	pool := fromPool
	if peers {
		pool = fromHidden
	}
	if len(r.fixed[pool].rules) > 0 {
		out = append(out, place{table: pool, denies: true})
	}
	return out
}

// self returns the table for packets to a pod from its addresses, without a Service in between.
func (r *Renderer) self(i *iface) string {
	t := &table{name: selfTable(i.name)}
	r.addSelf(t, i)
	r.fixTable(t)
	return t.name
}

// addSelf appends the rules for a pod's packets to itself, where the input hook does not see Services.
func (r *Renderer) addSelf(t *table, i *iface) {
	self := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "the pod itself"}
	for _, a := range i.addrs {
		if addr := netip.PrefixFrom(a, a.BitLen()); r.view(match.FamilyOf(a)) == dataplane.PostDNAT {
			t.add(match.Atom{Src: addr, Dst: addr, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, self)
		}
	}
}

// own returns the table for packets that a pod may send because of its addresses: to itself and, where the input hook sees
// Services, to Services, which are evaluated where they lead.
func (r *Renderer) own(i *iface) string {
	t := &table{name: ownTable(i.name), egress: true}
	r.addSelf(t, i)
	service := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "services, which are evaluated where they lead"}
	for _, a := range i.addrs {
		src := netip.PrefixFrom(a, a.BitLen())
		if r.view(match.FamilyOf(a)) == dataplane.PostDNAT {
			continue
		}
		for _, dst := range r.node.Frontends {
			if match.FamilyOf(dst.Addr()) != match.FamilyOf(a) || dst.IsSingleIP() && slices.Contains(r.node.Addrs, dst.Addr()) {
				continue
			}
			for _, proto := range []uint8{match.TCP, match.UDP} {
				x := match.Expander{WholeBytes: r.node.ByteMatch6}
				for _, a := range x.Widen([]match.Atom{{Src: src, Dst: dst.Masked(), Proto: proto, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}}, 0) {
					t.add(a, service)
				}
			}
		}
	}
	r.fixTable(t)
	return t.name
}

func ownTable(iface string) string  { return "own-" + nameOf(iface) }
func selfTable(iface string) string { return "self-" + nameOf(iface) }

func (t *table) add(a match.Atom, c *dataplane.Cause) {
	t.rules = append(t.rules, a)
	t.causes = append(t.causes, c)
}

// fixTable stores a table without a segment.
func (r *Renderer) fixTable(t *table) {
	if old := r.fixed[t.name]; old == nil || !old.same(t) {
		r.fixed[t.name] = t
		r.dirty.tables[t.name] = struct{}{}
	}
}

// fix makes the tables that depend on the node alone.
func (r *Renderer) fix() {
	in, out := &table{name: staticIn}, &table{name: staticOut}
	for _, t := range []*table{in, out} {
		for _, typ := range []uint16{3, 11, 12} {
			t.add(icmpAtom(match.V4, typ), &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "ICMP errors"})
		}
		for _, typ := range []uint16{1, 2, 3, 4} {
			t.add(icmpAtom(match.V6, typ), &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "ICMP errors"})
		}
	}
	discovery := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "neighbour discovery"}
	for _, typ := range []uint16{133, 135, 136} {
		in.add(icmpAtom(match.V6, typ), discovery)
	}
	for _, typ := range []uint16{134, 135, 136} {
		out.add(icmpAtom(match.V6, typ), discovery)
	}
	r.fixTable(r.hairpinTable(hairpinAll, nil))
	r.fixTable(in)
	r.fixTable(out)
	r.fixTable(r.nodeTable())
	r.fixTable(r.poolTable())
	r.fixTable(r.hiddenTable())
	r.fixTable(noSCTPTable())
	for _, t := range []*table{{name: permitEgress, egress: true}, {name: permitIngress}, {name: denyAll}} {
		v := match.Allow
		if t.name == denyAll {
			v = match.Deny
		}
		for _, f := range match.Families {
			t.add(match.Atom{Verb: v, Src: f.All(), Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: v == match.Deny})
		}
		r.fixTable(t)
	}
}

func icmpAtom(f match.Family, typ uint16) match.Atom {
	return match.Atom{Verb: match.Admit, Src: f.All(), Dst: f.All(), Proto: f.ICMP(), SrcPorts: match.Span{Lo: typ, Hi: typ}, DstPorts: match.Span{Lo: 0, Hi: 255}}
}
