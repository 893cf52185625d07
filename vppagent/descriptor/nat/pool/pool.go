// Package pool turns address pools of NAT44-ED into requests for single addresses, and dumped addresses into pools.
//
// Invariant: every address of VPP belongs to at most one pool.
package pool

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	idPools = "nat44_address_dump"
	// maxPool bounds the addresses of one pool: VPP keeps a per-address array of port counters.
	maxPool = 1024
	// TwiceNATPrefix starts the keys derived from twice-NAT pools; mappings with twice-NAT need any of them.
	TwiceNATPrefix = "vpp/nat44/twiceNAT-pool/"
)

// natPool is a range of addresses that NAT may use as source. have is nil, or the addresses of it that VPP has, sorted.
type natPool struct {
	key, name   string
	first, last netip.Addr
	vrf         uint32
	twice       bool
	have        []natAddress
}

// natAddress is an address in one of VPP's two pools.
type natAddress struct {
	addr  netip.Addr
	vrf   uint32
	twice bool
}

func compareNATAddresses(a, b natAddress) int {
	return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.vrf, b.vrf), strings.Compare(a.claimedName(), b.claimedName()))
}

// claimedName: an address is once in each pool, regardless of the VRF.
func (a natAddress) claimedName() string { return fmt.Sprintf("nat44-pool %t %s", a.twice, a.addr) }

func (a natAddress) addressRequest(add bool) descriptor.Op {
	m := &nat44_ed.Nat44AddDelAddressRange{FirstIPAddress: a.addr.As4(), LastIPAddress: a.addr.As4(), VrfID: a.vrf, IsAdd: add}
	if a.twice {
		m.Flags = nat_types.NAT_IS_TWICE_NAT
	}
	if add {
		return descriptor.Op{Call: descriptor.Write(m), Takes: descriptor.Claim{Name: a.claimedName()}}
	}
	return descriptor.Op{Call: descriptor.Write(m), Frees: descriptor.Claim{Name: a.claimedName()}, Gone: true}
}

// Nat44AddressPool describes ligato's Nat44AddressPool. VPP has addresses, not ranges: the wanted values and the journal decide
// which range an address belongs to, so that adjacent pools stay apart.
func Nat44AddressPool() *descriptor.Descriptor {
	return descriptor.Spec[*nat.Nat44AddressPool, *natPool]{
		Name: "nat44-pool", Prefix: "config/vpp/nat/v2/nat44-pool/",
		Compile: compilePool,
		Message: func(p *natPool) *nat.Nat44AddressPool {
			return &nat.Nat44AddressPool{Name: p.name, VrfId: p.vrf, FirstIp: p.first.String(), LastIp: p.last.String(), TwiceNat: p.twice}
		},
		Equal: func(have, want *natPool) bool {
			return have.have == nil && have.first == want.first && have.last == want.last && have.vrf == want.vrf && have.twice == want.twice
		},
		Dependencies: func(p *natPool) []descriptor.Dependency {
			deps := []descriptor.Dependency{{Key: kv.Nat44GlobalKey}}
			if p.vrf != 0 && p.vrf != descriptor.None {
				deps = append(deps, descriptor.Dependency{Key: descriptor.VRFKey(p.vrf, false)})
			}
			return deps
		},
		Derived: func(p *natPool) []descriptor.Derived {
			if !p.twice {
				return nil
			}
			return []descriptor.Derived{{Key: kv.Nat44TwiceNATPoolKey(p.vrf, p.first.String(), p.last.String())}}
		},
		Claims: func(p *natPool) []string {
			var out []string
			for _, a := range p.poolAddrs() {
				out = append(out, a.claimedName())
			}
			return out
		},
		Create: func(_ *descriptor.World, p *natPool) ([]descriptor.Op, error) {
			return natAddresses(p.poolAddrs(), true), nil
		},
		Update: updatePool,
		Delete: func(_ *descriptor.World, p *natPool) ([]descriptor.Op, error) {
			return natAddresses(p.poolAddrs(), false), nil
		},
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{descriptor.DumpRequest(idPools, &nat44_ed.Nat44AddressDump{})}
		},
		Retrieve: retrievePools,
	}.Descriptor()
}

