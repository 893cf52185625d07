package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/feature"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// look examines v with a configuration.
func look(t *testing.T, v *sim.VPP, cfg Config) *Report {
	t.Helper()
	cfg.Dial = v.Dial
	r, err := Examine(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		stated(t, c)
	}
	return r
}

func (r *Report) of(t *testing.T, name string) Check {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %s in %+v", name, r.Checks)
	return Check{}
}

func want(t *testing.T, c Check, v Verdict, mends string) {
	t.Helper()
	if c.Verdict != v || !strings.Contains(c.Found+"\n"+c.Consequence+"\n"+c.Startup+"\n"+c.Command, mends) {
		t.Errorf("%+v, want %s with %q", c, v, mends)
	}
	stated(t, c)
	if c.Verdict.rank() >= Missing.rank() && (c.Consequence == "" || c.Startup+c.Command == "" && c.Name != "nat44 weights") {
		t.Errorf("%s: no consequence, or no line or command that corrects it: %+v", c.Name, c)
	}
}

// TestHostLink: with nat44 the node's own processes need an address, and a link that policies can trust.
func TestHostLink(t *testing.T) {
	v := sim.New(sim.Config{})
	defer v.Close()
	v.AddInterface(sim.Interface{Name: "tap0", Tag: "kernel", Addresses: []netip.Prefix{netip.MustParsePrefix("169.254.1.1/30")}})
	v.AddInterface(sim.Interface{Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.16.1/24")}})
	host := netip.MustParseAddr("169.254.1.2")
	check := func(cfg Config, name string, verdict Verdict, mends string) {
		t.Helper()
		want(t, look(t, v, cfg).of(t, name), verdict, mends)
	}
	check(Config{}, "host link", Note, "contiv-agent run --host-address")
	check(Config{HostInterface: "tap9"}, "host link", Missing, "VPP has no interface tap9")
	check(Config{HostInterface: "tap0"}, "host link", Missing, "VPP has no IPv4 neighbour on tap0")
	if err := v.AddNeighbor(sim.Neighbor{Interface: "tap0", Addr: host}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tap0", "kernel"} {
		check(Config{HostInterface: name}, "host link", OK, name+" with 169.254.1.2")
	}
	check(Config{HostAddresses: []netip.Addr{host}}, "host link 169.254.1.2", OK, "via tap0")
	far := netip.MustParseAddr("10.9.9.9")
	check(Config{HostAddresses: []netip.Addr{far}}, "host link 10.9.9.9", Missing, "no route to it but the default route")
	if err := v.AddRoute(sim.Route{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Paths: []sim.Path{{Interface: "eth0"}}}); err != nil {
		t.Fatal(err)
	}
	check(Config{HostAddresses: []netip.Addr{host, far}}, "host link 10.9.9.9", Missing, "vppctl ip route add 10.9.9.9/32")
	for _, cfg := range []Config{{CNAT: true}, {NoPolicies: true}} {
		for _, c := range look(t, v, cfg).Checks {
			if strings.HasPrefix(c.Name, "host link") {
				t.Errorf("%+v: %+v", cfg, c)
			}
		}
	}
}

// TestOnlyReads checks that every question only reads.
func TestOnlyReads(t *testing.T) {
	all := questions()
	for _, c := range hostQuestions([]netip.Addr{netip.MustParseAddr("169.254.1.2")}, 1) {
		all = append(all, question{hostLink, c})
	}
	for _, q := range all {
		name := q.call.Msg.GetMessageName()
		cli, is := q.call.Msg.(*vlib.CliInband)
		switch {
		case is && strings.HasPrefix(cli.Cmd, "show "):
		case !is && !sim.Writes(name):
		default:
			t.Errorf("%s (%s) is not known to be read-only", q.name, name)
		}
	}
}

// TestOnlyTheSimulatedVPPSkips: a real VPP that does not report its memory, or has no stats socket, is not excused; and the simulated one is for nothing that it has.
func TestOnlyTheSimulatedVPPSkips(t *testing.T) {
	f := &facts{cfg: Config{Stats: "/run/vpp/stats.sock"}, stats: errors.New("no such file"), state: vpp.State{Version: "25.10-release"}}
	find := func(name string) Check {
		for _, c := range judge(f).Checks {
			if c.Name == name {
				return c
			}
		}
		t.Fatalf("no check %q", name)
		return Check{}
	}
	want(t, find("stats socket"), Missing, "statseg { socket-name")
	want(t, find("main heap"), Unknown, "")
	f.state.Simulated = true
	want(t, find("stats socket"), Skipped, "")
	f.state.Version = "main"
	want(t, find("version"), Unknown, "")
	full := []Check{{Name: "acl sessions", Verdict: Dangerous}}
	if skip(full); full[0].Verdict != Dangerous {
		t.Errorf("a full table is skipped: %+v", full)
	}
}

func TestHealthySim(t *testing.T) {
	v := sim.New(sim.Config{})
	defer v.Close()
	r := look(t, v, Config{})
	if !r.Well() || r.Worst != Note || r.PID == 0 || !r.Simulated {
		t.Errorf("%+v", r)
	}
	for name, verdict := range map[string]Verdict{
		"version": OK, "messages": OK, natPlugin: OK, aclPlugin: OK, "cnat_plugin.so": OK, "acl reclassify": OK, "nat44": OK,
		"main heap": Skipped, "stats segment": Skipped, "api trace": Skipped, "cnat sessions": Skipped, "stats socket": Skipped,
	} {
		want(t, r.of(t, name), verdict, "")
	}
	want(t, r.of(t, "version"), OK, "whole bytes")
	names := map[string]bool{}
	for _, c := range r.Checks {
		if names[c.Name] {
			t.Errorf("%s occurs twice", c.Name)
		}
		names[c.Name] = true
	}
}

func TestVersions(t *testing.T) {
	for version, verdict := range map[string]Verdict{
		"23.10-release": Wrong, "v24.06-release": OK, "24.10-rc1~2-gab": OK, "25.06-release": OK, "25.10-release": OK, "26.06-release": OK, "26.10-rc0": Note, "main": Unknown,
	} {
		v := sim.New(sim.Config{Version: version})
		c := look(t, v, Config{}).of(t, "version")
		if c.Verdict != verdict {
			t.Errorf("%s: %s, want %s", version, c.Verdict, verdict)
		}
		if got, older := strings.Contains(c.Consequence, "whole bytes"), strings.Contains(version, "24."); got != older {
			t.Errorf("%s: speaks of IPv6 prefixes: %t, want %t", version, got, older)
		}
		v.Close()
	}
}

// TestHostInterfaces: VPP 25.06 and later stop when 16 af_packet interfaces are readable, unless they have the library.
func TestHostInterfaces(t *testing.T) {
	for _, tc := range []struct {
		version    string
		interfaces int
		verdict    Verdict // "": no such check
	}{{"24.06-release", 110, ""}, {"25.02-release", 110, ""}, {"25.06-release", 15, OK}, {"25.10-release", 16, Unknown}, {"26.06-release", 110, Unknown}} {
		v := sim.New(sim.Config{Version: tc.version})
		for i := range tc.interfaces {
			v.AddInterface(sim.Interface{Name: fmt.Sprintf("host-cv-%d", i), DevType: "af-packet"})
		}
		v.AddInterface(sim.Interface{Name: "tap0"})
		r := look(t, v, Config{})
		v.Close()
		if i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == "host interfaces" }); tc.verdict == "" || i < 0 {
			if i >= 0 || tc.verdict != "" {
				t.Errorf("VPP %s: %+v", tc.version, r.Checks)
			}
			continue
		}
		want(t, r.of(t, "host interfaces"), tc.verdict, fmt.Sprintf("%d af_packet interfaces", tc.interfaces))
	}
	const lib = "7f2a6c000000-7f2a6c001000 r-xp 00000000 08:01 77 /usr/lib/x86_64-linux-gnu/libvlib.so.25.10\n"
	f := &facts{state: vpp.State{Version: "25.10-release"}, replies: map[string]vpp.Reply{}}
	for range readAtOnce {
		f.replies[askInterfaces] = vpp.Reply{Details: append(f.replies[askInterfaces].Details, &interfaces.SwInterfaceDetails{InterfaceDevType: "af-packet"})}
	}
	for maps, verdict := range map[string]Verdict{
		"": Unknown, "7f2a6c000000-7f2a6c001000 r-xp 00000000 08:01 77 /usr/bin/bash\n": Unknown, lib: Dangerous,
		lib + "7f2a6c002000-7f2a6c003000 r-xp 00000000 08:01 78 /usr/local/lib/epoll.so\n": OK,
	} {
		f.maps = maps
		want(t, hostInterfaces(f)[0], verdict, "16 af_packet interfaces")
	}
}

