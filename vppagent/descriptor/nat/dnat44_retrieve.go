package nat

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/drain"
)

const (
	idLB       = "nat44_lb_static_mapping_dump"
	idStatic   = "nat44_static_mapping_dump"
	idIdentity = "nat44_identity_mapping_dump"
)

func dnatDumps(*descriptor.World, descriptor.Candidates) []descriptor.Request {
	return []descriptor.Request{
		descriptor.DumpRequest(idLB, &nat44_ed.Nat44LbStaticMappingDump{}),
		descriptor.DumpRequest(idStatic, &nat44_ed.Nat44StaticMappingDump{}),
		descriptor.DumpRequest(idIdentity, &nat44_ed.Nat44IdentityMappingDump{}),
	}
}

// dnatReader assembles DNat44s from the mappings of a dump, by the labels in their tags. In the common case the dump equals the
// desired state, in the same order. Then the reader builds and looks up nothing, returns the desired state itself, and needs no
// indices.
type dnatReader struct {
	w       *descriptor.World
	c       descriptor.Candidates
	wants   []*dnat
	founds  []dnatFound           // of wants
	next    int                   // in wants: likely index of the next mapping's owner
	nextOne int                   // in its mappings
	places  map[*dnat]int         // index in wants; nil: not made yet
	index   *dnatIndex            // nil: not made yet
	others  map[*dnat]*dnatFound  // by unwanted candidate
	unknown map[string]*dnatFound // by label
	order   []*dnatFound          // in order of discovery
	last    *dnatFound            // of the previous mapping: adjacent mappings often belong to one Service
	lastTag string
	foreign []descriptor.Found

	room rooms
}

// rooms are the memory of sameLocals.
type rooms struct {
	backends      []drain.Local
	dumped, fresh drain.Layout
}

func newDNatReader(w *descriptor.World, c descriptor.Candidates) *dnatReader {
	r := &dnatReader{w: w, c: c, others: map[*dnat]*dnatFound{}, unknown: map[string]*dnatFound{}}
	c.Each(func(_ string, state any, wanted bool) {
		if wanted {
			r.wants = append(r.wants, state.(*dnat))
		}
	})
	r.founds = make([]dnatFound, len(r.wants))
	r.order = make([]*dnatFound, 0, len(r.wants))
	return r
}

// expected returns the found and the wanted mapping that probably match the next mapping of the dump; nil, nil if they do not.
func (r *dnatReader) expected(id natID, tag string) (*dnatFound, *mapping) {
	for i := r.next; i < min(r.next+2, len(r.wants)); i++ {
		d, k := r.wants[i], 0
		if i == r.next {
			k = r.nextOne
		}
		if k >= len(d.mappings) || d.mappings[k].id != id || d.mappings[k].tag != tag {
			continue
		}
		if r.next, r.nextOne = i, k+1; r.nextOne == len(d.mappings) {
			r.next, r.nextOne = i+1, 0
		}
		return r.met(i), &d.mappings[k]
	}
	return nil, nil
}

// met returns the found of a wanted value.
func (r *dnatReader) met(place int) *dnatFound {
	f := &r.founds[place]
	if f.candidate == nil {
		f.candidate, f.label = r.wants[place], r.wants[place].label
		r.order = append(r.order, f)
	}
	return f
}

// dnatIndex finds unwanted candidates and candidates with a hashed label, with their mappings.
type dnatIndex struct {
	wanted  map[natID]wantedMapping
	byLabel map[string]*dnat // label as in tags (maybe hashed) → candidate
}

type wantedMapping struct {
	m *mapping
	d *dnat
}

// dnatFound is the part of one DNat44 found so far.
type dnatFound struct {
	candidate *dnat // nil: unknown
	label     string
	matched   int      // number of mappings found exactly as in candidate
	one       *mapping // the only one so far, if it equals the candidate's; then mappings is empty
	mappings  []mapping
	ids       []identity
}

