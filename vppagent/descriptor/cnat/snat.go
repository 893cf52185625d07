package cnat

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	binapi "go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	binapi26 "github.com/contiv-agent/contiv-agent/vpp/binapi/cnat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	idSnatAddresses = "cnat_get_snat_addresses"
	idSnatShown     = "show cnat snat-policy"
	idSnatNewer     = "cnat_snat_addresses_dump"
	noSnatPolicy    = "no default snat policy" // what VPP 26.06 says of it
)

// snatPolicy is a compiled SnatPolicy, or what VPP shows of one.
type snatPolicy struct {
	kind     cnat.SnatPolicy_Kind
	v4, v6   netip.Addr     // invalid: none
	iface    bool           // in VPP they are an interface's
	excluded []netip.Prefix // sorted, each once
}

// unknown is the kind of a policy that has no address: what was said of it last may have been refused, or never have arrived.
const unknown cnat.SnatPolicy_Kind = -1

// SnatPolicy describes our SnatPolicy. VPP shows addresses in a message, prefixes on its command line only, and the kind nowhere
// (VPP 24.06 to 26.06): an address reports that VPP took the kind it was made with. It is set when all the rest was taken, and goes
// before anything else does; another kind is another policy. Whose one it is, and of which kind, is in the journal, else as it is wanted.
//
// From its start VPP's policy is ALL, without an address, so that nothing happens. VPP 26.06 has no policy before it has an address,
// and dies of being told of one: there, what is said of it follows the addresses.
func SnatPolicy() *descriptor.Descriptor {
	d := descriptor.Spec[*cnat.SnatPolicy, *snatPolicy]{
		Name: "cnat-snat-policy", Prefix: kv.SnatPolicyKey,
		Compile: compileSnatPolicy, Message: (*snatPolicy).message,
		Equal: func(have, want *snatPolicy) bool {
			return have.kind == want.kind && have.sameAddresses(want) && slices.Equal(have.excluded, want.excluded)
		},
		Dependencies: (*snatPolicy).routes,
		Recreate:     func(have, want *snatPolicy) bool { return have.kind != want.kind && have.addressed() },
		Create: func(w *descriptor.World, p *snatPolicy) ([]descriptor.Op, error) {
			return changeSnat(w, &snatPolicy{kind: unknown}, p), nil
		},
		Update: func(w *descriptor.World, have, want *snatPolicy) ([]descriptor.Op, error) {
			return changeSnat(w, have, want), nil
		},
		Delete:   func(w *descriptor.World, p *snatPolicy) ([]descriptor.Op, error) { return dropSnat(w, p), nil },
		Dumps:    snatDumps,
		Retrieve: retrieveSnatPolicy,
	}.Descriptor()
	d.Unmarked = func(have any) bool { return have.(*snatPolicy).kind == unknown }
	return d
}

// routes of excluded prefixes come before the policy: a packet that leaves by the default route for want of them is no longer one that
// the policy leaves alone.
func (p *snatPolicy) routes() (deps []descriptor.Dependency) {
	for _, x := range p.excluded {
		deps = append(deps, descriptor.Dependency{Key: kv.RejectRouteKey(0, x.String()), Loose: true})
	}
	return deps
}

func (p *snatPolicy) sameAddresses(o *snatPolicy) bool {
	return p.v4 == o.v4 && p.v6 == o.v6 && p.iface == o.iface
}

func compileSnatPolicy(_ string, m *cnat.SnatPolicy) (*snatPolicy, error) {
	p := &snatPolicy{kind: m.GetKind()}
	var err error
	if p.kind < 0 || p.kind > cnat.SnatPolicy_KUBERNETES {
		return nil, fmt.Errorf("kind: unknown %d", p.kind)
	}
	if m.GetIpv4Address() != "" {
		if p.v4, err = descriptor.Parse4("ipv4_address", m.GetIpv4Address()); err != nil {
			return nil, err
		}
	}
	if m.GetIpv6Address() != "" {
		if p.v6, err = descriptor.ParseAddr("ipv6_address", m.GetIpv6Address()); err == nil && !p.v6.Is6() {
			err = fmt.Errorf("ipv6_address: %s is an IPv4 address", p.v6)
		}
		if err != nil {
			return nil, err
		}
	}
	for n, text := range m.GetExcludedPrefixes() {
		x, err := descriptor.ParsePrefix(fmt.Sprintf("excluded_prefixes[%d]", n), text)
		if err != nil {
			return nil, err
		}
		p.excluded = append(p.excluded, x.Masked())
	}
	sortPrefixes(p.excluded)
	p.excluded = slices.Compact(p.excluded)
	switch {
	case p.v4 == netip.IPv4Unspecified() || p.v6 == netip.IPv6Unspecified():
		return nil, errors.New("ipv4_address, ipv6_address: all zeros is no address")
	case !p.v4.IsValid() && !p.v6.IsValid():
		return nil, errors.New("ipv4_address: neither this nor ipv6_address is set, and nothing would get another source")
	case p.kind == cnat.SnatPolicy_ALL && len(p.excluded) > 0:
		return nil, errors.New("excluded_prefixes: not with kind ALL, which excludes nothing")
	}
	return p, nil
}

