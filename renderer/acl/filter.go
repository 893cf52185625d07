package acl

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/classifier"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// filterOf returns the filter of lists; nil if none is needed, or if it would not fit. If one direction needs a filter, so does the
// other, unless everything may begin there: sessions that let answers pass have only addresses.
func (r *Renderer) filterOf(in, out []origin) (f *filter, fits bool) {
	var now filter
	var differs [2]bool
	now[0], differs[0] = r.decide(in)
	now[1], differs[1] = r.decide(out)
	if differs == [2]bool{} {
		return nil, true
	}
	for d, list := range now {
		if !differs[d] && !slices.ContainsFunc(list, func(a association) bool { return !a.permit }) {
			now[d] = nil
		}
		if match.Widened(pairs(now[d])) > match.MaxAtoms {
			return nil, false
		}
	}
	if !now.fits() {
		return nil, false
	}
	return &now, true
}

// fits reports whether VPP's classifier has room for the filter.
func (f *filter) fits() bool {
	_, err := classifier.Compile(f.value("any"))
	return err == nil
}

// remoteFilter returns the filter of an interface to destinations other than local pods, and the notes if it would be too big.
func (r *Renderer) remoteFilter(name string) (f *filter, notes []model.Note) {
	h, e := r.hooks[name], r.exits[name]
	var egress []use
	asking := map[*program]bool{}
	for _, last := range []bool{false, true} {
		for _, j := range r.sortedOutbound() {
			for _, seg := range j.remote {
				if j.last == last {
					egress = append(egress, use{seg: seg, verb: seg.clauses[0].Verb})
					asking[j.p] = asking[j.p] || seg.asks
				}
			}
		}
	}
	if !asksPorts(egress) && (h == nil || !asksPorts(h.uses)) && (e == nil || !asksPorts(e.uses)) {
		return nil, nil
	}
	answers := use{cause: &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "to let answers pass"}}
	in, out := origins(nil, []use{answers}), origins([]place{{table: outgoing}}, egress)
	if h != nil {
		in = nil
		for _, t := range h.before {
			in = append(in, origin{table: t})
		}
		in = append(in, origins(nil, h.uses)...)
	}
	if e != nil {
		out = append(out, origins(nil, e.uses)...)
	} else {
		out = append(out[1:], origin{use: use{cause: &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "no pod's egress"}}})
	}
	f, fits := r.filterOf(in, out)
	if fits {
		return f, nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.ifaces)) {
		if i := r.ifaces[name]; asking[i.progs[1]] {
			notes = append(notes, i.unfiltered()...)
		}
	}
	if h != nil {
		notes = append(notes, unfiltered(model.Ref{Kind: KindHostEndpoint, Name: h.endpoint}))
	}
	if e != nil && (h == nil || h.endpoint != e.endpoint) {
		notes = append(notes, unfiltered(model.Ref{Kind: KindHostEndpoint, Name: e.endpoint}))
	}
	return nil, notes
}

// unfiltered notes that the rules of an owner about ports of SCTP are too many.
func unfiltered(ref model.Ref) model.Note {
	return model.Note{Ref: ref, Reason: "its policies make too many rules for SCTP: what they allow for some of its ports is denied", Refused: true}
}

func (i *iface) unfiltered() (notes []model.Note) {
	for _, w := range i.work {
		notes = append(notes, unfiltered(w.ref()))
	}
	return notes
}

// room is the number of ACLs that an interface may have beside its source check and those that its filter needs.
func (r *Renderer) room(f *filter) int {
	most := r.cfg.maxACLs()
	if r.cfg.SourceCheck != SourceOff {
		most--
	}
	if f != nil {
		most -= len(f)
	}
	return most
}

// refilter marks the interfaces whose filters depend on a recompiled segment.
func (r *Renderer) refilter(seg *segment) {
	if !r.asked {
		return
	}
	seg.sctpDone = false
	r.dirty.remote = r.dirty.remote || seg.host || seg.scope.egress && len(r.outbound) > 0
	for p := range r.ofSegment[seg] {
		for i := range p.users {
			if r.out.want[i.name].filter != nil || slices.ContainsFunc(i.progs[:], func(p *program) bool { return p != nil && asksPorts(p.uses) }) {
				r.dirty.ifaces[i] = struct{}{}
			}
		}
	}
}

