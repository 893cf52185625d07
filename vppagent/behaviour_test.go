package vppagent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// status returns the status of a key after a commit; the zero value if the commit did not touch the key.
func status(c *event.Committed, key string) event.ValueStatus {
	for _, s := range c.Statuses {
		if s.Key == key {
			return s
		}
	}
	return event.ValueStatus{}
}

func TestPendingNamesWhatIsMissing(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	web := dnat("default/web", "10.96.0.1", 80, "10.1.1.1:80")
	c := l.put(web)
	s := status(c, kv.Key(web))
	if want := []string{"config/vpp/nat/v2/nat44-global", "vpp/nat44/twiceNAT-pool/*"}; s.State != event.Pending || !slices.Equal(s.Details, want) {
		t.Fatalf("status %+v, want pending for %q", s, want)
	}
	l.quiet("pending")
	c = l.put(node()[:3]...)
	if s := status(c, kv.Key(web)); s.State != event.Configured {
		t.Fatalf("with all it needs: %+v", s)
	}
	c = l.del("config/vpp/nat/v2/nat44-pool/vrf/4294967295/address/10.1.1.254")
	if s := status(c, kv.Key(web)); s.State != event.Pending {
		t.Fatalf("without the pool: %+v", s)
	}
	if strings.Contains(l.sim.Dump(), "nat44 lb") {
		t.Fatal("a pending mapping is in VPP")
	}
}

func TestInvalidDoesNotBlock(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	bad := dnat("default/bad", "10.96.0.2", 80, "10.1.1.1:80")
	bad.StMappings[0].ExternalPort = 70000
	good := dnat("default/good", "10.96.0.1", 80, "10.1.1.1:80")
	values := kv.Values{"config/vpp/v2/unknown/x": &nat.Nat44Global{}}
	for _, m := range append(node()[:3], bad, good) {
		values.Put(m)
	}
	c := l.commit(values)
	if s := status(c, kv.Key(bad)); s.State != event.Invalid || s.Err != "st_mappings[0].external_port: 70000 is above 65535" {
		t.Errorf("bad: %+v", s)
	}
	if s := status(c, "config/vpp/v2/unknown/x"); s.State != event.Invalid {
		t.Errorf("unknown: %+v", s)
	}
	if s := status(c, kv.Key(good)); s.State != event.Configured {
		t.Errorf("good: %+v", s)
	}
	// A valid value that becomes invalid leaves VPP: its old version is no longer wanted.
	c = l.put(func() proto.Message {
		m := proto.Clone(good).(*nat.DNat44)
		m.StMappings[0].ExternalPort = 70000
		return m
	}())
	if s := status(c, kv.Key(good)); s.State != event.Invalid || strings.Contains(l.sim.Dump(), "nat44 lb") {
		t.Errorf("was good: %+v\n%s", s, l.sim.Dump())
	}
}

// refusing is a guard that refuses every request of one Service.
type refusing struct {
	next  vppagent.Caller
	count int
}

func (r *refusing) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	out := make([]vpp.Reply, len(calls))
	for i, c := range calls {
		if c.Msg.GetMessageName() == "nat44_add_del_lb_static_mapping" {
			r.count++
			out[i].Err = &vpp.GuardError{Message: "nat44_add_del_lb_static_mapping", Rule: "test", Why: "it is a test"}
			continue
		}
		out[i] = r.next.Do(ctx, c)[0]
	}
	return out
}

func TestGuardMakesInvalid(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	r := &refusing{next: l.conn}
	l.agent = vppagent.New(vppagent.Config{Caller: r})
	web := dnat("default/web", "10.96.0.1", 80, "10.1.1.1:80")
	c := l.put(append(node()[:3], web)...)
	if s := status(c, kv.Key(web)); s.State != event.Invalid || !strings.Contains(s.Err, "it is a test") {
		t.Fatalf("%+v", s)
	}
	if c := l.agent.Retry(context.Background()); c != nil || r.count != 1 {
		t.Fatalf("retried: %+v", c)
	}
}

