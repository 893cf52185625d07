package bridge

import "go.fd.io/govpp/binapi/l2"

// Switch returns the interfaces that a frame leaves by which came by an interface, and learns its source. The BVI may be among them: it
// receives the frame. why says why a frame leaves by none.
func (t *Table) Switch(in uint32, src, dst MAC) (out []uint32, why string) {
	p := t.ports[in]
	switch {
	case p.Mode == CrossConnect:
		return []uint32{p.Peer}, ""
	case p.Mode != Member:
		return nil, "no port of a bridge domain"
	}
	d := p.Domain
	if d.Flags&l2.BRIDGE_API_FLAG_LEARN != 0 && d.BVI != in && src[0]&1 == 0 {
		t.learn(Key{d.Index, src}, in)
	}
	if dst[0]&1 != 0 {
		return t.flood(in, p, l2.BRIDGE_API_FLAG_FLOOD)
	}
	if d.Flags&l2.BRIDGE_API_FLAG_FWD == 0 {
		return nil, "the domain does not forward"
	}
	e, known := t.FIB[Key{d.Index, dst}]
	switch {
	case !known:
		return t.flood(in, p, l2.BRIDGE_API_FLAG_UU_FLOOD)
	case e.Filter:
		return nil, "the address is filtered"
	case e.Interface == in:
		return nil, "the address is behind the port that the frame came by"
	case t.joined(p, e.Interface):
		return nil, "split horizon"
	}
	return []uint32{e.Interface}, ""
}

// learn notes where an address is. Entries that were configured stay.
func (t *Table) learn(k Key, in uint32) {
	if e, known := t.FIB[k]; !known || !e.Static {
		t.FIB[k] = Entry{Interface: in}
	}
}

// joined reports whether another interface is in the same split-horizon group.
func (t *Table) joined(p Port, other uint32) bool {
	return p.Group != 0 && t.ports[other].Group == p.Group
}

func (t *Table) flood(in uint32, p Port, flag l2.BdFlags) (out []uint32, why string) {
	if p.Domain.Flags&flag == 0 {
		return nil, "the domain does not flood"
	}
	for _, i := range p.Domain.Members {
		if i != in && !t.joined(p, i) {
			out = append(out, i)
		}
	}
	if len(out) == 0 {
		why = "no other port"
	}
	return out, why
}
