package descriptor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/keyed"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

const (
	idPools = "nat44_address_dump"
	// maxPool bounds the addresses of one pool: VPP keeps a per-address array of port counters.
	maxPool = 1024
	// twiceNATPrefix starts the keys derived from twice-NAT pools; mappings with twice-NAT need any of them.
	twiceNATPrefix = "vpp/nat44/twiceNAT-pool/"
)

// natPool is a range of addresses NAT may use as source. have is nil, or what VPP has of the range, sorted.
type natPool struct {
	key, name   string
	first, last netip.Addr
	vrf         uint32
	twice       bool
	have        []netip.Addr
}

// Nat44AddressPool describes ligato's Nat44AddressPool. VPP knows addresses, not ranges: whose range an address is in is
// a question to the values wanted and the journal, so that pools side by side stay apart.
func Nat44AddressPool() *Descriptor {
	return Spec[*nat.Nat44AddressPool, *natPool]{
		Name: "nat44-pool", Prefix: "config/vpp/nat/v2/nat44-pool/",
		Compile: compilePool,
		Message: func(p *natPool) *nat.Nat44AddressPool {
			return &nat.Nat44AddressPool{Name: p.name, VrfId: p.vrf, FirstIp: p.first.String(), LastIp: p.last.String(), TwiceNat: p.twice}
		},
		Equal: func(have, want *natPool) bool {
			return have.have == nil && have.first == want.first && have.last == want.last && have.vrf == want.vrf && have.twice == want.twice
		},
		Dependencies: func(p *natPool) []Dependency {
			deps := []Dependency{{Key: keyed.Nat44GlobalKey}}
			if p.vrf != 0 && p.vrf != none {
				deps = append(deps, Dependency{Key: vrfKey(p.vrf, false)})
			}
			return deps
		},
		Derived: func(p *natPool) []Derived {
			if !p.twice {
				return nil
			}
			return []Derived{{Key: keyed.Nat44TwiceNATPoolKey(p.vrf, p.first.String(), p.last.String())}}
		},
		Claims: func(p *natPool) []string {
			var out []string
			for _, a := range p.addresses() {
				out = append(out, p.claim(a))
			}
			return out
		},
		Create:   func(_ *World, p *natPool) ([]Op, error) { return p.messages(p.addresses(), true), nil },
		Update:   updatePool,
		Delete:   func(_ *World, p *natPool) ([]Op, error) { return p.messages(p.addresses(), false), nil },
		Dumps:    func(*World, Candidates) []Request { return []Request{dump(idPools, &nat44_ed.Nat44AddressDump{})} },
		Retrieve: retrievePools,
	}.Descriptor()
}

func compilePool(key string, m *nat.Nat44AddressPool) (*natPool, error) {
	first, err := parse4("first_ip", m.GetFirstIp())
	if err != nil {
		return nil, err
	}
	last := first
	if m.GetLastIp() != "" {
		if last, err = parse4("last_ip", m.GetLastIp()); err != nil {
			return nil, err
		}
	}
	if last.Less(first) {
		return nil, fmt.Errorf("last_ip: %s is before first_ip %s", last, first)
	}
	p := &natPool{key: key, name: m.GetName(), first: first, last: last, vrf: m.GetVrfId(), twice: m.GetTwiceNat()}
	if len(p.addresses()) > maxPool {
		return nil, fmt.Errorf("last_ip: more than %d addresses", maxPool)
	}
	if first.IsUnspecified() {
		return nil, errors.New("first_ip: 0.0.0.0")
	}
	return p, nil
}

// addresses are those VPP has, at most maxPool+1.
func (p *natPool) addresses() (out []netip.Addr) {
	if p.have != nil {
		return p.have
	}
	for a := p.first; a.IsValid() && !p.last.Less(a) && len(out) <= maxPool; a = a.Next() {
		out = append(out, a)
	}
	return out
}

