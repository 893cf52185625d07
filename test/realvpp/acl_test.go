package realvpp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/vpp"
)

const (
	aclSteps = 14
	// settle is how long VPP may take to clear sessions after it has answered.
	settle = 5 * time.Millisecond
)

// TestVPPAccessLists holds the simulated ACL plugin against the real one: random ACLs and lists, changes of both with and without
// reclassification of sessions, packets and replies before and after; with NAT beside it and without.
func TestVPPAccessLists(t *testing.T) {
	path := theVPP(t)
	cases, first := oracle.Setting(t, "CONTIV_VPP_CASES", defaultCases), oracle.Setting(t, "CONTIV_VPP_SEED", 1)
	cases = max(1, cases/dear)
	t.Logf("%d cases, seeds %d to %d", cases, first, first+cases-1)
	w := startBare(t, path, dualStack())
	for _, v := range []cni.VPP{w.sim, w.lab} {
		v.AddInterface(sim.Interface{Name: edge, Addresses: []netip.Prefix{netip.MustParsePrefix("fd00:e::1/64"), netip.MustParsePrefix("10.14.0.1/24")}})
		if err := v.AddRoute(sim.Route{Prefix: netip.MustParsePrefix("fd00:e::9/128"), Paths: []sim.Path{{Interface: edge}}}); err != nil {
			t.Fatal(err)
		}
	}
	differences, sent := 0, 0
	for seed := first; seed < first+cases && differences < enough; seed++ {
		a := newACLCase(w, seed)
		err := a.run()
		sent += a.sent
		for _, e := range append(a.differences, err) {
			if e != nil {
				differences++
				t.Errorf("seed %d (repeat with CONTIV_VPP_SEED=%d CONTIV_VPP_CASES=1): %v\n%s", seed, seed, e, a.story())
			}
		}
		if err != nil {
			t.FailNow()
		}
	}
	t.Logf("%d cases, %d packets agreed", cases, sent)
}

// edge is an interface that has addresses.
const edge = "edge"

// dualStack is the base with both families.
func dualStack() []model.Object {
	v6 := func(o model.Object, addr, cidr string) model.Object {
		switch o := o.(type) {
		case *model.Node:
			c := *o
			c.InternalIPs = append(slices.Clone(o.InternalIPs), netip.MustParseAddr(addr))
			c.PodCIDRs = append(slices.Clone(o.PodCIDRs), netip.MustParsePrefix(cidr))
			return &c
		case *model.Pod:
			c := *o
			c.IPs = append(slices.Clone(o.IPs), netip.MustParseAddr(addr))
			return &c
		}
		return o
	}
	return []model.Object{
		v6(nodeAt(1), "fd00:16::1", "fd00:1:1::/64"), v6(nodeAt(2), "fd00:16::2", "fd00:1:2::/64"),
		v6(podA, "fd00:1:1::2", ""), v6(podB, "fd00:1:1::3", ""), v6(podFar, "fd00:1:2::2", ""),
	}
}

// aclCase is one random life of the ACL plugin.
type aclCase struct {
	*arrangement
	acls []uint32 // those there are
	six  bool     // IPv6
	hash bool
}

func newACLCase(w *twin, seed uint64) *aclCase {
	a := &arrangement{rng: rand.New(rand.NewPCG(seed, 3))}
	a.randomCase = &randomCase{twin: w, rng: a.rng, port: uint16(33000 + seed*137%30000)}
	return &aclCase{arrangement: a, six: a.chance(3), hash: !a.chance(4)}
}

func (a *aclCase) run() error {
	if err := a.begin(); err != nil {
		return err
	}
	for range aclSteps {
		if err := a.change(); err != nil {
			return err
		}
		for range 2 + a.rng.IntN(3) {
			if err := a.tolerate(a.traffic()); err != nil {
				return err
			}
		}
	}
	return errors.Join(a.compareDumps(), a.end())
}

// begin sets the switches and makes the first ACLs and lists.
func (a *aclCase) begin() error {
	reclassify := a.rng.IntN(2)
	if err := errors.Join(
		a.cli(fmt.Sprintf("set acl-plugin reclassify-sessions %d", reclassify)),
		a.ask(&acl.ACLPluginUseHashLookupSet{Enable: a.hash}),
	); err != nil {
		return err
	}
	if !a.six && a.chance(3) {
		if err := a.nat(); err != nil {
			return err
		}
	}
	for range 2 + a.rng.IntN(4) {
		if err := a.addReplace(^uint32(0)); err != nil {
			return err
		}
	}
	for range 3 {
		if err := a.setList(); err != nil {
			return err
		}
	}
	return nil
}