func TestRetryWithBackoff(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := newLab(t, vppagent.Config{Now: func() time.Time { return now }, Backoff: backoff.Range{Min: time.Second, Max: 5 * time.Second}})
	l.allConfigured(l.put(node()[:3]...))
	refused := true
	l.sim.Fail(func(name string) (int32, bool) {
		if refused && name == "nat44_add_del_lb_static_mapping" {
			return -7, false
		}
		return 0, false
	})
	web := dnat("default/web", "10.96.0.1", 80, "10.1.1.1:80")
	c := l.put(web, &contivl3.RejectRoute{DstNetwork: "10.96.0.1/32"})
	if s := status(c, kv.Key(web)); s.State != event.Retrying || !strings.Contains(s.Err, "nat44_add_del_lb_static_mapping") {
		t.Fatalf("%+v", s)
	}
	if s := status(c, "config/contiv/vpp/v1/reject-route/vrf/0/dst/10.96.0.1/32"); s.State != event.Configured {
		t.Fatalf("the other one: %+v", s)
	}
	var waits []time.Duration
	for range 4 {
		from := now
		for l.agent.Retry(context.Background()) == nil {
			now = now.Add(100 * time.Millisecond)
		}
		waits = append(waits, now.Sub(from))
	}
	if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second}; !slices.Equal(waits, want) {
		t.Errorf("waits %v, want %v", waits, want)
	}
	refused = false
	now = now.Add(5 * time.Second)
	if s := status(l.agent.Retry(context.Background()), kv.Key(web)); s.State != event.Configured {
		t.Errorf("at last: %+v", s)
	}
	if c := l.agent.Retry(context.Background()); c != nil {
		t.Errorf("retried once more: %+v", c)
	}
}

func TestVPPAwayKeepsWhatIsWanted(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.allConfigured(l.put(node()[:3]...))
	l.sim.Fail(func(name string) (int32, bool) { return 0, name == "nat44_add_del_lb_static_mapping" })
	web := dnat("default/web", "10.96.0.1", 80, "10.1.1.1:80")
	c := l.put(web)
	if !errors.Is(c.Err, vpp.ErrDisconnected) {
		t.Fatalf("in the middle: %v", c.Err)
	}
	l.sim.Fail(nil)
	l.agent.Connected(vpp.State{Generation: 1})
	if c := l.put(&contivl3.RejectRoute{DstNetwork: "10.96.0.1/32"}); !errors.Is(c.Err, vpp.ErrDisconnected) || c.Writes != 0 {
		t.Fatalf("away: %+v", c)
	}
	if l.agent.Snapshot().Connected {
		t.Error("the snapshot says VPP is there")
	}
	l.agent.Connected(l.connected())
	all := l.agent.Step(context.Background(), nil)
	if len(all) != 1 {
		t.Fatalf("on reconnect: %v", all)
	}
	c = all[0].(*event.Committed)
	if c.Err != nil || c.Resync != event.Downstream || c.Cause != "connected" {
		t.Errorf("on reconnect: %+v", c)
	}
	dump := l.sim.Dump()
	for _, want := range []string{"nat44 lb TCP 10.96.0.1:80", "route 0:10.96.0.1/32"} {
		if !strings.Contains(dump, want) {
			t.Errorf("no %q in\n%s", want, dump)
		}
	}
}

func TestInterfacesOfOthers(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.allConfigured(l.put(&nat.Nat44Global{}))
	byName := &nat.Nat44Interface{Name: "tap1", NatInside: true}
	byTag := &nat.Nat44Interface{Name: "default/tap2", NatOutside: true}
	c := l.put(byName, byTag)
	if s := status(c, kv.Key(byName)); s.State != event.Pending || !slices.Equal(s.Details, []string{"config/vpp/v2/interfaces/tap1"}) {
		t.Fatalf("without: %+v", s)
	}
	pods(l)
	c = l.agent.Interfaces(context.Background())
	l.allConfigured(c)
	if c.Add != 2 {
		t.Fatalf("%+v", c)
	}
	l.writes()
	l.allConfigured(l.resync())
	l.quiet("resync")
	l.allConfigured(l.txn(event.Full, nil))
	if dump := l.sim.Dump(); !strings.Contains(dump, "interface tap1") || strings.Contains(dump, "nat44 interface") {
		t.Errorf("others' interfaces are to stay, NAT on them is not:\n%s", dump)
	}
}

