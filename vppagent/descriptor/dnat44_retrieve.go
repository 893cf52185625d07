package descriptor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/keyed"
)

const (
	idLB       = "nat44_lb_static_mapping_dump"
	idStatic   = "nat44_static_mapping_dump"
	idIdentity = "nat44_identity_mapping_dump"
)

func dnatDumps(*World, Candidates) []Request {
	return []Request{
		dump(idLB, &nat44_ed.Nat44LbStaticMappingDump{}),
		dump(idStatic, &nat44_ed.Nat44StaticMappingDump{}),
		dump(idIdentity, &nat44_ed.Nat44IdentityMappingDump{}),
	}
}

// dnatReader puts the mappings of a dump together again, by the labels in their tags. The common case is that everything
// is as wanted; then nothing is built, the wanted state itself is what is found.
type dnatReader struct {
	w       *World
	padded  bool
	wanted  map[natID]wantedMapping
	byLabel map[string]*dnat // label as in tags (maybe hashed) → candidate
	found   map[string]*dnatFound
	last    *dnatFound // of the previous mapping: neighbours are often of one service
	lastTag string
	foreign []Found
}

type wantedMapping struct {
	m *mapping
	d *dnat
}

// dnatFound is one DNat44 so far.
type dnatFound struct {
	candidate *dnat // nil: unknown
	label     string
	matched   int // mappings found exactly as in candidate
	mappings  []mapping
	ids       []identity
}

func retrieveDNat(w *World, d *Dump, c Candidates) ([]Found, error) {
	r := &dnatReader{w: w, padded: w.padded(), wanted: map[natID]wantedMapping{}, byLabel: map[string]*dnat{}, found: map[string]*dnatFound{}}
	c.Each(r.candidate)
	lbs, err := details[*nat44_ed.Nat44LbStaticMappingDetails](d, idLB)
	if err != nil {
		return nil, err
	}
	for _, m := range lbs {
		r.lb(m)
	}
	singles, err := details[*nat44_ed.Nat44StaticMappingDetails](d, idStatic)
	if err != nil {
		return nil, err
	}
	for _, m := range singles {
		r.single(m)
	}
	ids, err := details[*nat44_ed.Nat44IdentityMappingDetails](d, idIdentity)
	if err != nil {
		return nil, err
	}
	r.identities(ids)
	return r.result(), nil
}

func (r *dnatReader) candidate(_ string, state any, wanted bool) {
	d := state.(*dnat)
	label := d.label
	if _, inTag, ok := parseTag(newTag("n", fingerprint(""), label), "n", true); ok {
		label = inTag
	}
	if _, known := r.byLabel[label]; !known || wanted {
		r.byLabel[label] = d
	}
	for i := range d.mappings {
		m := &d.mappings[i]
		if _, taken := r.wanted[m.id]; !taken || wanted {
			r.wanted[m.id] = wantedMapping{m, d}
		}
	}
}

// owner returns where a mapping with that tag belongs, nil if it is not ours.
func (r *dnatReader) owner(tag string) *dnatFound {
	if tag == r.lastTag && r.last != nil {
		return r.last
	}
	_, label, ok := parseTag(tag, "n", true)
	if !ok {
		return nil
	}
	f := r.found[label]
	if f == nil {
		f = &dnatFound{candidate: r.byLabel[label], label: label}
		r.found[label] = f
	}
	r.last, r.lastTag = f, tag
	return f
}

const dumpedFlags = nat_types.NAT_IS_OUT2IN_ONLY | nat_types.NAT_IS_TWICE_NAT | nat_types.NAT_IS_SELF_TWICE_NAT | nat_types.NAT_IS_ADDR_ONLY

func (r *dnatReader) lb(m *nat44_ed.Nat44LbStaticMappingDetails) {
	id := newNATID(m.ExternalAddr, m.ExternalPort, m.Protocol)
	tag := text(m.Tag)
	f := r.owner(tag)
	if f == nil {
		r.foreign = append(r.foreign, Found{Foreign: true, Text: fmt.Sprintf("nat44 load-balanced mapping %s tag %q", id, tag)})
		return
	}
	if want, ok := r.wanted[id]; ok && want.d == f.candidate && want.m.tag == tag && want.m.flags == m.Flags&dumpedFlags && r.sameLocals(m.Locals, want.m.locals) {
		f.matched++
		f.mappings = append(f.mappings, *want.m)
		return
	}
	got := mapping{id: id, flags: m.Flags & dumpedFlags, tag: tag, raw: make([]local, len(m.Locals))}
	for i, l := range m.Locals {
		got.raw[i] = local{addr: l.Addr, port: l.Port, weight: l.Probability, vrf: l.VrfID}
	}
	got.strip(r.padded)
	if want, ok := r.wanted[id]; ok && want.m.tag == tag {
		got.affinity = want.m.affinity
	}
	f.mappings = append(f.mappings, got)
}