func retrieveDNat(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	lbs, err := descriptor.Details[*nat44_ed.Nat44LbStaticMappingDetails](d, idLB)
	if err != nil {
		return nil, err
	}
	layoutsOf(w).dumped(lbs)
	r := newDNatReader(w, c)
	for _, m := range lbs {
		r.lb(m)
	}
	singles, err := descriptor.Details[*nat44_ed.Nat44StaticMappingDetails](d, idStatic)
	if err != nil {
		return nil, err
	}
	for _, m := range singles {
		r.single(m)
	}
	ids, err := descriptor.Details[*nat44_ed.Nat44IdentityMappingDetails](d, idIdentity)
	if err != nil {
		return nil, err
	}
	r.identities(ids)
	return r.result(), nil
}

// indexed returns the index, made at the first call.
func (r *dnatReader) indexed() *dnatIndex {
	if r.index == nil {
		r.index = &dnatIndex{wanted: map[natID]wantedMapping{}, byLabel: map[string]*dnat{}}
		r.c.Each(r.index.candidate)
	}
	return r.index
}

func (x *dnatIndex) candidate(_ string, state any, wanted bool) {
	d := state.(*dnat)
	last := ""
	named := func(tag string) { // one label may be hashed in some tags and not in others: fingerprints differ in length
		if tag == last {
			return
		}
		last = tag
		_, label, _ := descriptor.ParseTag(tag, "n", true)
		if _, known := x.byLabel[label]; !known || wanted {
			x.byLabel[label] = d
		}
	}
	for i := range d.identities {
		named(d.identities[i].tag)
	}
	for i := range d.mappings {
		m := &d.mappings[i]
		named(m.tag)
		if _, taken := x.wanted[m.id]; !taken || wanted {
			x.wanted[m.id] = wantedMapping{m, d}
		}
	}
}

// findCandidate returns the candidate with the label of a tag, nil if there is none.
func (r *dnatReader) findCandidate(label string) *dnat {
	if !strings.HasPrefix(label, "#") {
		if d, ok := r.c.Wanted(dnat44Prefix + label).(*dnat); ok {
			return d
		}
	}
	return r.indexed().byLabel[label]
}

// owner returns the found that a mapping with that tag belongs to; nil if the mapping is not ours.
func (r *dnatReader) owner(tag string) *dnatFound {
	if tag == r.lastTag && r.last != nil {
		return r.last
	}
	_, label, ok := descriptor.ParseTag(tag, "n", true)
	if !ok {
		return nil
	}
	r.last, r.lastTag = r.foundOf(r.findCandidate(label), label), tag
	return r.last
}

// foundOf returns the found of a candidate or, if that is nil, of a label.
func (r *dnatReader) foundOf(candidate *dnat, label string) *dnatFound {
	if place, wanted := r.placed()[candidate]; wanted {
		return r.met(place)
	}
	f := r.unknown[label]
	if candidate != nil {
		f = r.others[candidate]
	}
	if f != nil {
		return f
	}
	f = &dnatFound{candidate: candidate, label: label}
	if candidate != nil {
		r.others[candidate] = f
	} else {
		r.unknown[label] = f
	}
	r.order = append(r.order, f)
	return f
}

// placed returns the indices of wanted values in wants, made at the first call.
func (r *dnatReader) placed() map[*dnat]int {
	if r.places == nil {
		r.places = make(map[*dnat]int, len(r.wants))
		for i, d := range r.wants {
			r.places[d] = i
		}
	}
	return r.places
}

const dumpedFlags = nat_types.NAT_IS_OUT2IN_ONLY | nat_types.NAT_IS_TWICE_NAT | nat_types.NAT_IS_SELF_TWICE_NAT | nat_types.NAT_IS_ADDR_ONLY

func (r *dnatReader) lb(m *nat44_ed.Nat44LbStaticMappingDetails) {
	id := newNATID(m.ExternalAddr, m.ExternalPort, m.Protocol)
	tag := descriptor.FixedText(m.Tag)
	f, want := r.expected(id, tag)
	if f == nil {
		if f = r.owner(tag); f == nil {
			r.foreign = append(r.foreign, descriptor.Found{Foreign: true, Text: fmt.Sprintf("nat44 load-balanced mapping %s tag %q", id, tag)})
			return
		}
		want = f.candidate.mapping(id)
	}
	if want != nil && want.tag == tag && want.flags == m.Flags&dumpedFlags && r.sameLocals(m.Locals, want) {
		f.matched++
		f.addMapping(want)
		return
	}
	got := mapping{id: id, flags: m.Flags & dumpedFlags, tag: tag, raw: localsOf(m)}
	if want, ok := r.indexed().wanted[id]; ok && want.m.tag == tag {
		got.affinity = want.m.affinity
	}
	got.understand(r.w)
	if want != nil && (equalMapping(got, *want) || want.tag == tag && got.serves(r.w, *want)) {
		f.matched++
		f.addMapping(want)
		return
	}
	f.addMapping(&got)
}