func (p *natPool) claim(a netip.Addr) string { return fmt.Sprintf("nat44-pool %t %s", p.twice, a) }

// messages add or remove addresses one by one: each may be waited for by another pool.
func (p *natPool) messages(addresses []netip.Addr, add bool) []Op {
	ops := make([]Op, len(addresses))
	for i, a := range addresses {
		m := &nat44_ed.Nat44AddDelAddressRange{FirstIPAddress: a.As4(), LastIPAddress: a.As4(), VrfID: p.vrf, IsAdd: add}
		if p.twice {
			m.Flags = nat_types.NAT_IS_TWICE_NAT
		}
		ops[i] = Op{Call: write(m), Gone: !add}
		if add {
			ops[i].Takes = p.claim(a)
		} else {
			ops[i].Frees = p.claim(a)
		}
	}
	return ops
}

// updatePool adds the addresses missing and removes those too many; each removal cuts the sessions of its address only.
func updatePool(_ *World, have, want *natPool) ([]Op, error) {
	old, now := have.addresses(), want.addresses()
	if have.vrf != want.vrf || have.twice != want.twice { // VPP takes no address twice
		return append(have.messages(old, false), want.messages(now, true)...), nil
	}
	missing := func(from, in []netip.Addr) (out []netip.Addr) {
		for _, a := range from {
			if !slices.Contains(in, a) {
				out = append(out, a)
			}
		}
		return out
	}
	return append(want.messages(missing(now, old), true), have.messages(missing(old, now), false)...), nil
}

func retrievePools(_ *World, d *Dump, c Candidates) ([]Found, error) {
	addresses, err := details[*nat44_ed.Nat44AddressDetails](d, idPools)
	if err != nil {
		return nil, err
	}
	type address struct {
		addr  netip.Addr
		twice bool
	}
	inVPP := make(map[address]uint32, len(addresses))
	for _, m := range addresses {
		inVPP[address{netip.AddrFrom4(m.IPAddress), m.Flags&nat_types.NAT_IS_TWICE_NAT != 0}] = m.VrfID
	}
	taken := map[address]bool{}
	take := func(p *natPool) []netip.Addr {
		got := []netip.Addr{}
		for _, a := range p.addresses() {
			k := address{a, p.twice}
			if vrf, ok := inVPP[k]; ok && vrf == p.vrf && !taken[k] {
				taken[k] = true
				got = append(got, a)
			}
		}
		return got
	}
	found := map[string]*natPool{}
	// What is wanted has the first choice of addresses that were ours under another name.
	c.Each(func(key string, state any, wanted bool) {
		if p := state.(*natPool); wanted {
			found[key] = p.found(take(p))
		}
	})
	c.Each(func(key string, state any, wanted bool) {
		p := state.(*natPool)
		if wanted {
			return
		}
		got := take(p)
		if old := found[key]; old != nil && len(got) > 0 && old.vrf == p.vrf && old.twice == p.twice {
			got = append(got, old.addresses()...)
			slices.SortFunc(got, netip.Addr.Compare)
		}
		if len(got) > 0 {
			found[key] = p.found(got)
		}
	})
	var out []Found
	for key, p := range found {
		if p != nil {
			out = append(out, Found{Key: key, State: p})
		}
	}
	slices.SortFunc(out, func(a, b Found) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// found is p if VPP has exactly its addresses, nil if it has none, otherwise a pool of what it has.
func (p *natPool) found(got []netip.Addr) *natPool {
	if len(got) == 0 {
		return nil
	}
	part := *p
	part.have = nil
	if slices.Equal(got, part.addresses()) {
		return &part
	}
	part.have = got
	return &part
}

// vrfKey is the key of a VRF other than 0.
func vrfKey(id uint32, v6 bool) string {
	if v6 {
		return keyed.VrfTableKey(id, l3.VrfTable_IPV6)
	}
	return keyed.VrfTableKey(id, l3.VrfTable_IPV4)
}