// sameLocals tells that a dump shows exactly what is sent for backends, in the same order or not.
func (r *dnatReader) sameLocals(got []nat44_ed.Nat44LbAddrPort, backends []local) bool {
	want := represent(r.padded, backends)
	if len(got) != len(want) {
		return false
	}
	inOrder := true
	for i, l := range got {
		if lbAddrPort(want[i]) != l {
			inOrder = false
			break
		}
	}
	if inOrder {
		return true
	}
	sorted := make([]local, len(got))
	for i, l := range got {
		sorted[i] = local{addr: l.Addr, port: l.Port, weight: l.Probability, vrf: l.VrfID}
	}
	slices.SortFunc(sorted, compareLocals)
	want = slices.Clone(want)
	slices.SortFunc(want, compareLocals)
	return slices.Equal(sorted, want)
}

// strip finds the backends in raw, and forgets raw if it is what we would make for them.
func (m *mapping) strip(padded bool) {
	backends := make([]local, 0, len(m.raw))
	for _, l := range m.raw {
		if l == pads[0] || l == pads[1] || l == dropPad || slices.ContainsFunc(backends, l.same) {
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
	tag := text(m.Tag)
	f := r.owner(tag)
	id := newNATID(m.ExternalIPAddress, m.ExternalPort, m.Protocol)
	if f == nil {
		r.foreign = append(r.foreign, Found{Foreign: true, Text: fmt.Sprintf("nat44 mapping %s tag %q", id, tag)})
		return
	}
	got := mapping{
		id: id, flags: m.Flags & dumpedFlags, tag: tag, single: true,
		locals: []local{{addr: m.LocalIPAddress, port: m.LocalPort, vrf: m.VrfID}},
	}
	if want, ok := r.wanted[id]; ok && want.m.tag == tag {
		got.pool = want.m.pool
		if want.d == f.candidate && equalMapping(got, *want.m) {
			f.matched++
		}
	}
	f.mappings = append(f.mappings, got)
}

// identities leaves out what VPP made itself of a mapping bound to an interface: the same with the interface's address.
func (r *dnatReader) identities(ids []*nat44_ed.Nat44IdentityMappingDetails) {
	type bound struct {
		port uint16
		tag  string
	}
	ofInterface := map[bound]bool{}
	for _, m := range ids {
		if uint32(m.SwIfIndex) != none {
			ofInterface[bound{m.Port, m.Tag}] = true
		}
	}
	for _, m := range ids {
		tag := text(m.Tag)
		f := r.owner(tag)
		if f == nil {
			r.foreign = append(r.foreign, Found{Foreign: true, Text: fmt.Sprintf("nat44 identity mapping %s tag %q", netip.AddrFrom4(m.IPAddress), tag)})
			continue
		}
		got := identity{addr: m.IPAddress, port: m.Port, proto: m.Protocol, vrf: m.VrfID, tag: tag}
		if m.Flags&nat_types.NAT_IS_ADDR_ONLY != 0 || m.Port == 0 {
			got.port, got.proto = 0, 0
		}
		if uint32(m.SwIfIndex) != none {
			got.iface, got.addr = r.w.Name(uint32(m.SwIfIndex)), [4]byte{}
			if f.candidate != nil { // which may call it by another name
				for _, i := range f.candidate.identities {
					if i.iface != "" && r.w.canonical(i.iface) == got.iface {
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

func (r *dnatReader) result() []Found {
	out := make([]Found, 0, len(r.found)+len(r.foreign))
	for _, f := range r.found {
		out = append(out, f.result())
	}
	slices.SortFunc(out, func(a, b Found) int { return strings.Compare(a.Key, b.Key) })
	return append(out, r.foreign...)
}

func (f *dnatFound) result() Found {
	slices.SortFunc(f.ids, compareIdentities)
	if c := f.candidate; c != nil && f.matched == len(c.mappings) && len(f.mappings) == f.matched && slices.Equal(f.ids, c.identities) {
		return Found{Key: c.key, State: c, Ours: true}
	}
	slices.SortFunc(f.mappings, func(a, b mapping) int { return cmp.Compare(a.id, b.id) })
	d := &dnat{label: f.label, key: keyed.DNat44Key(f.label), mappings: f.mappings, identities: f.ids}
	if f.candidate != nil {
		d.label, d.key = f.candidate.label, f.candidate.key
	}
	return Found{Key: d.key, State: d, Ours: true}
}