// nat puts every interface inside and outside, and one mapping.
func (a *aclCase) nat() error {
	msgs := []api.Message{
		&nat44_ed.Nat44EdPluginEnableDisable{Enable: true, Sessions: 4096, Flags: nat44_ed.NAT44_IS_ENDPOINT_DEPENDENT},
		&nat44_ed.Nat44ForwardingEnableDisable{Enable: true}, pool("192.168.16.1", 0), pool("10.1.1.254", nat_types.NAT_IS_TWICE_NAT),
	}
	for _, m := range msgs {
		if err := a.ask(m); err != nil {
			return err
		}
	}
	for _, d := range doors {
		for _, f := range []nat_types.NatConfigFlags{nat_types.NAT_IS_INSIDE, nat_types.NAT_IS_OUTSIDE} {
			if err := a.each(func(i index) api.Message {
				return &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, Flags: f, SwIfIndex: i(d)}
			}); err != nil {
				return err
			}
		}
	}
	return a.ask(&nat44_ed.Nat44AddDelLbStaticMapping{
		IsAdd: true, Flags: nat_types.NAT_IS_OUT2IN_ONLY | nat_types.NAT_IS_SELF_TWICE_NAT, Protocol: uint8(model.TCP),
		ExternalAddr: netip.MustParseAddr("10.96.0.10").As4(), ExternalPort: 80,
		Locals: []nat44_ed.Nat44LbAddrPort{
			{Addr: podA.IPs[0].As4(), Port: 8080, Probability: 1}, {Addr: podB.IPs[0].As4(), Port: 8080, Probability: 1},
		},
	})
}

// index is an interface's number in one of the VPPs.
type index func(name string) interface_types.InterfaceIndex

// each asks both, each with its own numbers of interfaces; they must agree.
func (a *aclCase) each(make func(index) api.Message) error {
	mine := func(name string) interface_types.InterfaceIndex {
		if name == "" {
			return 4000
		}
		return interface_types.InterfaceIndex(a.sim.AddInterface(sim.Interface{Name: name}))
	}
	theirs := func(name string) interface_types.InterfaceIndex {
		if name == "" {
			return 4000
		}
		return a.lab.index[name]
	}
	if err := a.wake(); err != nil {
		return err
	}
	m := make(theirs)
	x := a.beside.conn.Do(context.Background(), vpp.Call{Msg: make(mine)})[0].Err
	y := a.lab.plain.conn.Do(context.Background(), vpp.Call{Msg: m})[0].Err
	line := text(m, a.doors())
	if y != nil {
		line += " refused: " + y.Error()
	}
	a.done = append(a.done, line)
	if fmt.Sprint(x) != fmt.Sprint(y) {
		return fmt.Errorf("%s: the sim says %v, the vpp %v: %w", line, x, y, errDisagree)
	}
	return nil
}

func (a *aclCase) doors() map[uint32]string {
	out := map[uint32]string{}
	for name, i := range a.lab.index {
		out[uint32(i)] = name
	}
	return out
}

// cli changes a setting of both.
func (a *aclCase) cli(cmd string) error {
	a.done = append(a.done, cmd)
	return a.both(&vlib.CliInband{Cmd: cmd})
}

func (a *aclCase) addReplace(i uint32) error {
	m := &acl.ACLAddReplace{ACLIndex: i, Tag: fmt.Sprintf("acl-%d", a.rng.IntN(1000))}
	n := []int{0, 1, 1, 2, 2, 3, 3, 5, 12, 60, 200}[a.rng.IntN(11)]
	for range n {
		r := a.rule()
		if n > manyRules {
			a.narrow(&r)
		}
		m.R = append(m.R, r)
	}
	if a.chance(15) && len(m.R) > 0 {
		a.spoilRule(&m.R[a.rng.IntN(len(m.R))])
	}
	m.Count = uint32(len(m.R))
	if err := a.wake(); err != nil {
		return err
	}
	x := a.beside.conn.Do(context.Background(), vpp.Call{Msg: m})[0]
	y := a.lab.plain.conn.Do(context.Background(), vpp.Call{Msg: m})[0]
	a.done = append(a.done, text(m, nil)+fmt.Sprintf(" %v", y.Err))
	if diff := gocmp.Diff(fmt.Sprint(x.Err), fmt.Sprint(y.Err)); diff != "" {
		return fmt.Errorf("%s: (-sim +vpp) %s: %w", text(m, nil), diff, errDisagree)
	}
	if y.Err != nil {
		return nil
	}
	mine, theirs := x.Msg.(*acl.ACLAddReplaceReply).ACLIndex, y.Msg.(*acl.ACLAddReplaceReply).ACLIndex
	if mine != theirs {
		return fmt.Errorf("%s: the sim numbers it %d, the vpp %d: %w", text(m, nil), mine, theirs, errDisagree)
	}
	if i == ^uint32(0) {
		a.acls = append(a.acls, theirs)
	}
	return nil
}