func TestFindsWhatIsWrong(t *testing.T) {
	v := sim.New(sim.Config{NoReclassify: true, Workers: 2})
	defer v.Close()
	conn := vpp.New(vpp.Config{Dial: v.Dial})
	go func() { _ = conn.Run(t.Context()) }() // ends with the test
	for !conn.State().Connected {
		time.Sleep(time.Millisecond)
	}
	ask := func(calls ...vpp.Call) {
		t.Helper()
		for i, r := range conn.Do(t.Context(), calls...) {
			if r.Err != nil {
				t.Fatalf("%s: %v", calls[i].Msg.GetMessageName(), r.Err)
			}
		}
	}
	backend := func(last, weight uint8) nat44_ed.Nat44LbAddrPort {
		return nat44_ed.Nat44LbAddrPort{Addr: ip_types.IP4Address{10, 1, 1, last}, Port: 80, Probability: weight}
	}
	mapping := func(port uint16, tag string, a, b uint8) vpp.Call {
		return vpp.Call{Msg: &nat44_ed.Nat44AddDelLbStaticMapping{
			IsAdd: true, Flags: nat_types.NAT_IS_OUT2IN_ONLY, ExternalAddr: ip_types.IP4Address{10, 96, 0, 1}, ExternalPort: port, Protocol: 6, Tag: tag,
			LocalNum: 2, Locals: []nat44_ed.Nat44LbAddrPort{backend(1, a), backend(2, b)},
		}}
	}
	ask(vpp.Call{Msg: &nat44_ed.Nat44EdPluginEnableDisable{Enable: true, Sessions: 100}},
		vpp.Call{Msg: &interfaces.CreateLoopbackInstance{}},
		vpp.Call{Msg: &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, Flags: nat_types.NAT_IS_INSIDE, SwIfIndex: interface_types.InterfaceIndex(1)}},
		mapping(80, "ca1:n:mine", 1, 1), mapping(81, "theirs", 1, 1),
		vpp.Call{Msg: &acl.ACLAddReplace{ACLIndex: ^uint32(0), Tag: "theirs"}})
	r := look(t, v, Config{Stats: filepath.Join(t.TempDir(), "no.sock")})
	if r.Well() || r.Worst != Dangerous {
		t.Errorf("worst: %s", r.Worst)
	}
	want(t, r.of(t, "acl reclassify"), Dangerous, "acl-plugin { reclassify sessions 1 }")
	want(t, r.of(t, "nat workers"), Wrong, "workers 1")
	want(t, r.of(t, "nat workers"), Wrong, "set nat workers 0")
	want(t, r.of(t, "nat44"), Dangerous, "nat44 forwarding enable")
	want(t, r.of(t, "nat44 interfaces"), Dangerous, "nat44 out loop0")
	node := func(on bool, name string) vpp.Call {
		return vpp.Call{Msg: &feature.FeatureEnableDisable{Enable: on, SwIfIndex: 1, ArcName: "ip4-unicast", FeatureName: name}}
	}
	ask(node(false, "nat-pre-in2out"), node(true, "nat44-ed-classify"))
	want(t, look(t, v, Config{Stats: filepath.Join(t.TempDir(), "no.sock")}).of(t, "nat44 interfaces"), OK, "")
	want(t, r.of(t, "nat44 mappings"), Note, "1 of an agent's, 1 foreign")
	want(t, r.of(t, "access lists"), Note, "1 foreign")
	want(t, r.of(t, "stats socket"), Skipped, "")
	ask(vpp.Call{Msg: &nat44_ed.Nat44ForwardingEnableDisable{Enable: true}})
	want(t, look(t, v, Config{}).of(t, "nat44"), Wrong, "--nat-sessions")
	for _, c := range look(t, v, Config{CNAT: true, NoPolicies: true}).Checks {
		if c.Verdict.rank() >= Missing.rank() {
			t.Errorf("not needed, and found: %+v", c)
		}
	}
}

