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
	noSnatPolicy    = "no default snat policy" // error text of VPP 26.06
)

// snatPolicy is a compiled SnatPolicy, or one in VPP.
type snatPolicy struct {
	kind     cnat.SnatPolicy_Kind
	v4, v6   netip.Addr     // invalid: none
	iface    bool           // in VPP the addresses are an interface's
	excluded []netip.Prefix // sorted, each once
}

// unknown is the kind of a policy without an address: VPP may have refused, or not received, the last kind.
const unknown cnat.SnatPolicy_Kind = -1

// SnatPolicy describes our SnatPolicy. VPP shows addresses in a message, prefixes on its command line only, and the kind nowhere (VPP
// 24.06 to 26.06). So an address in VPP proves that VPP accepted the policy's kind: the agent sets it after all other fields and removes
// it first; a change of the kind makes another policy. The journal has the owner and the kind, else the desired state gives them.
//
// From its start VPP's policy is ALL, without an address, and has no effect. VPP 26.06 has no policy before it has an address, and
// aborts on messages about one: there, the other fields follow the addresses.
func SnatPolicy() *descriptor.Descriptor {
	d := descriptor.Spec[*cnat.SnatPolicy, *snatPolicy]{
		Name: "cnat-snat-policy", Prefix: kv.SnatPolicyKey,
		Compile: compileSnatPolicy, Message: (*snatPolicy).snatMessage,
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

// routes of excluded prefixes precede the policy: without them a packet takes the default route, and the policy no longer excludes
// it.
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

func (p *snatPolicy) snatMessage() *cnat.SnatPolicy {
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

// changeSnat excludes prefixes before the change gives any packet another source, and removes exclusions after it. The kind is set
// before each address: the guard refuses addresses on a connection that set no kind.
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
	case factsOf(w).newer && have.exceeds(want):
		return descriptor.InTurn(append(removeNewer(w, have), makeNewer(w, want)...))
	case factsOf(w).newer && !have.addressed():
		return descriptor.InTurn(makeNewer(w, want))
	case factsOf(w).newer:
		return descriptor.InTurn(slices.Concat(addresses, []descriptor.Op{holdTables()}, add, kind, del))
	case have.addressed(): // of the same kind
		return descriptor.InTurn(slices.Concat(add, kind, addresses, del))
	}
	return descriptor.InTurn(slices.Concat(add, del, kind, addresses))
}

func (p *snatPolicy) addressed() bool { return p.v4.IsValid() || p.v6.IsValid() || p.iface }

// exceeds reports that the policy has an address that o lacks, or those of an interface. VPP 26.06 ignores an absent address in a message that has another
// one (cnat_set_snat): only the removal of the whole policy removes it.
func (p *snatPolicy) exceeds(o *snatPolicy) bool {
	return p.iface && !o.iface || p.v4.IsValid() && !o.v4.IsValid() || p.v6.IsValid() && !o.v6.IsValid()
}

// makeNewer makes a policy in VPP 26.06, which has none: the address first, then the other fields. The tables ended with the former policy; interfaces that
// VPP already has join them again before the kind makes the tables count.
func makeNewer(w *descriptor.World, p *snatPolicy) []descriptor.Op {
	ops := []descriptor.Op{p.sendAddresses(w), holdTables()}
	for _, x := range p.excluded {
		ops = append(ops, exclude(x, true))
	}
	return append(append(ops, joinTables(w)...), descriptor.Op{Call: descriptor.Write(snatKind(w, p.kind))})
}

// holdTables puts local0, by which no packet enters, into the first table. VPP 26.06 takes a policy for new when that table is empty
// (cnat_snat_policy_entry_is_init): it forgets the excluded prefixes, and ignores removals from another table.
func holdTables() descriptor.Op {
	return descriptor.Op{Call: descriptor.Write(&binapi.CnatSnatPolicyAddDelIf{SwIfIndex: 0, IsAdd: 1, Table: binapi.CNAT_POLICY_INCLUDE_V4})}
}

// dropSnat restores VPP's initial policy.
func dropSnat(w *descriptor.World, have *snatPolicy) []descriptor.Op {
	if factsOf(w).newer {
		return descriptor.InTurn(removeNewer(w, have))
	}
	ops := []descriptor.Op{(&snatPolicy{}).sendAddresses(w)}
	for _, x := range have.excluded {
		ops = append(ops, exclude(x, false))
	}
	return descriptor.InTurn(append(ops, descriptor.Op{Call: descriptor.Write(snatKind(w, cnat.SnatPolicy_ALL))})) // while an address stands, the kind stays
}

// removeNewer removes a policy from VPP 26.06 by its addresses, and with them all of it. VPP aborts then if a translation of an address was removed before
// (cnat_snat_cleanup), unless the agent sets the address again first.
func removeNewer(w *descriptor.World, have *snatPolicy) (ops []descriptor.Op) {
	if have.v4.IsValid() || have.v6.IsValid() {
		ops = append(ops, have.sendAddresses(w))
	}
	return append(ops, (&snatPolicy{}).sendAddresses(w))
}

// sendAddresses asks VPP 26.06 for no route to the address: by that route VPP drops all packets to the address that are in none of cnat's sessions,
// such as packets of tunnels to this node and packets for its kernel (ip4-cnat-return, CNAT_TR_FLAG_EXCLUSIVE). Answers meet cnat's features on the
// interface they enter by. A policy that VPP already has keeps its route.
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

// snatKind returns the message in VPP's version; the kinds have the same numbers in all versions.
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
		return nil, nil // VPP has no policy, and no remainder of one
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
	// VPP does not show a policy that has only a kind: the kind is removed last.
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

// snatShown is the output of VPP's command line about source NAT.
type snatShown struct {
	excluded []netip.Prefix
	tables   [cnatTables]map[string]bool // by VPP's name of the interface
}

// shownSnat parses `show cnat snat-policy` (VPP 24.06 to 26.06): a hash table whose entries end in a prefix, then the names of
// the interfaces in each table. VPP 26.06 adds which end of a packet a prefix is about (dst for the excluded ones), and prints
// nothing without a policy.
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