func compilePool(key string, m *nat.Nat44AddressPool) (*natPool, error) {
	first, err := descriptor.Parse4("first_ip", m.GetFirstIp())
	if err != nil {
		return nil, err
	}
	last := first
	if m.GetLastIp() != "" {
		if last, err = descriptor.Parse4("last_ip", m.GetLastIp()); err != nil {
			return nil, err
		}
	}
	if last.Less(first) {
		return nil, fmt.Errorf("last_ip: %s is before first_ip %s", last, first)
	}
	p := &natPool{key: key, name: m.GetName(), first: first, last: last, vrf: m.GetVrfId(), twice: m.GetTwiceNat()}
	if len(p.poolAddrs()) > maxPool {
		return nil, fmt.Errorf("last_ip: more than %d addresses", maxPool)
	}
	if first.IsUnspecified() {
		return nil, errors.New("first_ip: 0.0.0.0")
	}
	return p, nil
}

// poolAddrs returns the actual or wanted addresses; at most maxPool+1.
func (p *natPool) poolAddrs() (out []natAddress) {
	if p.have != nil {
		return p.have
	}
	for a := p.first; a.IsValid() && !p.last.Less(a) && len(out) <= maxPool; a = a.Next() {
		out = append(out, natAddress{a, p.vrf, p.twice})
	}
	return out
}

// natAddresses are added and removed one by one: another pool may wait for each.
func natAddresses(addresses []natAddress, add bool) []descriptor.Op {
	ops := make([]descriptor.Op, len(addresses))
	for i, a := range addresses {
		ops[i] = a.addressRequest(add)
	}
	return ops
}

// updatePool adds the missing addresses and removes the superfluous ones; each removal cuts the sessions of its address only. An
// address that changes its VRF is removed first, because VPP accepts none twice.
func updatePool(_ *descriptor.World, have, want *natPool) ([]descriptor.Op, error) {
	old, now := have.poolAddrs(), want.poolAddrs()
	var first, adds, last []descriptor.Op
	for _, a := range now {
		if !slices.Contains(old, a) {
			adds = append(adds, a.addressRequest(true))
		}
	}
	for _, a := range old {
		switch {
		case slices.Contains(now, a):
		case slices.ContainsFunc(now, func(n natAddress) bool { return n.claimedName() == a.claimedName() }):
			first = append(first, a.addressRequest(false))
		default:
			last = append(last, a.addressRequest(false))
		}
	}
	return slices.Concat(first, adds, last), nil
}

func retrievePools(_ *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	addresses, err := descriptor.Details[*nat44_ed.Nat44AddressDetails](d, idPools)
	if err != nil {
		return nil, err
	}
	inVPP := make(map[natAddress]string, len(addresses)) // the pool it is assigned to; "": none yet
	for _, m := range addresses {
		inVPP[natAddress{netip.AddrFrom4(m.IPAddress), m.VrfID, m.Flags&nat_types.NAT_IS_TWICE_NAT != 0}] = ""
	}
	pools, got, ours := map[string]*natPool{}, map[string][]natAddress{}, map[string]bool{}
	// Wanted pools choose first among addresses that were ours under another name. Those stay ours, and so is the pool that has
	// them now, even if it still lacks addresses.
	for _, pass := range []bool{true, false} {
		c.Each(func(key string, state any, wanted bool) {
			if wanted != pass {
				return
			}
			p := state.(*natPool)
			if pools[key] == nil {
				pools[key] = p
			}
			for _, a := range p.poolAddrs() {
				owner, there := inVPP[a]
				switch {
				case !there:
				case owner == "":
					inVPP[a] = key
					got[key] = append(got[key], a)
				case !wanted:
					ours[owner] = true
				}
			}
		})
	}
	var out []descriptor.Found
	for key, has := range got {
		out = append(out, descriptor.Found{Key: key, State: pools[key].found(has), Ours: ours[key]})
	}
	slices.SortFunc(out, func(a, b descriptor.Found) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// found returns the pool with those of its addresses that VPP has.
func (p *natPool) found(got []natAddress) *natPool {
	part := *p
	part.have = nil
	slices.SortFunc(got, compareNATAddresses)
	if !slices.Equal(got, part.poolAddrs()) {
		part.have = got
	}
	return &part
}