func (a *aclCase) rule() acl_types.ACLRule {
	r := acl_types.ACLRule{
		IsPermit: acl_types.ACLAction([]int{0, 0, 1, 1, 2, 2, 2}[a.rng.IntN(7)]), SrcPrefix: a.prefix(), DstPrefix: a.prefix(),
		Proto:                 []ip_types.IPProto{0, 0, 1, 6, 6, 6, 17, 17, 132, 132, 58}[a.rng.IntN(11)],
		SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535,
	}
	span := func(first, last *uint16) {
		ports := []uint16{0, 3, 8, 128, 53, 80, 81, 1024, 8080, 33000, 65535}
		if *first = ports[a.rng.IntN(len(ports))]; a.chance(2) {
			*last = *first
		} else if *last = ports[a.rng.IntN(len(ports))]; *last < *first {
			*first, *last = *last, *first
		}
	}
	if a.chance(4) {
		span(&r.SrcportOrIcmptypeFirst, &r.SrcportOrIcmptypeLast)
	}
	if a.chance(2) {
		span(&r.DstportOrIcmpcodeFirst, &r.DstportOrIcmpcodeLast)
	}
	if a.chance(5) {
		r.TCPFlagsMask = []uint8{packet.SYN, packet.SYN | packet.ACK, packet.RST}[a.rng.IntN(3)]
		r.TCPFlagsValue = r.TCPFlagsMask & uint8(a.rng.IntN(32))
	}
	return r
}

// manyRules is where VPP begins to split what collides in its hash table (TM_SPLIT_THRESHOLD, hash_lookup.c).
const manyRules = 39

// narrow makes a rule for few packets: one for many would be the only one of a large ACL that matters.
func (a *aclCase) narrow(r *acl_types.ACLRule) {
	r.Proto = []ip_types.IPProto{6, 17}[a.rng.IntN(2)]
	r.DstPrefix.Address = ip_types.NewAddress(a.addr().AsSlice())
	if r.DstPrefix.Len = 32; a.six {
		r.DstPrefix.Len = 128
	}
	if a.chance(4) {
		return
	}
	first := []uint16{50, 79, 80, 81, 82, 8000, 8080, 8081, uint16(1000 + a.rng.IntN(60000))}[a.rng.IntN(9)]
	r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast = first, first+uint16(a.rng.IntN(3))
	if a.chance(2) {
		r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast = uint16(a.rng.IntN(200)), uint16(200+a.rng.IntN(65000))
	}
}

func (a *aclCase) prefix() ip_types.Prefix {
	bits := []int{32, 32, 31, 24, 24, 23, 16, 12, 8, 1}[a.rng.IntN(10)]
	if a.six {
		bits = a.bits6()
	}
	if a.chance(2) {
		bits = 0
	}
	p, _ := a.addr().Prefix(bits) // the length is one of the family
	return prefix(p)
}

// bits6 leaves out the prefixes of which the simulated VPP knows only half of what VPP before 25.06 does (package acl, BUGS).
func (a *aclCase) bits6() int {
	if a.hash && a.old() {
		return []int{128, 128, 120, 64, 64, 48, 32, 16, 8}[a.rng.IntN(9)]
	}
	return []int{128, 127, 121, 120, 108, 66, 64, 64, 63, 49, 48, 45, 33, 16, 9, 8, 1}[a.rng.IntN(17)]
}

// old reports whether VPP is older than 25.06.
func (a *aclCase) old() bool { return strings.HasPrefix(a.lab.version(), "24.") }

// spoilRule makes one that VPP refuses.
func (a *aclCase) spoilRule(r *acl_types.ACLRule) {
	switch a.rng.IntN(5) {
	case 0:
		r.SrcPrefix = ip_types.Prefix{Address: ip_types.NewAddress([]byte{10, 1, 1, 3}), Len: 24}
	case 1:
		r.DstPrefix = ip_types.Prefix{Address: ip_types.NewAddress([]byte{10, 1, 1, 3}), Len: 24}
	case 2:
		r.DstPrefix = prefix(netip.MustParsePrefix(map[bool]string{false: "2001:db8::/32", true: "10.0.0.0/8"}[a.six]))
	case 3:
		r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast = 9, 8
	case 4:
		r.SrcPrefix.Len = 33
	}
}