func sortPrefixes(list []netip.Prefix) {
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
}

func (p *snatPolicy) message() *cnat.SnatPolicy {
	m := &cnat.SnatPolicy{Kind: p.kind}
	if p.v4.IsValid() {
		m.Ipv4Address = p.v4.String()
	}
	if p.v6.IsValid() {
		m.Ipv6Address = p.v6.String()
	}
	for _, x := range p.excluded {
		m.ExcludedPrefixes = append(m.ExcludedPrefixes, x.String())
	}
	return m
}

// changeSnat excludes prefixes before anything gets another source because of the change, and takes exceptions back after. The kind is
// said before each address: the guard lets none out on a connection that heard of no policy.
func changeSnat(w *descriptor.World, have, want *snatPolicy) []descriptor.Op {
	var add, del []descriptor.Op
	for _, x := range want.excluded {
		if !slices.Contains(have.excluded, x) {
			add = append(add, exclude(x, true))
		}
	}
	for _, x := range have.excluded {
		if !slices.Contains(want.excluded, x) {
			del = append(del, exclude(x, false))
		}
	}
	kind, addresses := []descriptor.Op{{Call: descriptor.Write(snatKind(w, want.kind))}}, []descriptor.Op{want.sendAddresses(w)}
	switch {
	case have.kind == want.kind && have.sameAddresses(want):
		return append(add, del...)
	case factsOf(w).newer: // an address comes first, and takes the kind with it when it goes
		return descriptor.InTurn(slices.Concat(addresses, []descriptor.Op{holdTables()}, add, kind, del))
	case have.addressed(): // of the same kind
		return descriptor.InTurn(slices.Concat(add, kind, addresses, del))
	}
	return descriptor.InTurn(slices.Concat(add, del, kind, addresses))
}

func (p *snatPolicy) addressed() bool { return p.v4.IsValid() || p.v6.IsValid() || p.iface }

// holdTables puts local0, which no packet comes in by, into the first table. VPP 26.06 takes a policy for new when that table is empty
// (cnat_snat_policy_entry_is_init): it forgets the excluded prefixes, and ignores who leaves another table.
func holdTables() descriptor.Op {
	return descriptor.Op{Call: descriptor.Write(&binapi.CnatSnatPolicyAddDelIf{SwIfIndex: 0, IsAdd: 1, Table: binapi.CNAT_POLICY_INCLUDE_V4})}
}

// dropSnat leaves VPP as it began. Where there is no policy without an address, that is all there is to take away; VPP 26.06 dies of
// it if a translation of that address has gone before (cnat_snat_cleanup), unless it is told of the address again.
func dropSnat(w *descriptor.World, have *snatPolicy) []descriptor.Op {
	ops := []descriptor.Op{(&snatPolicy{}).sendAddresses(w)}
	if factsOf(w).newer {
		if have.v4.IsValid() || have.v6.IsValid() {
			ops = append([]descriptor.Op{have.sendAddresses(w)}, ops...)
		}
		return descriptor.InTurn(ops)
	}
	for _, x := range have.excluded {
		ops = append(ops, exclude(x, false))
	}
	return descriptor.InTurn(append(ops, descriptor.Op{Call: descriptor.Write(snatKind(w, cnat.SnatPolicy_ALL))})) // while an address stands, the kind stays
}

// sendAddresses asks VPP 26.06 for no route to the address: by that route VPP drops all packets to the address that are in none of cnat's sessions,
// as those of tunnels to this node and those for its kernel (ip4-cnat-return, CNAT_TR_FLAG_EXCLUSIVE). Answers meet cnat's features where they
// come in. A policy that VPP has already keeps its route.
func (p *snatPolicy) sendAddresses(w *descriptor.World) descriptor.Op {
	if factsOf(w).newer && p.addressed() {
		m := &binapi26.CnatSetSnatAddressesV2{SwIfIndex: interface_types.InterfaceIndex(descriptor.None), Flags: binapi26.CNAT_SNAT_POLICY_F_NO_CLIENT}
		if p.v4.IsValid() {
			m.SnatIP4 = p.v4.As4()
		}
		if p.v6.IsValid() {
			m.SnatIP6 = p.v6.As16()
		}
		return descriptor.Op{Call: descriptor.Write(m)}
	}
	m := &binapi.CnatSetSnatAddresses{SwIfIndex: interface_types.InterfaceIndex(descriptor.None)}
	if p.v4.IsValid() {
		m.SnatIP4 = p.v4.As4()
	}
	if p.v6.IsValid() {
		m.SnatIP6 = p.v6.As16()
	}
	return descriptor.Op{Call: descriptor.Write(m)}
}