// localsOf are the locals of a dumped mapping, in the order of their slots.
func localsOf(m *nat44_ed.Nat44LbStaticMappingDetails) []local {
	out := make([]local, len(m.Locals))
	for i, l := range m.Locals {
		out[i] = local{addr: l.Addr, port: l.Port, weight: l.Probability, vrf: l.VrfID}
	}
	return out
}

// mapping returns the mapping with that ID, nil if there is none; d may be nil.
func (d *dnat) mapping(id natID) *mapping {
	if d == nil {
		return nil
	}
	at := sort.Search(len(d.mappings), func(i int) bool { return d.mappings[i].id >= id }) // by index: mappings are big
	if at == len(d.mappings) || d.mappings[at].id != id {
		return nil
	}
	return &d.mappings[at]
}

// addMapping adds a mapping; the first one by reference, because usually it stays the only one and nothing has to be built.
func (f *dnatFound) addMapping(m *mapping) {
	if f.one == nil && len(f.mappings) == 0 {
		f.one = m
		return
	}
	if f.one != nil {
		f.mappings, f.one = append(f.mappings, *f.one), nil
	}
	f.mappings = append(f.mappings, *m)
}

func (f *dnatFound) len() int {
	if f.one != nil {
		return 1
	}
	return len(f.mappings)
}

// sameLocals reports that a dump shows exactly the locals that the agent sends for a new mapping; if it cannot drain backends, in any order.
func (r *dnatReader) sameLocals(got []nat44_ed.Nat44LbAddrPort, want *mapping) bool {
	if want.drains(r.w) {
		room := &r.room
		room.backends, room.dumped = appendDrain(room.backends[:0], want.locals), room.dumped[:0]
		for _, l := range got {
			room.dumped = append(room.dumped, drain.Local{Addr: l.Addr, Port: l.Port, Weight: l.Probability, VRF: l.VrfID})
		}
		room.fresh = drain.AppendNew(room.fresh[:0], room.backends)
		return slices.Equal(room.fresh, room.dumped)
	}
	sent := represent(padded(r.w), want.locals)
	if len(got) != len(sent) {
		return false
	}
	sorted := make([]local, len(got))
	for i, l := range got {
		sorted[i] = local{addr: l.Addr, port: l.Port, weight: l.Probability, vrf: l.VrfID}
	}
	slices.SortFunc(sorted, compareLocals)
	sent = slices.Clone(sent)
	slices.SortFunc(sent, compareLocals)
	return slices.Equal(sorted, sent)
}

// understand finds out what the locals in raw do, and notes their order where it matters.
func (m *mapping) understand(w *descriptor.World) {
	all := toDrain(m.raw)
	l, ours := drain.Read(all)
	if !m.drains(w) || !ours {
		if m.strip(padded(w)); m.drains(w) {
			layoutsOf(w).of[m.id] = nil
		}
		return
	}
	taking, drained, ok := l.Split()
	m.locals, m.drained = allFromDrain(taking), allFromDrain(drained)
	slices.SortFunc(m.locals, compareLocals)
	slices.SortFunc(m.drained, compareLocals)
	if ok {
		layoutsOf(w).hold(*m, l)
		m.raw = nil
	}
}