func TestForeignStays(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	other := vppagent.New(vppagent.Config{Caller: &retag{l.conn}})
	values := kv.Values{}
	for _, m := range append(node()[:3], dnat("other/web", "10.96.9.9", 80, "10.1.1.1:80")) {
		values.Put(m)
	}
	if c := other.Commit(context.Background(), &event.Txn{Resync: event.Full, Values: values}); c.Err != nil {
		t.Fatal(c.Err)
	}
	if err := l.sim.AddRoute(sim.Route{Prefix: netip.MustParsePrefix("10.7.0.0/16"), Paths: []sim.Path{{Type: sim.PathDrop}}}); err != nil {
		t.Fatal(err)
	}
	before := l.sim.Dump()
	l.writes()
	l.allConfigured(l.resync())
	l.quiet("an agent that wants nothing, in a VPP of others")
	if f := l.agent.Snapshot().Foreign; len(f) != 1 || !strings.Contains(f[0], "tcp 10.96.9.9:80") {
		t.Errorf("foreign: %q", f)
	}
	l.allConfigured(l.put(&contivl3.RejectRoute{DstNetwork: "10.96.0.1/32"}))
	l.allConfigured(l.txn(event.Full, nil))
	if got := l.sim.Dump(); got != before {
		t.Errorf("got:\n%s\nwant:\n%s", got, before)
	}
}

// retag makes an agent with foreign tags.
type retag struct{ vppagent.Caller }

func (r *retag) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	for _, c := range calls {
		setTag(c.Msg)
	}
	return r.Caller.Do(ctx, calls...)
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	l := newLab(t, vppagent.Config{Journal: path})
	l.allConfigured(l.put(&contivl3.RejectRoute{DstNetwork: "10.96.0.1/32"}, &contivl3.RejectRoute{DstNetwork: "10.96.0.2/32"}, &l3.Route{DstNetwork: "10.8.0.0/16", Type: l3.Route_DROP}))
	l.allConfigured(l.del("config/contiv/vpp/v1/reject-route/vrf/0/dst/10.96.0.1/32"))
	data, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(data), "contiv-agent journal 1\n") {
		t.Fatalf("%v %q", err, data)
	}
	t.Run("remembers what is not wanted any more", func(t *testing.T) {
		l.restartAgent()
		l.want = kv.Values{}
		l.allConfigured(l.resync())
		if dump := l.sim.Dump(); strings.Contains(dump, "route") {
			t.Errorf("left:\n%s", dump)
		}
	})
	for name, damage := range map[string]func(string) string{
		"torn":    func(s string) string { return s[:len(s)-5] },
		"flipped": func(s string) string { return strings.ReplaceAll(s, "10.96.0.2", "10.96.0.3") },
		"version": func(s string) string { return strings.Replace(s, "journal 1", "journal 2", 1) },
		"empty":   func(string) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(damage(string(data))), 0o600); err != nil {
				t.Fatal(err)
			}
			// Foreign routes; a damaged line of the journal is about one of them.
			for _, dst := range []string{"10.96.0.3/32", "10.9.0.0/16"} {
				if err := l.sim.AddRoute(sim.Route{Prefix: netip.MustParsePrefix(dst), Paths: []sim.Path{{Type: sim.PathUnreach}}}); err != nil {
					t.Fatal(err)
				}
			}
			l.restartAgent()
			l.want = kv.Values{}
			l.allConfigured(l.put(&contivl3.RejectRoute{DstNetwork: "10.96.0.5/32"}))
			l.allConfigured(l.txn(event.Full, nil))
			if dump := l.sim.Dump(); !strings.Contains(dump, "10.96.0.3/32") || !strings.Contains(dump, "10.9.0.0/16") || strings.Contains(dump, "10.96.0.5") {
				t.Errorf("others' routes are to stay, ours not:\n%s", dump)
			}
			again, err := os.ReadFile(path)
			if err != nil || !strings.HasPrefix(string(again), "contiv-agent journal 1\n") {
				t.Errorf("not repaired: %v %q", err, again)
			}
		})
	}
}