// TestVerdictsOfTexts reads texts as a real VPP prints them.
func TestVerdictsOfTexts(t *testing.T) {
	said := func(cli, text string) *facts {
		return &facts{replies: map[string]vpp.Reply{
			cli: {Msg: &vlib.CliInbandReply{Reply: text}}, askWorkers: {}, askACLLimit: {Msg: &acl.ACLPluginGetConnTableMaxEntriesReply{ConnTableMaxEntries: 1000}},
		}}
	}
	memory := func(total, used string) string {
		return "    total: " + total + ", used: " + used + ", free: 1M, trimmable: 1M\n"
	}
	nat := func(total string) Check {
		return said(askNATUse, "max translations per thread: 1000 fib 0\ntotal sessions: "+total+"\n").natSessions(1000)
	}
	lists := func(n string) Check {
		return said(askACLUse, "Sessions active: add 9 - deact 9 = "+n+"\n").aclSessions()
	}
	cnat := func(text string) Check {
		f := said(askCNATUse, text)
		f.state.Missing = []string{"cnat_snat_addresses_dump_51077d14"}
		return f.cnat()[0]
	}
	large := func(size string, older bool) Check {
		f := said(askCNATUse, "Hash table 'CNat Session DB'\n    3000 active elements 1000 active buckets\n    bytes: used "+size+", scrap 0\n")
		f.replies[askHeap] = vpp.Reply{Msg: &vlib.CliInbandReply{Reply: memory("1023.99M", "336.84M")}}
		if older {
			f.state.Missing = []string{"cnat_snat_addresses_dump_51077d14"}
		}
		return f.cnat()[0]
	}
	for _, tc := range []struct {
		name string
		c    Check
		want Verdict
	}{
		{"cnat in a fifth of the heap", large("200m", true), OK},
		{"cnat in a quarter of the heap", large("256m", true), Wrong},
		{"cnat in half of the heap", large("512m", true), Dangerous},
		{"cnat of 26.06 in half of the heap", large("512m", false), OK},
		{"default heap", said(askHeap, memory("1023.99M", "36.84M")).heap(), OK},
		{"small heap", said(askHeap, memory("511.99M", "36.84M")).heap(), Wrong},
		{"full heap", said(askHeap, memory("2.00G", "1.80G")).heap(), Dangerous},
		{"another heap", said(askHeap, "all is well").heap(), Unknown},
		{"statseg", said(askStatseg, memory("127.99M", "548.11K")).statseg(), OK},
		{"default statseg", said(askStatseg, memory("31.99M", "548.11K")).statseg(), Wrong},
		{"full statseg", said(askStatseg, memory("127.99M", "120M")).statseg(), Dangerous},
		{"trace on", said(askTrace, "RX Trace enabled\nTX Trace disabled\n").trace(), Note},
		{"trace off", said(askTrace, "RX Trace disabled\nTX Trace enabled\n").trace(), OK},
		{"nat idle", nat("799 (timed out: 700)"), OK},
		{"nat busy", nat("800 (timed out: 0)"), Wrong},
		{"nat wedged", nat("1000 (timed out: 1000)"), Dangerous},
		{"nat silent", nat("many"), Unknown},
		{"lists", lists("800"), OK},
		{"lists busy", lists("801"), Wrong},
		{"lists full", lists("1000"), Dangerous},
		{"cnat at rest", cnat("Hash table 'CNat Session DB'\n    empty, uninitialized\n"), OK},
		{"cnat crowded", cnat("Hash table 'CNat Session DB'\n    3000 active elements 1000 active buckets\n    bytes: used 1.50m, scrap 0\n"), Wrong},
		{"cnat at ease", cnat("Hash table 'CNat Session DB'\n    3000 active elements 1000 active buckets\n    bytes: used 14m, scrap 0\n"), OK},
		{"cnat of 26.06", said(askCNATUse, "Hash table 'CNat Session DB'\n    3000 active elements 1000 active buckets\n    bytes: used 1.50m, scrap 0\n").cnat()[0], OK},
		{"cnat empty", cnat("Hash table 'CNat Session DB'\n    3 active elements 3 active buckets\n    bytes: used 800k, scrap 0\n"), OK},
	} {
		if tc.c.Verdict != tc.want {
			t.Errorf("%s: %+v, want %s", tc.name, tc.c, tc.want)
		}
		want(t, tc.c, tc.want, "")
	}
}

