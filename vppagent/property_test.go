package vppagent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/nat44ed/show"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// wish draws the desired state of a node: any mixture of values, some of which cannot be configured for lack of others, but never
// two that exclude each other.
func wish(t *rapid.T) kv.Values {
	v := kv.Values{}
	flip := func(label string) bool { return rapid.Bool().Draw(t, label) }
	upto := func(n int, label string) int { return rapid.IntRange(0, n).Draw(t, label) }
	v.Put(&nat.Nat44Global{Forwarding: flip("forwarding")})
	v.Put(&contivnat.Nat44Settings{Sessions: 10000, Udp: uint32(100 + upto(1, "udp"))})
	for _, name := range []string{"tap1", "tap2", "loop"} {
		switch upto(4, "nat on "+name) {
		case 0:
			v.Put(&nat.Nat44Interface{Name: name, NatInside: true})
		case 1:
			v.Put(&nat.Nat44Interface{Name: name, NatOutside: true})
		case 2:
			v.Put(&nat.Nat44Interface{Name: name, NatInside: true, NatOutside: true})
		case 3:
			v.Put(&nat.Nat44Interface{Name: name, OutputFeature: true})
		}
	}
	wishInterfaces(t, v, flip, upto)
	for i := range 3 {
		if k := upto(3, "reject"); k < 3 {
			v.Put(&contivl3.RejectRoute{DstNetwork: fmt.Sprintf("10.96.0.%d/32", i), Action: contivl3.RejectRoute_Action(k)})
		}
	}
	// Addresses 1..4 belong to at most one pool each; the same address may be under another name in the next wish.
	for i, at := 1, 0; i <= 4; i = at + 1 {
		at = i + upto(2, "pool end")
		name := []string{"", "a", "b"}[upto(2, "pool name")]
		if flip("pool") && at <= 4 {
			p := &nat.Nat44AddressPool{VrfId: ^uint32(0), FirstIp: fmt.Sprintf("192.168.0.%d", i), LastIp: fmt.Sprintf("192.168.0.%d", at), TwiceNat: flip("twice")}
			if name != "" {
				p.Name = name + fmt.Sprint(i%2)
			}
			if _, taken := v[kv.Key(p)]; !taken {
				v.Put(p)
			}
		}
	}
	wishServices(t, v, flip, upto)
	wishACLs(t, v, flip, upto)
	wishCnat(v, flip, upto)
	return v
}

// wishCnat puts the plug-in on existing and missing interfaces, with translations that change in every field but the address:
// whether an address is real is the same for all its translations.
func wishCnat(v kv.Values, flip func(string) bool, upto func(int, string) int) {
	if flip("snat policy") {
		p := &cnat.SnatPolicy{Kind: cnat.SnatPolicy_Kind(1 + upto(1, "kind")), Ipv6Address: fmt.Sprintf("2001:db8::%d", upto(1, "source"))}
		for i := range upto(2, "excluded") {
			p.ExcludedPrefixes = append(p.ExcludedPrefixes, fmt.Sprintf("2001:db8:%d::/48", i+upto(1, "prefix")))
		}
		v.Put(p)
	}
	for _, name := range []string{"tap1", "loop", "tap3"} {
		if flip("cnat") {
			v.Put(&cnat.Interface{Name: name, Ipv6: true, Ipv4: flip("ipv4"), Pod: flip("pod"), Host: flip("host"), IncludeIpv6: flip("include")})
		}
	}
	for i := range 4 {
		if !flip("translation") {
			continue
		}
		m := translation(fmt.Sprintf("2001:db8:96::%d", i/2), uint32(80+i%2))
		m.RealAddress = i/2 == 0
		m.AllocatePort, m.LoadBalancing = flip("ports"), cnat.LoadBalancing(upto(1, "balancing"))
		if flip("hash") {
			m.FlowHash = []cnat.FlowHashField{cnat.FlowHashField(upto(1, "field"))}
		}
		for range 1 + upto(2, "paths") {
			m.Paths = append(m.Paths, &cnat.Path{Destination: &cnat.Endpoint{Address: fmt.Sprintf("2001:db8:1::%d", upto(3, "endpoint")), Port: 8080}})
		}
		v.Put(m)
	}
}