func TestLocate(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.sim.AddInterface(sim.Interface{Name: "GigabitEthernet0/8/0", Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.16.1/24")}})
	l.sim.AddInterface(sim.Interface{Name: "loop0", Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.30.1/24")}})
	addPod(l, "tap1", "10.1.1.2")
	l.sim.AddInterface(sim.Interface{Name: "tap2", Tag: "cni:default/tagged/eth0"})
	for _, r := range []sim.Route{
		{Prefix: netip.MustParsePrefix("10.1.2.0/24"), Paths: []sim.Path{{Via: netip.MustParseAddr("192.168.30.2"), Interface: "loop0"}}},
		{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Paths: []sim.Path{{Via: netip.MustParseAddr("192.168.16.100")}}},
	} {
		if err := l.sim.AddRoute(r); err != nil {
			t.Fatal(err)
		}
	}
	l.allConfigured(l.resync())
	ask := &event.Locate{
		Pods: map[netip.Addr]string{
			netip.MustParseAddr("10.1.1.2"): "default/web", netip.MustParseAddr("10.1.1.3"): "default/tagged", netip.MustParseAddr("10.1.1.4"): "default/nowhere",
		},
		NodeIPs: []netip.Addr{netip.MustParseAddr("192.168.16.1")}, Remote: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")},
	}
	got, err := l.agent.Locate(context.Background(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if got.Uplink != "GigabitEthernet0/8/0" || got.Overlay != "loop0" || len(got.Pods) != 2 || got.Pods[netip.MustParseAddr("10.1.1.2")] != "tap1" ||
		got.Pods[netip.MustParseAddr("10.1.1.3")] != "tap2" || !slices.Equal(got.UplinkIPs, []netip.Prefix{netip.MustParsePrefix("192.168.16.1/24")}) {
		t.Errorf("located %+v", got)
	}
	for _, k := range []struct {
		remote  []string
		overlay string
		none    bool
	}{
		{[]string{"10.1.0.0/24", "10.1.2.0/24"}, "loop0", false}, // the first has no route yet
		{[]string{"10.1.0.0/24"}, "GigabitEthernet0/8/0", true},
		{nil, "GigabitEthernet0/8/0", false},
	} {
		ask.Remote = nil
		for _, p := range k.remote {
			ask.Remote = append(ask.Remote, netip.MustParsePrefix(p))
		}
		if got, err = l.agent.Locate(context.Background(), ask); err != nil || got.Overlay != k.overlay || got.NoOverlay != k.none {
			t.Errorf("pods of other nodes in %v: located %+v, %v", k.remote, got, err)
		}
	}
	ask.NodeIPs = []netip.Addr{netip.MustParseAddr("1.2.3.4")} // no node's address: the default route decides
	ask.Remote = nil
	ask.Names = []string{"default/tagged", "default/nowhere"}
	ask.Override.Host = "tap9"
	if got, err = l.agent.Locate(context.Background(), ask); err != nil || got.Uplink != "GigabitEthernet0/8/0" || got.Overlay != got.Uplink || got.Host != "tap9" {
		t.Errorf("located %+v, %v", got, err)
	}
	if want := map[string]string{"default/tagged": "tap2"}; !maps.Equal(got.Names, want) {
		t.Errorf("located by name: %v, want %v", got.Names, want)
	}
}

// TestLocateReusedAddress: a new pod has the address of another one that the agent still knows. Its interface is not that one's, if interfaces are named after
// their pods.
func TestLocateReusedAddress(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	cut := "default/" + strings.Repeat("a", 55)
	ask := &event.Locate{Pods: map[netip.Addr]string{}}
	want := map[netip.Addr]string{}
	for i, p := range []struct{ tag, pod, found string }{
		{"default/new", "default/old", ""},
		{"default/web-eth0", "default/web", "tap2"},
		{cut, cut + "bcd", "tap3"},
		{"", "default/untagged", "tap4"},
		{"default/only6", "", "tap5"},
		{"default/web-2", "default/web", "tap6"}, // it may be the second interface of web
		{"default/db-17", "default/db-1", ""},
		{"other-default/app", "default/app", "tap8"}, // other- may be the CNI's
		{"mydefault/app", "default/app", ""},
	} {
		name, addr := fmt.Sprintf("tap%d", i+1), netip.AddrFrom4([4]byte{10, 1, 1, byte(i + 2)})
		l.sim.AddInterface(sim.Interface{Name: name, Tag: p.tag})
		if err := l.sim.AddRoute(sim.Route{Prefix: netip.PrefixFrom(addr, 32), Paths: []sim.Path{{Interface: name}}}); err != nil {
			t.Fatal(err)
		}
		if ask.Pods[addr] = p.pod; p.found != "" {
			want[addr] = p.found
		}
	}
	l.allConfigured(l.resync())
	got, err := l.agent.Locate(context.Background(), ask)
	if err != nil || !maps.Equal(got.Pods, want) {
		t.Errorf("located %v, want %v; %v", got.Pods, want, err)
	}
}

// TestLocateOnlyPodsAddressReused: the node's only pod has lost its interface to a new pod with its address. The agent knows from earlier lookups that
// interfaces are named after their pods, until it finds other names.
func TestLocateOnlyPodsAddressReused(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	first, second := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3")
	l.allConfigured(l.resync())
	pod := func(name, tag string, addr netip.Addr) {
		l.sim.AddInterface(sim.Interface{Name: name, Tag: tag})
		if err := l.sim.AddRoute(sim.Route{Prefix: netip.PrefixFrom(addr, 32), Paths: []sim.Path{{Interface: name}}}); err != nil {
			t.Fatal(err)
		}
	}
	locate := func(what string, pods, want map[netip.Addr]string) {
		t.Helper()
		l.agent.Interfaces(t.Context())
		if got, err := l.agent.Locate(t.Context(), &event.Locate{Pods: pods}); err != nil || !maps.Equal(got.Pods, want) {
			t.Errorf("%s: located %v, want %v; %v", what, got.Pods, want, err)
		}
	}
	pod("tap1", "default/old", first)
	locate("its own interface", map[netip.Addr]string{first: "default/old"}, map[netip.Addr]string{first: "tap1"})
	l.sim.RemoveRoute(0, netip.PrefixFrom(first, 32))
	l.sim.RemoveInterface("tap1")
	pod("tap2", "default/new", first)
	locate("a new pod's interface", map[netip.Addr]string{first: "default/old"}, map[netip.Addr]string{})
	pod("tap3", "container-3/eth0", second)
	both := map[netip.Addr]string{first: "default/old", second: "default/other"}
	locate("other names", both, map[netip.Addr]string{first: "tap2", second: "tap3"})
}

// TestLocateUplinkBesideHost: routes to the node's address, and the default route, may lead to the host interface. It is not the uplink: with
// the uplink's roles the node's answers to its pods would be translated.
func TestLocateUplinkBesideHost(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	for _, name := range []string{"uplink", "host0", "overlay"} {
		l.sim.AddInterface(sim.Interface{Name: name})
	}
	l.allConfigured(l.resync())
	route := func(to, iface string) sim.Route {
		return sim.Route{Prefix: netip.MustParsePrefix(to), Paths: []sim.Path{{Interface: iface}}}
	}
	ask := &event.Locate{
		NodeIPs: []netip.Addr{netip.MustParseAddr("192.168.16.1")}, Remote: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}, Override: event.Located{Host: "host0"},
	}
	for _, c := range []struct {
		routes                  []sim.Route
		uplink, overlay, leaves string
	}{
		{nil, "", "", "nothing has a route"},
		{[]sim.Route{route("192.168.16.1/32", "host0")}, "", "", "only the node's address has a route"},
		{[]sim.Route{route("0.0.0.0/0", "uplink")}, "uplink", "uplink", "the default route leads to the uplink"},
		{[]sim.Route{route("0.0.0.0/0", "host0")}, "", "", "all but the pods leave by the node's network stack"},
		{[]sim.Route{route("10.1.2.0/24", "overlay")}, "", "overlay", "other nodes' pods are behind the overlay"},
	} {
		for _, r := range c.routes {
			if err := l.sim.AddRoute(r); err != nil {
				t.Fatal(err)
			}
		}
		got, err := l.agent.Locate(context.Background(), ask)
		if err != nil || got.Uplink != c.uplink || got.Overlay != c.overlay || got.Host != "host0" || got.ByHost != (c.uplink == "" && len(c.routes) > 0) {
			t.Errorf("%s: located %+v, %v", c.leaves, got, err)
		}
	}
}

// Addresses of the host link are the neighbours on the host interface, unless the question has them.
func TestLocateHostLink(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.sim.AddInterface(sim.Interface{Name: "loop0", Addresses: []netip.Prefix{netip.MustParsePrefix("169.254.1.1/24"), netip.MustParsePrefix("fd00::1/64")}})
	l.sim.AddInterface(sim.Interface{Name: "tap0", Unnumbered: "loop0"})
	l.sim.AddInterface(sim.Interface{Name: "tap1", Unnumbered: "loop0"})
	l.allConfigured(l.resync())
	neighbour := func(iface, addr string) *l3.ARPEntry {
		return &l3.ARPEntry{Interface: iface, IpAddress: addr, PhysAddress: "02:fe:00:00:00:01", Static: true}
	}
	l.allConfigured(l.put(neighbour("tap0", "169.254.1.2"), neighbour("tap1", "10.1.1.9"), neighbour("tap0", "fe80::2"), neighbour("tap0", "fd00::2")))
	ask := &event.Locate{Override: event.Located{Host: "tap0"}}
	got, err := l.agent.Locate(context.Background(), ask)
	want := []netip.Addr{netip.MustParseAddr("169.254.1.2"), netip.MustParseAddr("fd00::2")}
	if err != nil || !slices.Equal(got.HostIPs, want) {
		t.Errorf("located %v, not %v, %v", got.HostIPs, want, err)
	}
	ask.Override.HostIPs = want[:1]
	if got, err = l.agent.Locate(context.Background(), ask); err != nil || !slices.Equal(got.HostIPs, want[:1]) {
		t.Errorf("given %v: located %v, %v", want[:1], got.HostIPs, err)
	}
}

func TestPlan(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	values := kv.Values{}
	for _, m := range append(node(), dnat("default/web", "10.96.0.1", 80, "10.1.1.1:80")) {
		values.Put(m)
	}
	before := l.sim.Dump()
	l.writes()
	txn := &event.Txn{Resync: event.Full, Values: values}
	p, err := l.agent.Plan(context.Background(), txn)
	if err != nil {
		t.Fatal(err)
	}
	l.quiet("a plan")
	text := p.String()
	for _, want := range []string{
		"create config/vpp/nat/v2/nat44-global\n    nat44_ed_plugin_enable_disable sessions=10000 enable=true\n",
		"create config/vpp/nat/v2/dnat44/default/web\n    nat44_add_del_lb_static_mapping is_add=true ",
		"pending config/vpp/nat/v2/nat44-interface/tap1: waits for config/vpp/v2/interfaces/tap1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if json, err := p.JSON(); err != nil || !strings.Contains(string(json), `"action": "create"`) {
		t.Errorf("%v %s", err, json)
	}
	if l.sim.Dump() != before || len(l.agent.Snapshot().Values()) != 0 {
		t.Error("planning changed something")
	}
	if c := l.txn(event.Full, values); c.Err != nil {
		t.Fatal(c.Err)
	}
	if p, err = l.agent.Plan(context.Background(), txn); err != nil || p.String() != "pending config/vpp/nat/v2/nat44-interface/tap1: waits for config/vpp/v2/interfaces/tap1\n" {
		t.Errorf("%v %s", err, p)
	}
	p, err = l.agent.Plan(context.Background(), &event.Txn{Values: map[string]proto.Message{kv.Nat44GlobalKey: nil}})
	if err != nil {
		t.Fatal(err)
	}
	// A value is removed before the value it needs.
	if text = p.String(); strings.Index(text, "delete config/vpp/nat/v2/dnat44") > strings.Index(text, "delete config/vpp/nat/v2/nat44-pool") ||
		strings.Index(text, "delete config/vpp/nat/v2/nat44-pool") > strings.Index(text, "delete config/vpp/nat/v2/nat44-global") {
		t.Errorf("wrong order:\n%s", text)
	}
}

func TestSettingsThatCannotChange(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.allConfigured(l.put(&nat.Nat44Global{}, &contivnat.Nat44Settings{Sessions: 1000}))
	c := l.put(&contivnat.Nat44Settings{Sessions: 2000, Udp: 20})
	if s := status(c, kv.Nat44SettingsKey); s.State != event.Failed || !strings.Contains(s.Err, "sessions: VPP has 1000, wanted is 2000") {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(l.sim.Dump(), "sessions 1000") || !strings.Contains(l.sim.Dump(), "timeouts 20/") {
		t.Error(l.sim.Dump())
	}
	l.writes()
	l.resync()
	l.quiet("resync")
	l.restartVPP()
	l.allConfigured(l.resync())
}

// TestSettingsKeepTheSize: a VPP whose NAT44 another agent enabled keeps its table. The value is configured with its timeouts. After its removal
// VPP has its default timeouts again, also if the value fails for its size.
func TestSettingsKeepTheSize(t *testing.T) {
	for _, keep := range []bool{true, false} {
		l := newLab(t, vppagent.Config{Journal: filepath.Join(t.TempDir(), "journal")})
		l.allConfigured(l.put(&nat.Nat44Global{}))
		if !strings.Contains(l.sim.Dump(), "sessions 64512 ") {
			t.Fatal(l.sim.Dump())
		}
		l.restartAgent()
		l.want = kv.Values{}
		l.want.Put(&nat.Nat44Global{})
		l.want.Put(&contivnat.Nat44Settings{Sessions: 2000, Udp: 20, KeepSize: keep})
		c := l.resync()
		if got := status(c, kv.Nat44SettingsKey); (got.State == event.Configured) != keep {
			t.Errorf("keep %v: %+v", keep, got)
		}
		if !strings.Contains(l.sim.Dump(), "sessions 64512 ") || !strings.Contains(l.sim.Dump(), "timeouts 20/7440/240/60") {
			t.Errorf("keep %v: %s", keep, l.sim.Dump())
		}
		if l.writes(); keep {
			l.resync()
			l.quiet("resync")
		}
		l.restartAgent()
		l.want = kv.Values{}
		l.allConfigured(l.resync())
		if !strings.Contains(l.sim.Dump(), "timeouts 300/7440/240/60") {
			t.Errorf("keep %v: timeouts are left: %s", keep, l.sim.Dump())
		}
		l.want.Put(&nat.Nat44Global{})
		l.want.Put(&contivnat.Nat44Settings{Sessions: 2000, KeepSize: keep})
		l.restartVPP()
		l.allConfigured(l.resync())
		if !strings.Contains(l.sim.Dump(), "sessions 2000 ") {
			t.Errorf("keep %v: %s", keep, l.sim.Dump())
		}
	}
}

// The replacement is added before the replaced object is removed: every packet meets one of them.
func TestPutsBeforeRemovals(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	old := &l3.Route{DstNetwork: "10.2.0.0/16", OutgoingInterface: "tap1", NextHopAddr: "10.1.1.2"}
	l.allConfigured(l.put(old))
	l.writes()
	now := &l3.Route{DstNetwork: "10.2.0.0/16", OutgoingInterface: "tap1", NextHopAddr: "10.1.1.3"}
	l.allConfigured(l.commit(map[string]proto.Message{kv.Key(old): nil, kv.Key(now): now}))
	if w := l.writes(); len(w) != 2 || !strings.Contains(w[0], "is_add=true") || strings.Contains(w[1], "is_add=true") {
		t.Errorf("%q", w)
	}
}

// A VIP that moves from one Service to another is freed before it is taken, in one batch.
func TestVIPMoves(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.allConfigured(l.put(append(node()[:3], dnat("a", "10.96.0.1", 80, "10.1.1.1:80"), dnat("z", "10.96.0.2", 80, "10.1.1.2:80"))...))
	l.allConfigured(l.put(dnat("a", "10.96.0.2", 80, "10.1.1.1:80"), dnat("z", "10.96.0.1", 80, "10.1.1.2:80"))) // swap
	l.allConfigured(l.commit(map[string]proto.Message{kv.DNat44Key("a"): nil, kv.DNat44Key("b"): dnat("b", "10.96.0.2", 80, "10.1.1.1:80")}))
	if dump := l.sim.Dump(); !strings.Contains(dump, `10.96.0.2:80 self-twice-nat out2in-only tag "ca1:n:-:b"`) || !strings.Contains(dump, `10.96.0.1:80 self-twice-nat out2in-only tag "ca1:n:-:z"`) {
		t.Error(dump)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	l := newLab(t, vppagent.Config{History: 4000})
	for i := range 100 {
		l.put(&contivl3.RejectRoute{DstNetwork: "10.96.0.1/32", Action: contivl3.RejectRoute_Action(i % 3)})
	}
	h := l.agent.Snapshot().History
	if len(h) < 5 || len(h) > 25 || h[len(h)-1].Seq != 100 {
		t.Fatalf("%d records, the last is %v", len(h), h[len(h)-1])
	}
	many := kv.Values{}
	for i := range 250 {
		many.Put(&contivl3.RejectRoute{DstNetwork: netip.AddrFrom4([4]byte{10, 97, 0, byte(i)}).String() + "/32"})
	}
	l.allConfigured(l.commit(many))
	h = l.agent.Snapshot().History
	if last := h[len(h)-1]; len(h) < 2 || last.Dropped == 0 || len(last.Ops)+last.Dropped != 250 || !strings.Contains(last.String(), "… and ") {
		t.Errorf("%d records, the last drops %d of its operations", len(h), last.Dropped)
	}
}

func TestRun(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	ctx, stop := context.WithCancel(t.Context())
	txns := make(chan *event.Txn)
	events := make(chan event.Event, 100)
	done := make(chan error)
	go func() { done <- l.agent.Run(ctx, txns, func(e event.Event) { events <- e }) }()
	l.agent.Connected(l.conn.State())
	if c := (<-events).(*event.Committed); c.Cause != "connected" || c.Err != nil {
		t.Errorf("first: %+v", c)
	}
	pod := netip.MustParseAddr("10.1.1.2")
	txns <- &event.Txn{
		Seq: 7, Values: kv.Values{kv.Nat44GlobalKey: &nat.Nat44Global{}, kv.Nat44InterfaceKey("tap1"): &nat.Nat44Interface{Name: "tap1", NatInside: true}},
		Locate: &event.Locate{Pods: map[netip.Addr]string{pod: "default/tap1"}},
	}
	if c := (<-events).(*event.Committed); c.Seq != 7 || c.Add != 1 {
		t.Errorf("transaction: %+v", c)
	}
	if l := (<-events).(*event.Located); len(l.Pods) != 0 {
		t.Errorf("located %+v", l)
	}
	addPod(l, "tap1", "10.1.1.2")
	l.agent.InterfacesChanged()
	if c := (<-events).(*event.Committed); c.Cause != "interfaces" || c.Add != 1 {
		t.Errorf("interface: %+v", c)
	}
	if l := (<-events).(*event.Located); l.Pods[pod] != "tap1" {
		t.Errorf("located again: %+v", l)
	}
	l.sim.Restart()
	for s := range l.states {
		l.agent.Connected(s)
		if s.Connected {
			break
		}
	}
	if c := (<-events).(*event.Committed); c.Cause != "connected" || c.Add != 2 {
		t.Errorf("VPP restarted: %+v", c)
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
}