// strip extracts the backends from raw, and drops raw if it equals what the agent would send for them.
func (m *mapping) strip(padded bool) {
	backends := make([]local, 0, len(m.raw))
	for _, l := range m.raw {
		if l == pads[0] || l == pads[1] || l == dropPad || slices.ContainsFunc(backends, l.sameLocal) {
			continue
		}
		backends = append(backends, l)
	}
	slices.SortFunc(backends, compareLocals)
	m.locals = backends
	raw, want := slices.Clone(m.raw), slices.Clone(represent(padded, backends))
	slices.SortFunc(raw, compareLocals)
	slices.SortFunc(want, compareLocals)
	if slices.Equal(raw, want) {
		m.raw = nil
	}
}

func (r *dnatReader) single(m *nat44_ed.Nat44StaticMappingDetails) {
	tag := descriptor.FixedText(m.Tag)
	f := r.owner(tag)
	id := newNATID(m.ExternalIPAddress, m.ExternalPort, m.Protocol)
	if f == nil {
		r.foreign = append(r.foreign, descriptor.Found{Foreign: true, Text: fmt.Sprintf("nat44 mapping %s tag %q", id, tag)})
		return
	}
	got := mapping{
		id: id, flags: m.Flags & dumpedFlags, tag: tag, single: true,
		locals: []local{{addr: m.LocalIPAddress, port: m.LocalPort, vrf: m.VrfID}},
	}
	if want, ok := r.indexed().wanted[id]; ok && want.m.tag == tag {
		got.pool = want.m.pool
		if want.d == f.candidate && equalMapping(got, *want.m) {
			f.matched++
		}
	}
	f.addMapping(&got)
}

// identities omits the copy that VPP makes of a mapping bound to an interface: the same mapping with the interface's address.
func (r *dnatReader) identities(ids []*nat44_ed.Nat44IdentityMappingDetails) {
	type bound struct {
		port uint16
		tag  string
	}
	ofInterface := map[bound]bool{}
	for _, m := range ids {
		if uint32(m.SwIfIndex) != descriptor.None {
			ofInterface[bound{m.Port, m.Tag}] = true
		}
	}
	for _, m := range ids {
		tag := descriptor.FixedText(m.Tag)
		f := r.owner(tag)
		if f == nil {
			r.foreign = append(r.foreign, descriptor.Found{Foreign: true, Text: fmt.Sprintf("nat44 identity mapping %s tag %q", netip.AddrFrom4(m.IPAddress), tag)})
			continue
		}
		got := identity{addr: m.IPAddress, port: m.Port, proto: m.Protocol, vrf: m.VrfID, tag: tag}
		if m.Flags&nat_types.NAT_IS_ADDR_ONLY != 0 || m.Port == 0 {
			got.port, got.proto = 0, 0
		}
		if uint32(m.SwIfIndex) != descriptor.None {
			got.iface, got.addr = r.w.Name(uint32(m.SwIfIndex)), [4]byte{}
			if f.candidate != nil { // which may use another name of it
				for _, i := range f.candidate.identities {
					if i.iface != "" && r.w.Canonical(i.iface) == got.iface {
						got.iface = i.iface
						break
					}
				}
			}
		} else if ofInterface[bound{m.Port, m.Tag}] && (f.candidate == nil || !slices.Contains(f.candidate.identities, got)) {
			continue
		}
		f.ids = append(f.ids, got)
	}
}

func (r *dnatReader) result() []descriptor.Found {
	out := make([]descriptor.Found, 0, len(r.order)+len(r.foreign))
	for _, f := range r.order {
		out = append(out, f.result())
	}
	return append(out, r.foreign...)
}

func (f *dnatFound) result() descriptor.Found {
	slices.SortFunc(f.ids, compareIdentities)
	if c := f.candidate; c != nil && f.matched == len(c.mappings) && f.len() == f.matched && slices.Equal(f.ids, c.identities) {
		return descriptor.Found{Key: c.key, State: c, Ours: true}
	}
	if f.one != nil {
		f.mappings = []mapping{*f.one}
	}
	slices.SortFunc(f.mappings, func(a, b mapping) int { return cmp.Compare(a.id, b.id) })
	d := &dnat{label: f.label, key: kv.DNat44Key(f.label), mappings: f.mappings, identities: f.ids}
	if f.candidate != nil {
		d.label, d.key = f.candidate.label, f.candidate.key
	}
	return descriptor.Found{Key: d.key, State: d, Ours: true}
}
