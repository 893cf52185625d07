package realvpp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle"
)

const cnatSteps = 25

// TestVPPCNAT holds the simulated cnat plugin against the real one: random translations, features, policies and routes, packets,
// replies and complaints between them, of both families; backends, ports and sessions must be the same.
func TestVPPCNAT(t *testing.T) {
	path := theVPP(t)
	cases, first := oracle.Setting(t, "CONTIV_VPP_CASES", defaultCases), oracle.Setting(t, "CONTIV_VPP_SEED", 1)
	cases = max(1, cases/dear)
	t.Logf("%d cases, seeds %d to %d", cases, first, first+cases-1)
	w := startBare(t, path, dualStack())
	needOlderCNAT(t, w)
	w.strict = true
	conns := openBare(t, w)
	for _, v := range []cni.VPP{w.sim, w.lab} {
		v.AddInterface(sim.Interface{Name: edge, Addresses: []netip.Prefix{netip.MustParsePrefix("fd00:e::1/64"), netip.MustParsePrefix("10.14.0.1/24")}})
		for _, p := range []string{"fd00:e::9/128", "10.14.0.9/32"} {
			if err := v.AddRoute(sim.Route{Prefix: netip.MustParsePrefix(p), Paths: []sim.Path{{Interface: edge}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	differences, sent := 0, 0
	for seed := first; seed < first+cases && differences < enough; seed++ {
		c := &cnatCase{aclCase: newACLCase(w, seed), conns: conns}
		err := c.run()
		sent += c.sent
		for _, e := range append(c.differences, err) {
			if e != nil {
				differences++
				t.Errorf("seed %d (repeat with CONTIV_VPP_SEED=%d CONTIV_VPP_CASES=1): %v\n%s", seed, seed, e, c.story())
			}
		}
		if err != nil {
			t.FailNow()
		}
	}
	t.Logf("%d cases, %d packets agreed", cases, sent)
}

// cnatCase is one random life of the plugin.
type cnatCase struct {
	*aclCase
	conns    [2]*bare
	features []cnatFeature // those that are on
}

type cnatFeature struct{ door, arc, name string }

var (
	cnatVIPs     = []string{"10.96.0.10", "10.96.0.11", "192.168.16.1", "203.0.113.1", "10.1.1.3"}
	cnatVIPs6    = []string{"fd00:96::10", "fd00:96::11", "fd00:16::1", "2001:db8:1::1", "fd00:1:1::3"}
	cnatPeers    = []string{"10.1.1.2", "10.1.1.3", "10.1.2.2", "192.168.16.2", "198.51.100.9", "10.14.0.9"}
	cnatPeers6   = []string{"fd00:1:1::2", "fd00:1:1::3", "fd00:1:2::2", "fd00:16::2", "2001:db8::9", "fd00:e::9"}
	cnatSources  = []string{"192.168.16.1", "10.1.1.254"}
	cnatSources6 = []string{"fd00:16::1", "fd00:1:1::fe"}
)

func (c *cnatCase) one(v4, v6 []string) string {
	if c.six {
		v4 = v6
	}
	return v4[c.rng.IntN(len(v4))]
}

// each asks both, each with its own numbers of interfaces and without a guard; they must agree.
func (c *cnatCase) each(make func(index) api.Message) error {
	numbers := [2]index{
		func(name string) interface_types.InterfaceIndex {
			return interface_types.InterfaceIndex(c.sim.AddInterface(sim.Interface{Name: name}))
		},
		func(name string) interface_types.InterfaceIndex { return c.lab.index[name] },
	}
	m := make(numbers[1])
	line := text(m, c.doors())
	var said [2]string
	for i, conn := range c.conns {
		reply, err := conn.do(make(numbers[i]))
		if said[i] = fmt.Sprint(err); err == nil {
			said[i] = cnatAnswer(reply)
		}
	}
	c.done = append(c.done, line+" => "+said[1])
	if said[0] != said[1] {
		return fmt.Errorf("%s: the sim says %s, the vpp %s: %w", line, said[0], said[1], errDisagree)
	}
	return nil
}

// cnatAnswer is an answer without what no two VPPs share.
func cnatAnswer(m api.Message) string {
	if r, ok := m.(*ip.IPRouteAddDelReply); ok {
		r.StatsIndex = 0
	}
	return fmt.Sprintf("%+v", m)
}

func (c *cnatCase) run() error {
	for _, begin := range []func() error{c.snatPolicy, c.snatAddresses, c.feature, c.feature, c.feature, c.translate, c.translate} {
		if err := begin(); err != nil {
			return err
		}
	}
	for range cnatSteps {
		if err := c.change(); err != nil {
			return err
		}
		for range 2 + c.rng.IntN(3) {
			if err := c.tolerate(c.packets()); err != nil {
				return err
			}
		}
	}
	return errors.Join(c.compare(), c.end())
}

func (c *cnatCase) change() error {
	switch c.rng.IntN(12) {
	case 0, 1, 2, 3:
		return c.translate()
	case 4:
		id := uint32(c.rng.IntN(6))
		return c.each(func(index) api.Message { return &cnat.CnatTranslationDel{ID: id} })
	case 5:
		return c.feature()
	case 6:
		return c.snatPolicy()
	case 7:
		return c.snatAddresses()
	case 8:
		return c.route(!c.chance(3))
	case 9:
		if c.chance(6) {
			return c.each(func(index) api.Message { return &cnat.CnatSessionPurge{} })
		}
		return c.compare()
	}
	return nil
}

func cnatEnd(addr string, port uint16) cnat.CnatEndpoint {
	e := cnat.CnatEndpoint{SwIfIndex: ^interface_types.InterfaceIndex(0), Port: port}
	if addr != "" {
		e.Addr = ip_types.NewAddress(netip.MustParseAddr(addr).AsSlice())
	}
	return e
}

// translate is a random translation: a new one, or a change of one.
func (c *cnatCase) translate() error {
	t := cnat.CnatTranslation{
		Vip:     cnatEnd(c.one(cnatVIPs, cnatVIPs6), uint16(80+c.rng.IntN(2))),
		IPProto: []ip_types.IPProto{6, 6, 6, 17, 17, 132}[c.rng.IntN(6)], IsRealIP: uint8(c.rng.IntN(2)),
		Flags:          []uint8{0, 0, 0, uint8(cnat.CNAT_TRANSLATION_ALLOC_PORT), uint8(cnat.CNAT_TRANSLATION_NO_RETURN_SESSION)}[c.rng.IntN(5)],
		LbType:         []cnat.CnatLbType{0, 0, cnat.CNAT_LB_TYPE_MAGLEV}[c.rng.IntN(3)],
		FlowHashConfig: ip.IPFlowHashConfigV2([]uint32{0, 0, 0x9f, 1, 3, 0x5f, 0x3f}[c.rng.IntN(7)]),
	}
	for range 1 + c.rng.IntN(4) {
		p := cnat.CnatEndpointTuple{DstEp: cnatEnd(c.one(cnatPeers, cnatPeers6), 8080), SrcEp: cnatEnd("", 0)}
		if c.six { // of which family nothing is
			p.SrcEp = cnatEnd("::", 0)
		}
		if c.chance(6) && t.IPProto != ip_types.IP_API_PROTO_SCTP { // trapEndless of the simulated VPP
			p.SrcEp = cnatEnd(c.one(cnatSources, cnatSources6), []uint16{0, 0, 9999}[c.rng.IntN(3)])
		}
		if c.chance(20) {
			p.Flags = []uint8{1, 2}[c.rng.IntN(2)] // not 128: VPP would read beyond what it has
		}
		t.Paths = append(t.Paths, p)
	}
	t.NPaths = uint32(len(t.Paths))
	return c.each(func(index) api.Message { return &cnat.CnatTranslationUpdate{Translation: t} })
}

// feature puts a node on an interface, or takes one away.
func (c *cnatCase) feature() error {
	if len(c.features) > 0 && c.chance(4) {
		n := c.rng.IntN(len(c.features))
		f := c.features[n]
		c.features = slices.Delete(c.features, n, n+1)
		return c.enable(f, false)
	}
	fam := map[bool]string{false: "4", true: "6"}[c.six]
	f := cnatFeature{c.door(), "ip" + fam + "-unicast", "cnat-input-ip" + fam}
	switch c.rng.IntN(6) {
	case 0, 1:
		f.arc, f.name = "ip"+fam+"-output", "cnat-output-ip"+fam
	case 2:
		f.name = "cnat-snat-ip" + fam
	}
	if c.chance(30) {
		f.name = "nonsense"
	} else if slices.Contains(c.features, f) && !c.chance(4) {
		return nil
	} else {
		c.features = append(c.features, f)
	}
	return c.enable(f, true)
}

func (c *cnatCase) enable(f cnatFeature, on bool) error {
	return c.each(func(i index) api.Message {
		return &feature.FeatureEnableDisable{SwIfIndex: i(f.door), Enable: on, ArcName: f.arc, FeatureName: f.name}
	})
}

func (c *cnatCase) snatPolicy() error {
	policy := []cnat.CnatSnatPolicies{0, 1, 2, 2, 2, 3}[c.rng.IntN(6)]
	if err := c.each(func(index) api.Message { return &cnat.CnatSetSnatPolicy{Policy: policy} }); err != nil {
		return err
	}
	for range 3 {
		door, add, table := c.door(), uint8(c.rng.IntN(3)), cnat.CnatSnatPolicyTable(c.rng.IntN(5))
		if err := c.each(func(i index) api.Message {
			return &cnat.CnatSnatPolicyAddDelIf{SwIfIndex: i(door), IsAdd: add, Table: table}
		}); err != nil {
			return err
		}
	}
	p := c.excluded()[c.rng.IntN(4)]
	add := uint8(c.rng.IntN(2))
	return c.each(func(index) api.Message { return &cnat.CnatSnatPolicyAddDelExcludePfx{IsAdd: add, Prefix: p} })
}

func (c *cnatCase) excluded() (out []ip_types.Prefix) {
	for _, p := range []string{"10.1.0.0/16", "192.168.16.0/24", "fd00:1::/32", "fd00:16::/64"} {
		out = append(out, prefix(netip.MustParsePrefix(p)))
	}
	return out
}

func (c *cnatCase) snatAddresses() error {
	m := cnat.CnatSetSnatAddresses{SwIfIndex: ^interface_types.InterfaceIndex(0)}
	if !c.chance(5) {
		m.SnatIP4 = netip.MustParseAddr(cnatSources[c.rng.IntN(2)]).As4()
		m.SnatIP6 = netip.MustParseAddr(cnatSources6[c.rng.IntN(2)]).As16()
	}
	byInterface := c.chance(6)
	return c.each(func(i index) api.Message {
		m := m
		if byInterface {
			m.SwIfIndex = i(edge)
		}
		return &m
	})
}

// route adds a route for a VIP that answers with an ICMP error, or removes it.
func (c *cnatCase) route(add bool) error {
	vip := c.one(cnatVIPs[:2], cnatVIPs6[:2])
	a := netip.MustParseAddr(vip)
	return c.each(func(index) api.Message { return rejecting(add, netip.PrefixFrom(a, a.BitLen())) })
}

func rejecting(add bool, p netip.Prefix) api.Message {
	path := fib_types.FibPath{SwIfIndex: ^uint32(0), Type: fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH, Weight: 1}
	if p.Addr().Is6() {
		path.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
	}
	return &ip.IPRouteAddDel{IsAdd: add, Route: ip.IPRoute{Prefix: prefix(p), NPaths: 1, Paths: []fib_types.FibPath{path}}}
}

// packets are a new connection, or more of one that was, or a complaint about it.
func (c *cnatCase) packets() error {
	if len(c.talks) > 0 && c.chance(2) {
		return c.goOn(c.talks[c.rng.IntN(len(c.talks))])
	}
	src, dst := netip.MustParseAddr(c.one(cnatPeers, cnatPeers6)), netip.MustParseAddr(c.one(cnatVIPs, cnatVIPs6))
	if c.chance(3) {
		dst = netip.MustParseAddr(c.one(cnatPeers, cnatPeers6))
	}
	in := c.door()
	if !c.chance(6) { // by the right one
		in = map[string]string{
			"10.1.1.2": door(podA), "10.1.1.3": door(podB), "10.1.2.2": "overlay", "10.14.0.9": edge,
			"fd00:1:1::2": door(podA), "fd00:1:1::3": door(podB), "fd00:1:2::2": "overlay", "fd00:e::9": edge,
		}[src.String()]
		if in == "" {
			in = "uplink"
		}
	}
	if !c.chance(3) { // else the same port again: another VIP may lead to the same backend, and both replies look alike
		c.port++
	}
	return c.talk(in, c.arrange(src, dst))
}

// compare compares the dumps of the plugins of both VPPs.
func (c *cnatCase) compare() error {
	for _, m := range []api.Message{&cnat.CnatTranslationDump{}, &cnat.CnatSessionDump{}, &ip.IPRouteDump{Table: ip.IPTable{IsIP6: c.six}}} {
		var lines [2][]string
		for i, conn := range c.conns {
			details, err := conn.dump(m)
			if err != nil {
				return err
			}
			for _, d := range details {
				if l, ok := cnatLine(d); ok {
					lines[i] = append(lines[i], l)
				}
			}
		}
		for i := range lines {
			slices.Sort(lines[i])
		}
		if diff := gocmp.Diff(lines[0], lines[1]); diff != "" {
			return fmt.Errorf("the dumps of %s differ (-sim +vpp):\n%s", m.GetMessageName(), diff)
		}
	}
	return nil
}

// cnatLine is what both must say; of routes, those of the plugin's addresses, with their kind.
func cnatLine(d api.Message) (string, bool) {
	switch d := d.(type) {
	case *ip.IPRouteDetails:
		p := d.Route.Prefix.String()
		if vip := netip.MustParsePrefix(p); !slices.Contains(append(cnatVIPs[:2:2], cnatVIPs6[:2]...), vip.Addr().String()) {
			return "", false
		}
		var kinds []fib_types.FibPathType
		for _, path := range d.Route.Paths {
			kinds = append(kinds, path.Type)
		}
		return fmt.Sprintf("%s %v", p, kinds), true
	case *cnat.CnatSessionDetails:
		return fmt.Sprintf("%+v", d.Session), true
	}
	return fmt.Sprintf("%+v", d), true
}

// end takes everything away again.
func (c *cnatCase) end() error {
	err := c.each(func(index) api.Message { return &cnat.CnatSessionPurge{} })
	for _, f := range c.features {
		err = errors.Join(err, c.enable(f, false))
	}
	for _, door := range append(doors[:len(doors):len(doors)], edge) {
		for table := range cnat.CnatSnatPolicyTable(4) {
			err = errors.Join(err, c.each(func(i index) api.Message {
				return &cnat.CnatSnatPolicyAddDelIf{SwIfIndex: i(door), Table: table}
			}))
		}
	}
	for _, p := range c.excluded() {
		for range 2 {
			err = errors.Join(err, c.each(func(index) api.Message { return &cnat.CnatSnatPolicyAddDelExcludePfx{Prefix: p} }))
		}
	}
	for _, vip := range append(cnatVIPs[:2:2], cnatVIPs6[:2]...) {
		a := netip.MustParseAddr(vip)
		err = errors.Join(err, c.each(func(index) api.Message { return rejecting(false, netip.PrefixFrom(a, a.BitLen())) }))
	}
	return errors.Join(err, c.each(func(index) api.Message {
		return &cnat.CnatSetSnatAddresses{SwIfIndex: ^interface_types.InterfaceIndex(0)}
	}))
}