// letThrough puts the filter of an interface beside its lists, and in front of them the table that permits the SCTP packets that the filter
// decides about.
func (r *Renderer) letThrough(name string, l lists, f *filter) lists {
	if f == nil && r.out.want[name].filter == nil {
		return l
	}
	l.filter = f
	for d, list := range [2]*[]place{&l.in, &l.out} {
		t := &table{name: kv.SCTPPortsACL(name, d == 0)}
		if f != nil {
			r.addPairs(t, f[d])
		}
		if !slices.ContainsFunc(t.rules, func(a match.Atom) bool { return a.Verb != match.Deny }) {
			r.unfix(t.name)
			continue
		}
		r.fixTable(t)
		n := 0
		for n < len(*list) && isFront((*list)[n]) {
			n++
		}
		*list = slices.Concat((*list)[:n], []place{{table: t.name}}, (*list)[n:])
	}
	return l
}

// addPairs appends the rules of the pairs.
func (r *Renderer) addPairs(t *table, rules []association) {
	passes := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "SCTP, of which only ports are left to be asked for"}
	denied := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "SCTP, denied at all ports"} // the filter has the cause
	x := match.Expander{WholeBytes: r.node.ByteMatch6}
	for _, a := range x.Widen(pairs(rules), 0) {
		cause := passes
		if a.Verb == match.Deny {
			cause = denied
		}
		t.add(a, cause)
	}
}

// deniesPair returns the cause of the first rule of a direction that denies an atom's addresses at all ports; nil: none does.
func (f *filter) deniesPair(d int, a *match.Atom) *dataplane.Cause {
	for _, rule := range f.direction(d) {
		within := func(in, p netip.Prefix) bool { return in.Bits() <= p.Bits() && in.Contains(p.Addr()) }
		if !rule.permit && rule.sport == match.AllPorts && rule.dport == match.AllPorts && within(rule.src, a.Src) && within(rule.dst, a.Dst) {
			return rule.cause
		}
	}
	return nil
}

// value returns the filter as a value for vppagent.
func (f *filter) value(iface string) *contivacl.SCTPPorts {
	v := &contivacl.SCTPPorts{Interface: iface}
	for d, list := range [2]*[]*contivacl.SCTPPorts_Rule{&v.Input, &v.Output} {
		for i := range f[d] {
			a := &f[d][i]
			*list = append(*list, &contivacl.SCTPPorts_Rule{
				Permit: a.permit, SourceNetwork: a.src.String(), DestinationNetwork: a.dst.String(), Source: portsValue(a.sport), Destination: portsValue(a.dport),
			})
		}
	}
	return v
}

func portsValue(s match.Span) *contivacl.SCTPPorts_Ports {
	if s == match.AllPorts {
		return nil
	}
	return &contivacl.SCTPPorts_Ports{Lower: uint32(s.Lo), Upper: uint32(s.Hi)}
}

// filterEffect returns the effect of a change of the filter in a direction: the lists before and after permit the packets that it permits.
func filterEffect(old, now *filter, d int) (e effect) {
	had, has := old.direction(d), now.direction(d)
	switch {
	case slices.EqualFunc(had, has, association.same):
	case had == nil:
		e.closes = true
	case has == nil:
		e.opens = true
	default:
		e = effect{true, true}
	}
	return e
}

func (f *filter) direction(d int) []association {
	if f == nil {
		return nil
	}
	return f[d]
}

// commonFilter returns a filter that lets begin what both filters do. It is closed if few rules cannot express that.
func commonFilter(old, now *filter) *filter {
	switch {
	case old == nil || old.same(now):
		return now
	case now == nil:
		return old
	}
	var out filter
	for d := range out {
		had, has := old[d], now[d]
		switch {
		case had == nil:
			out[d] = has
		case has == nil:
			out[d] = had
		default:
			out[d] = meet(had, has)
		}
	}
	if !out.fits() {
		return &filter{closed(), closed()}
	}
	return &out
}