// wishACLs puts existing and missing ACLs, refused or not, on existing and missing interfaces.
func wishACLs(_ *rapid.T, v kv.Values, flip func(string) bool, upto func(int, string) int) {
	names := []string{"a", "b", "c", strings.Repeat("long", 20)}
	for _, name := range names {
		if !flip("acl") {
			continue
		}
		m := accessList(name)
		for range upto(3, "rules") {
			m.Rules = append(m.Rules, rule(acl.ACL_Rule_Action(upto(2, "action")), "tcp", "", fmt.Sprintf("10.1.1.%d/32", upto(2, "dst")), uint32(80+upto(1, "port"))))
		}
		if upto(9, "host bits") == 0 {
			m.Rules = append(m.Rules, rule(acl.ACL_Rule_DENY, "", "10.1.1.1/24", ""))
		}
		if flip("of its own") {
			m.Interfaces = &acl.ACL_Interfaces{Ingress: []string{"tap1"}}
			if flip("egress") {
				m.Interfaces.Egress = []string{"tap2", "loop"}
			}
		}
		v.Put(m)
	}
	for _, iface := range []string{"tap1", "loop", "tap3"} {
		if !flip("lists") {
			continue
		}
		m := lists(iface, nil, nil)
		for _, name := range names {
			if flip("input") {
				m.Input = append(m.Input, name)
			}
			if flip("output") {
				m.Output = append([]string{name}, m.Output...)
			}
		}
		v.Put(m)
	}
}

// steadyPools makes every pool one address that follows from its key. A pool that changes under its key, meets a refused removal
// of an address, and loses its agent before the retry leaves that address in VPP as foreign: the journal keeps one value per key.
func steadyPools(v kv.Values) {
	for key, m := range v {
		if p, ok := m.(*nat.Nat44AddressPool); ok {
			delete(v, key)
			v.Put(&nat.Nat44AddressPool{VrfId: p.VrfId, FirstIp: p.FirstIp, TwiceNat: strings.HasSuffix(p.FirstIp, ".2")})
		}
	}
}

func wishInterfaces(t *rapid.T, v kv.Values, flip func(string) bool, upto func(int, string) int) {
	for _, p := range []l3.VrfTable_Protocol{l3.VrfTable_IPV4, l3.VrfTable_IPV6} {
		if flip("vrf") {
			v.Put(&l3.VrfTable{Id: 7, Protocol: p})
		}
	}
	addresses := []string{"10.9.0.1/24", "10.9.1.1/24", "2001:db8::1/64"}
	names := []string{"loop", "lap"}
	m := map[string]*interfaces.Interface{}
	for i, name := range names {
		if flip("interface") {
			m[name] = &interfaces.Interface{
				Name: name, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: flip("enabled"), Mtu: uint32(1400 + upto(1, "mtu")),
				PhysAddress: fmt.Sprintf("02:00:00:00:00:%02x", i), Vrf: uint32(7 * upto(1, "vrf")),
			}
			v.Put(m[name])
		}
	}
	for _, a := range addresses {
		if i := m[names[upto(1, "address on")]]; i != nil && flip("address") {
			i.IpAddresses = append(i.IpAddresses, a)
		}
	}
	if flip("tap") {
		m["host"] = &interfaces.Interface{
			Name: "host", Type: interfaces.Interface_TAP, PhysAddress: "02:00:00:00:00:09", Enabled: true, IpAddresses: []string{"172.30.1.1/24"},
			Link: &interfaces.Interface_Tap{Tap: &interfaces.TapLink{HostIfName: "vpp" + fmt.Sprint(upto(1, "tap host")), RxRingSize: 512}},
		}
		v.Put(m["host"])
	}
	for i := range 3 {
		if flip("route") {
			v.Put(&l3.Route{DstNetwork: "10.2.0.0/16", NextHopAddr: fmt.Sprintf("172.30.1.%d", 2+i), OutgoingInterface: "host", Weight: uint32(1 + upto(1, "weight"))})
		}
		if flip("arp") {
			v.Put(&l3.ARPEntry{Interface: "host", IpAddress: fmt.Sprintf("172.30.1.%d", 2+i), PhysAddress: fmt.Sprintf("02:fe:00:00:00:%02x", upto(1, "mac")), Static: flip("static")})
		}
	}
	if flip("route in vrf") {
		v.Put(&l3.Route{VrfId: 7, DstNetwork: "10.3.0.0/16", NextHopAddr: "10.9.0.2", OutgoingInterface: "loop"})
		v.Put(&l3.Route{DstNetwork: "10.5.0.0/16", Type: l3.Route_INTER_VRF, ViaVrfId: 7})
	}
}