func TestMissingPlugins(t *testing.T) {
	all := &facts{}
	for _, m := range needs() {
		all.state.Missing = append(all.state.Missing, m.GetMessageName()+"_"+m.GetCrcString())
	}
	got := map[string]Verdict{}
	for _, c := range all.plugins() {
		stated(t, c)
		got[c.Name] = c.Verdict
	}
	for name, verdict := range map[string]Verdict{natPlugin: Missing, aclPlugin: Missing, "cnat_plugin.so": Note, "memif_plugin.so": Note} {
		if got[name] != verdict {
			t.Errorf("%s: %s, want %s", name, got[name], verdict)
		}
	}
	stated(t, all.core())
	if c := all.core(); c.Verdict != Wrong || !strings.Contains(c.Found, "sw_interface_dump_") || strings.Contains(c.Found, " acl_") {
		t.Errorf("%+v", c)
	}
	one := &facts{}
	one.state.Missing = []string{"nat44_lb_static_mapping_details_12345678", "cnat_set_snat_policy_d3e6eaf4", "cnat_get_snat_addresses_51077d14"}
	for _, c := range one.plugins() {
		stated(t, c)
		verdict := OK
		switch c.Name {
		case natPlugin:
			verdict = Wrong
		case "cnat_plugin.so": // only messages of its newer API are missing
			verdict = Note
		}
		if c.Verdict != verdict {
			t.Errorf("%+v, want %s", c, verdict)
		}
	}
	for version, there := range map[string]bool{"24.06": false, "v25.10-release": false, "v26.06-release": true} {
		all.state.Version = version
		listed := slices.ContainsFunc(all.plugins(), func(c Check) bool { return c.Name == tapPlugin && c.Verdict == Note })
		if core := strings.Contains(all.core().Found, "tap_create_v3_"); listed != there || core == there {
			t.Errorf("%s: taps by a plugin %t, by VPP %t", version, listed, core)
		}
		limits := slices.ContainsFunc(all.plugins(), func(c Check) bool { return c.Name == policerPlugin && c.Verdict == Note })
		if core := strings.Contains(all.core().Found, "policer_add_del_"); limits != there || core == there {
			t.Errorf("%s: policers by a plugin %t, by VPP %t", version, limits, core)
		}
	}
	for plugin, cfg := range map[string]Config{natPlugin: {CNAT: true}, aclPlugin: {NoPolicies: true}} {
		all.cfg = cfg
		for _, c := range all.plugins() {
			if c.Name == plugin && c.Verdict != Note {
				t.Errorf("%s is not needed: %+v", plugin, c)
			}
		}
	}
}