// some are ACLs that exist, now and then one that does not, now and then one twice.
func (a *aclCase) some() []uint32 {
	out := slices.Clone(a.acls)
	a.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	out = out[:min(len(out), a.rng.IntN(4))]
	if a.chance(15) && len(out) > 0 {
		out = append(out, out[0])
	}
	if a.chance(25) {
		out = append(out, 777)
	}
	return out
}

func (a *aclCase) setList() error {
	in, out := a.some(), a.some()
	door := a.door()
	if a.chance(40) {
		door = ""
	}
	err := a.each(func(i index) api.Message {
		all := slices.Concat(in, out)
		return &acl.ACLInterfaceSetACLList{SwIfIndex: i(door), Count: uint8(len(all)), NInput: uint8(len(in)), Acls: all}
	})
	time.Sleep(settle)
	return err
}

// change is a random request.
func (a *aclCase) change() error {
	switch a.rng.IntN(12) {
	case 0, 1, 2, 3:
		if len(a.acls) > 0 {
			return a.addReplace(a.acls[a.rng.IntN(len(a.acls))])
		}
		return a.addReplace(^uint32(0))
	case 4:
		return a.addReplace(^uint32(0))
	case 5, 6, 7:
		return a.setList()
	case 8:
		return a.addDel()
	case 9:
		return a.del()
	case 10:
		err := a.each(func(i index) api.Message {
			return &acl.ACLInterfaceSetEtypeWhitelist{SwIfIndex: i(doors[0]), Count: 1, NInput: 1, Whitelist: []uint16{0x88cc}}
		})
		time.Sleep(settle)
		return err
	}
	return nil
}

func (a *aclCase) addDel() error {
	if len(a.acls) == 0 {
		return nil
	}
	add, in, which, door := !a.chance(3), a.chance(2), a.acls[a.rng.IntN(len(a.acls))], a.door()
	err := a.each(func(i index) api.Message {
		return &acl.ACLInterfaceAddDel{SwIfIndex: i(door), IsAdd: add, IsInput: in, ACLIndex: which}
	})
	time.Sleep(settle)
	return err
}

func (a *aclCase) del() error {
	if len(a.acls) == 0 {
		return nil
	}
	n := a.rng.IntN(len(a.acls))
	before := len(a.done)
	if err := a.each(func(index) api.Message { return &acl.ACLDel{ACLIndex: a.acls[n]} }); err != nil {
		return err
	}
	if !strings.Contains(a.done[before], "refused") {
		a.acls = slices.Delete(a.acls, n, n+1)
	}
	return nil
}

// compareDumps compares all dumps of the plugins of both VPPs.
func (a *aclCase) compareDumps() error {
	var lines [2][]string
	names := [2]map[uint32]string{{}, {}}
	for _, n := range a.sim.Interfaces() {
		names[0][a.sim.AddInterface(sim.Interface{Name: n})] = n
	}
	var err error
	if names[1], err = a.lab.names(); err != nil {
		return err
	}
	for i, conn := range []*vpp.Conn{a.beside.conn, a.lab.plain.conn} {
		for _, m := range []api.Message{
			&acl.ACLDump{ACLIndex: ^uint32(0)}, &acl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)},
			&acl.ACLInterfaceEtypeWhitelistDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}, &acl.MacipACLDump{ACLIndex: ^uint32(0)},
		} {
			r := conn.Do(context.Background(), vpp.Call{Msg: m, Dump: true})[0]
			if r.Err != nil {
				return r.Err
			}
			for _, d := range r.Details {
				if l, ok := d.(*acl.ACLInterfaceListDetails); ok && len(l.Acls) == 0 {
					continue // the two have different interfaces without lists
				}
				lines[i] = append(lines[i], text(d, names[i]))
			}
		}
		slices.Sort(lines[i])
	}
	if diff := gocmp.Diff(lines[0], lines[1]); diff != "" {
		return fmt.Errorf("the dumps differ (-sim +vpp):\n%s", diff)
	}
	return nil
}

// end takes everything away again.
func (a *aclCase) end() error {
	for _, d := range append(doors[:len(doors):len(doors)], edge) {
		if err := a.each(func(i index) api.Message { return &acl.ACLInterfaceSetACLList{SwIfIndex: i(d)} }); err != nil {
			return err
		}
	}
	if err := a.each(func(i index) api.Message { return &acl.ACLInterfaceSetEtypeWhitelist{SwIfIndex: i(doors[0])} }); err != nil {
		return err
	}
	for _, i := range a.acls {
		if err := a.each(func(index) api.Message { return &acl.ACLDel{ACLIndex: i} }); err != nil {
			return err
		}
	}
	err := errors.Join(a.ask(&nat44_ed.Nat44EdPluginEnableDisable{}), a.cli("clear acl-plugin sessions"))
	time.Sleep(settle)
	return err
}