func wishServices(t *rapid.T, v kv.Values, flip func(string) bool, upto func(int, string) int) {
	services := map[string]*nat.DNat44{}
	of := func() *nat.DNat44 {
		label := []string{"default/a", "default/b", "default/" + strings.Repeat("long", 20)}[upto(2, "service")]
		if services[label] == nil {
			services[label] = &nat.DNat44{Label: label}
		}
		return services[label]
	}
	for i := range 5 { // each VIP is in at most one Service, but may move to another
		if upto(3, "vip") == 0 {
			continue
		}
		m := &nat.DNat44_StaticMapping{
			ExternalIp: fmt.Sprintf("10.96.1.%d", i), ExternalPort: 80, TwiceNat: nat.DNat44_StaticMapping_TwiceNatMode(upto(2, "twice")),
			SessionAffinity: uint32(100 * upto(1, "affinity")), Protocol: nat.DNat44_Protocol(upto(1, "proto")),
		}
		var drained []bool
		for b := range 6 { // a backend always has the same weight: it keeps the one with which it was added
			if flip("backend") {
				m.LocalIps = append(m.LocalIps, &nat.DNat44_StaticMapping_LocalIP{LocalIp: fmt.Sprintf("10.1.1.%d", b), LocalPort: 8080, Probability: uint32(1 + b%2)})
				drained = append(drained, upto(2, "drained") == 0)
			}
		}
		for i, d := range drained {
			if d && slices.Contains(drained, false) { // where all have probability 0, none is drained and all have weight 1
				m.LocalIps[i].Probability = 0
			}
		}
		s := of()
		s.StMappings = append(s.StMappings, m)
	}
	if flip("address only") {
		s := of()
		s.StMappings = append(s.StMappings, &nat.DNat44_StaticMapping{ExternalIp: "10.96.2.1", LocalIps: []*nat.DNat44_StaticMapping_LocalIP{{LocalIp: "10.1.1.9"}}})
	}
	for i := range 2 {
		if flip("identity") {
			s := of()
			s.IdMappings = append(s.IdMappings, &nat.DNat44_IdentityMapping{IpAddress: "192.168.16.1", Port: uint32(4789 + i), Protocol: nat.DNat44_UDP})
		}
	}
	for _, s := range services {
		v.Put(s)
	}
}

// changes turns one wish into another.
func changes(from, to kv.Values) map[string]proto.Message {
	out := map[string]proto.Message{}
	for k, m := range to {
		if !kv.Equal(from[k], m) {
			out[k] = m
		}
	}
	for k := range from {
		if to[k] == nil {
			out[k] = nil
		}
	}
	return out
}

func pods(l *lab) {
	addPod(l, "tap1", "10.1.1.2")
	addPod(l, "tap2", "10.1.1.3")
}

// fresh is the state of VPP after an agent that got only the last wish.
func fresh(t tb, want kv.Values) string {
	l := newLab(t, vppagent.Config{})
	pods(l)
	l.want = want
	c := l.resync()
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	t.Logf("fresh:\n%s%s", statuses(c), strings.Join(l.writes(), "\n"))
	return l.sim.Dump()
}

// canonical replaces VPP's names of interfaces (loop3) by ours, and sorts: the number of a loopback depends on the order of
// creation. The kind of a source NAT policy without an address has no effect and is not shown: it may remain.
func canonical(dump string) string {
	for _, m := range regexp.MustCompile(`(?m)^interface (\S+) .*tag "ca1:i:(\w+)"`).FindAllStringSubmatch(dump, -1) {
		dump = regexp.MustCompile(`(?m)([ \[])`+regexp.QuoteMeta(m[1])+`([ :\]]|$)`).ReplaceAllString(dump, "${1}ours:"+m[2]+"${2}")
	}
	if !strings.Contains(dump, "cnat snat ip") {
		dump = regexp.MustCompile(`(?m)^cnat snat-policy (k8s|if-pfx)\n`).ReplaceAllString(dump, "")
	}
	dump = show.WithoutDrained(dump)
	blocks := strings.Split(strings.ReplaceAll(dump, "\n ", "\r "), "\n")
	slices.Sort(blocks)
	return strings.ReplaceAll(strings.Join(blocks, "\n"), "\r ", "\n ")
}

// rapidTB gives rapid.T the methods that newLab needs; cleanups run when the case ends.
type rapidTB struct {
	testing.TB
	r        *rapid.T
	cleanups []func()
}

func (t *rapidTB) Helper()                   { t.r.Helper() }
func (t *rapidTB) Fatal(a ...any)            { t.r.Fatal(a...) }
func (t *rapidTB) Fatalf(f string, a ...any) { t.r.Fatalf(f, a...) }
func (t *rapidTB) Errorf(f string, a ...any) { t.r.Errorf(f, a...) }
func (t *rapidTB) Logf(f string, a ...any)   { t.r.Logf(f, a...) }
func (t *rapidTB) Cleanup(f func())          { t.cleanups = append(t.cleanups, f) }
func (t *rapidTB) Context() context.Context  { return context.Background() }
func (t *rapidTB) done() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}