// snatKind is the message in the version VPP has; the kinds have the same numbers everywhere.
func snatKind(w *descriptor.World, k cnat.SnatPolicy_Kind) api.Message {
	if factsOf(w).newer {
		return &binapi26.CnatSetSnatPolicy{Policy: binapi26.CnatSnatPolicies(k)}
	}
	return &binapi.CnatSetSnatPolicy{Policy: binapi.CnatSnatPolicies(k)}
}

func exclude(x netip.Prefix, add bool) descriptor.Op {
	m := &binapi.CnatSnatPolicyAddDelExcludePfx{Prefix: descriptor.ToPrefix(x)}
	if add {
		m.IsAdd = 1
	}
	return descriptor.Op{Gone: !add, Call: descriptor.Write(m)}
}

func snatDumps(*descriptor.World, descriptor.Candidates) []descriptor.Request {
	return []descriptor.Request{
		descriptor.AskRequest(idSnatAddresses, &binapi.CnatGetSnatAddresses{}),
		descriptor.AskRequest(idSnatShown, &vlib.CliInband{Cmd: idSnatShown}),
		descriptor.DumpRequest(idSnatNewer, &binapi26.CnatSnatAddressesDump{}),
	}
}

func retrieveSnatPolicy(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	if _, err := d.Reply(idSnatNewer); err == nil || descriptor.Optional(err) != nil {
		factsOf(w).newer = err == nil
	} else {
		factsOf(w).newer = false
	}
	r, err := d.Reply(idSnatAddresses)
	if factsOf(w).newer && errors.Is(err, api.FEATURE_DISABLED) {
		return nil, nil // there is no policy, so that nothing of one is left
	}
	if err != nil {
		return nil, descriptor.Optional(err)
	}
	m, ok := r.Msg.(*binapi.CnatGetSnatAddressesReply)
	if !ok {
		return nil, fmt.Errorf("%s: got %T", idSnatAddresses, r.Msg)
	}
	shown, err := shownSnat(d)
	if err != nil {
		return nil, err
	}
	got := &snatPolicy{iface: uint32(m.SwIfIndex) != descriptor.None && uint32(m.SwIfIndex) != 0, excluded: shown.excluded}
	if a := netip.AddrFrom4(m.SnatIP4); !a.IsUnspecified() {
		got.v4 = a
	}
	if a := netip.AddrFrom16(m.SnatIP6); !a.IsUnspecified() {
		got.v6 = a
	}
	candidate, going, made, wanted := false, true, unknown, unknown
	c.Each(func(_ string, state any, want bool) {
		candidate, going = true, going && !want
		if kind := state.(*snatPolicy).kind; want {
			wanted = kind
		} else if made == unknown {
			made = kind
		}
	})
	// Nothing is shown of one of which only the kind is left: it goes last.
	if shows := got.v4.IsValid() || got.v6.IsValid() || len(got.excluded) > 0; !candidate || !shows && !going {
		return nil, nil
	}
	switch got.kind = made; {
	case !got.addressed():
		got.kind = unknown
	case made == unknown:
		got.kind = wanted
	}
	return []descriptor.Found{{Key: kv.SnatPolicyKey, State: got}}, nil
}

// snatShown is what VPP's command line tells of source NAT.
type snatShown struct {
	excluded []netip.Prefix
	tables   [cnatTables]map[string]bool // by VPP's name of the interface
}

// shownSnat reads `show cnat snat-policy` (VPP 24.06 to 26.06): a hash table whose entries end in a prefix, then the names of the
// interfaces in each table. VPP 26.06 says which end of a packet a prefix is about, which for the excluded ones is dst, and has
// nothing to show while there is no policy.
func shownSnat(d *descriptor.Dump) (s snatShown, err error) {
	r, err := d.Reply(idSnatShown)
	if m, ok := r.Msg.(*vlib.CliInbandReply); ok && err != nil && strings.Contains(m.Reply, noSnatPolicy) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	m, ok := r.Msg.(*vlib.CliInbandReply)
	if !ok {
		return s, fmt.Errorf("%s: got %T", idSnatShown, r.Msg)
	}
	table := -1
	for line := range strings.Lines(m.Reply) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutSuffix(line, " interfaces:"); is {
			table = slices.Index([]string{"Included v4", "Included v6", "k8s pod", "k8s host"}, name)
			continue
		}
		if table >= 0 && line != "" {
			if s.tables[table] == nil {
				s.tables[table] = map[string]bool{}
			}
			s.tables[table][line] = true
			continue
		}
		if _, text, has := strings.Cut(line, ": "); has && table < 0 {
			if x, err := netip.ParsePrefix(strings.TrimSuffix(text, " dst")); err == nil {
				s.excluded = append(s.excluded, x)
			}
		}
	}
	sortPrefixes(s.excluded)
	return s, nil
}