func TestUnreachableVPP(t *testing.T) {
	silent := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, socket := range []string{silent, silent + "none"} {
		if r, err := Examine(t.Context(), Config{Socket: socket, Timeout: 50 * time.Millisecond}); err == nil || !strings.HasPrefix(err.Error(), "connect to vpp: ") {
			t.Errorf("%s: %v %v", socket, r, err)
		}
	}
}

func TestDeadlyWeights(t *testing.T) {
	for _, tc := range []struct {
		weights []uint8
		deadly  bool
	}{{[]uint8{200, 55}, false}, {[]uint8{1, 0, 0}, false}, {[]uint8{200, 56}, true}, {[]uint8{200, 100}, true}, {[]uint8{0, 0}, true}} {
		m := &nat44_ed.Nat44LbStaticMappingDetails{}
		for _, w := range tc.weights {
			m.Locals = append(m.Locals, nat44_ed.Nat44LbAddrPort{Probability: w})
		}
		f := &facts{replies: map[string]vpp.Reply{askBalanced: {Details: []api.Message{m}}}}
		checks := f.mappings()
		stated(t, checks[len(checks)-1])
		if got := checks[len(checks)-1]; (got.Name == "nat44 weights" && got.Verdict == Dangerous) != tc.deadly {
			t.Errorf("%v: %+v, deadly: %t", tc.weights, checks, tc.deadly)
		}
	}
}