type trouble struct {
	faults, vppRestarts, agentRestarts bool
	wish                               func(*rapid.T) kv.Values // nil: wish
	divided                            bool                     // transactions end after one interface, and the next ones overtake
}

func TestPathIndependence(t *testing.T) {
	for name, tr := range map[string]trouble{
		"calm":          {},
		"faults":        {faults: true},
		"vpp restarts":  {vppRestarts: true},
		"agent restart": {agentRestarts: true},
		"all at once":   {faults: true, vppRestarts: true, agentRestarts: true},
		"hidden":        {faults: true, vppRestarts: true, agentRestarts: true, wish: hidden},
		"divided":       {divided: true},
		"divided all":   {faults: true, vppRestarts: true, agentRestarts: true, divided: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(r *rapid.T) { walk(t, r, tr) })
		})
	}
}

// walk takes an agent through wishes, and compares the end with an agent that got only the last one.
func walk(t *testing.T, r *rapid.T, tr trouble) {
	tt := &rapidTB{TB: t, r: r}
	defer tt.done()
	now := time.Unix(1_700_000_000, 0)
	journal, err := os.MkdirTemp("", "journal")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(journal)
	cfg := vppagent.Config{Now: func() time.Time { return now }, Journal: filepath.Join(journal, "j")}
	if tr.divided {
		cfg.Stall, cfg.Pause = time.Nanosecond, func(context.Context, time.Duration) {}
	}
	l := newLab(tt, cfg)
	if tr.divided {
		l.step() // transactions may be divided from now on
	}
	pods(l)
	if tr.faults {
		l.fail(rapid.Uint64().Draw(r, "fault seed"))
	}
	if tr.wish == nil {
		tr.wish = wish
	}
	steps := rapid.IntRange(1, 4).Draw(r, "steps")
	for range steps {
		next := tr.wish(r)
		if tr.faults && tr.agentRestarts {
			steadyPools(next)
		}
		kind := rapid.SampledFrom([]event.ResyncKind{event.NoResync, event.NoResync, event.Full, event.Upstream}).Draw(r, "kind")
		values := map[string]proto.Message(next)
		if kind == event.NoResync {
			values = changes(l.want, next)
		}
		before := l.want
		l.want = next
		if kind == event.Full {
			l.inPortions(cut(next, before)...)
		} else {
			l.txn(kind, values)
		}
		l.reconnect()
		if tr.vppRestarts && rapid.Bool().Draw(r, "restart vpp") {
			l.restartVPP()
		}
		if tr.agentRestarts && rapid.Bool().Draw(r, "restart agent") {
			l.restartAgent()
			l.inPortions(cut(l.want, nil)...)
			l.reconnect()
		}
		now = now.Add(10 * time.Second)
		l.step()
		l.reconnect()
	}
	l.sim.Fail(nil)
	for range 20 {
		now = now.Add(2 * time.Minute)
		l.reconnect()
		if !l.agent.Snapshot().Connected {
			l.txn(event.Downstream, nil)
		} else if !l.step() && !l.agent.Unfinished() {
			break
		}
	}
	if got, want := canonical(l.sim.Dump()), canonical(fresh(tt, l.want)); got != want {
		r.Fatalf("got:\n%s\nwant:\n%s\nwrites:\n%s\nhistory:\n%s", got, want, strings.Join(l.writes(), "\n"), l.agent.Snapshot().History)
	}
	l.writes()
	if c := l.resync(); c.Err != nil || len(l.writes()) > 0 {
		r.Fatalf("a resync of the same: %v %v\n%s", c.Err, l.agent.Snapshot().History[len(l.agent.Snapshot().History)-1], statuses(c))
	}
}

// fail makes one write in ten fail, one in a hundred cut the connection.
func (l *lab) fail(seed uint64) {
	l.sim.Fail(func(name string) (int32, bool) {
		if !sim.Writes(name) {
			return 0, false
		}
		seed = seed*6364136223846793005 + 1442695040888963407
		switch n := seed >> 33 % 100; {
		case n == 0:
			return 0, true
		case n < 10:
			return -1, false
		}
		return 0, false
	})
}

// step runs the agent's due work, and reports whether it did any.
func (l *lab) step() bool {
	all := l.agent.Step(context.Background(), nil)
	for _, e := range all {
		if c, ok := e.(*event.Committed); ok {
			l.note(c)
		}
	}
	return len(all) > 0
}

// reconnect waits for the new connection if the last one is known to be lost, and reports it to the agent.
func (l *lab) reconnect() {
	if err := l.sim.Crashed(); err != nil {
		l.t.Fatalf("VPP crashed: %v", err)
	}
	for l.lost {
		s := <-l.states
		l.agent.Connected(s)
		l.lost = !s.Connected
	}
}
