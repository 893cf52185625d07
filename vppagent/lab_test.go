package vppagent_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
)

// lab is an agent connected to a sim, through the real connection core and guard.
type lab struct {
	t      testing.TB
	sim    *sim.VPP
	conn   *vpp.Conn
	agent  *vppagent.Agent
	cfg    vppagent.Config
	states chan vpp.State
	seq    uint64
	want   kv.Values
	lost   bool // the connection is lost, as the last transaction reported
	slow   bool // small changes are made like large ones
}

type tb interface {
	testing.TB
	Context() context.Context
}

func newLab(t tb, cfg vppagent.Config) *lab {
	t.Helper()
	return newLabOn(t, sim.New(sim.Config{}), cfg)
}

func newLabOn(t tb, v *sim.VPP, cfg vppagent.Config) *lab {
	t.Helper()
	l := &lab{t: t, sim: v, cfg: cfg, states: make(chan vpp.State, 1000), want: kv.Values{}}
	l.conn = vpp.New(vpp.Config{Dial: v.Dial, OnConnect: descriptor.OnConnect(), OnState: func(s vpp.State) { l.states <- s }, Needs: all.Needs()})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.conn.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	if s := l.connected(); len(s.Missing) > 0 {
		t.Fatalf("the sim lacks %v", s.Missing)
	}
	l.restartAgent()
	return l
}

// connected waits for the connection.
func (l *lab) connected() vpp.State {
	for s := range l.states {
		if s.Connected {
			return s
		}
	}
	panic("never")
}

// restartAgent replaces the agent by one without any state.
func (l *lab) restartAgent() {
	l.cfg.Caller = l.conn
	l.agent = vppagent.New(l.cfg)
}

// restartVPP restarts VPP, waits for the new connection and reports it to the agent.
func (l *lab) restartVPP() {
	l.sim.Restart()
	l.agent.Connected(l.connected())
}

// commit commits changes; a nil message deletes its key.
func (l *lab) commit(values map[string]proto.Message) *event.Committed {
	l.t.Helper()
	for k, m := range values {
		if m == nil {
			delete(l.want, k)
		} else {
			l.want[k] = m
		}
	}
	return l.txn(event.NoResync, values)
}

func (l *lab) put(ms ...proto.Message) *event.Committed {
	l.t.Helper()
	v := kv.Values{}
	for _, m := range ms {
		v.Put(m)
	}
	return l.commit(v)
}

func (l *lab) del(keys ...string) *event.Committed {
	l.t.Helper()
	v := map[string]proto.Message{}
	for _, k := range keys {
		v[k] = nil
	}
	return l.commit(v)
}

func (l *lab) resync() *event.Committed {
	l.t.Helper()
	return l.txn(event.Full, l.want)
}

func (l *lab) txn(kind event.ResyncKind, values map[string]proto.Message) *event.Committed {
	l.t.Helper()
	l.seq++
	if l.slow {
		l.agent.SlowVPP()
	}
	c := l.agent.Commit(context.Background(), &event.Txn{Seq: l.seq, Cause: "test", Resync: kind, Values: values})
	if err := l.sim.Crashed(); err != nil {
		l.t.Fatalf("VPP crashed: %v", err)
	}
	return l.note(c)
}

// note records whether a result says that the connection is lost. It checks that the agent knows when it has to work out the parts that it gives.
func (l *lab) note(c *event.Committed) *event.Committed {
	if key := l.agent.MissedPart(); key != "" {
		l.t.Fatalf("the agent does not know that a part of %s has changed", key)
	}
	l.lost = l.lost || c != nil && errors.Is(c.Err, vpp.ErrDisconnected)
	return c
}

// states of all values, one per line, for failures.
func statuses(c *event.Committed) string {
	var b strings.Builder
	for _, s := range c.Statuses {
		fmt.Fprintf(&b, "%s %s %s %s\n", s.Key, s.State, s.Err, s.Details)
	}
	return b.String()
}

// allConfigured fails unless every touched value is CONFIGURED.
func (l *lab) allConfigured(c *event.Committed) {
	l.t.Helper()
	if c.Err != nil {
		l.t.Fatal(c.Err)
	}
	for _, s := range c.Statuses {
		if s.State != event.Configured && s.State != event.Removed {
			l.t.Fatalf("not configured:\n%s", statuses(c))
		}
	}
}

// writes are the requests since the last call that changed VPP.
func (l *lab) writes() (out []string) {
	for _, r := range l.sim.Log() {
		if r.Write {
			out = append(out, r.Text)
		}
	}
	l.sim.ClearLog()
	return out
}

// quiet fails if anything was written since the last look.
func (l *lab) quiet(when string) {
	l.t.Helper()
	if w := l.writes(); len(w) > 0 {
		l.t.Fatalf("%s: %d writes:\n%s", when, len(w), strings.Join(w, "\n"))
	}
}

func dnat(label, vip string, port uint32, backends ...string) *nat.DNat44 {
	m := &nat.DNat44_StaticMapping{ExternalIp: vip, ExternalPort: port, TwiceNat: nat.DNat44_StaticMapping_SELF}
	for _, b := range backends {
		ap := netip.MustParseAddrPort(b)
		m.LocalIps = append(m.LocalIps, &nat.DNat44_StaticMapping_LocalIP{LocalIp: ap.Addr().String(), LocalPort: uint32(ap.Port()), Probability: 1})
	}
	return &nat.DNat44{Label: label, StMappings: []*nat.DNat44_StaticMapping{m}}
}

// node has the values of a node beside Services.
func node() []proto.Message {
	return []proto.Message{
		&nat.Nat44Global{Forwarding: true},
		&contivnat.Nat44Settings{Sessions: 10000, Udp: 120},
		&nat.Nat44AddressPool{VrfId: ^uint32(0), FirstIp: "10.1.1.254", TwiceNat: true},
		&nat.Nat44Interface{Name: "tap1", NatInside: true, NatOutside: true},
		&contivl3.RejectRoute{DstNetwork: "192.0.2.0/24", Action: contivl3.RejectRoute_DROP},
	}
}

func addPod(l *lab, name, ip string) {
	l.sim.AddInterface(sim.Interface{Name: name, Tag: "default/" + name, Addresses: []netip.Prefix{netip.MustParsePrefix("169.254." + strings.TrimPrefix(ip, "10.1.") + "/32")}})
	if err := l.sim.AddRoute(sim.Route{Prefix: netip.MustParsePrefix(ip + "/32"), Paths: []sim.Path{{Interface: name}}}); err != nil {
		l.t.Fatal(err)
	}
}

func TestFirstServices(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	l.writes()
	c := l.put(append(node(), dnat("default/web", "10.96.0.10", 80, "10.1.1.2:8080", "10.1.1.3:8080"))...)
	l.allConfigured(c)
	t.Log(strings.Join(l.writes(), "\n"))
	t.Log(l.sim.Dump())
	l.allConfigured(l.resync())
	l.quiet("resync")
	c = l.put(dnat("default/web", "10.96.0.10", 80, "10.1.1.2:8080", "10.1.1.3:8080", "10.1.1.4:8080"))
	l.allConfigured(c)
	if w := l.writes(); len(w) != 3 || !strings.Contains(w[1], "nat44_lb_static_mapping_add_del_local is_add=true external_addr=10.96.0.10 external_port=80 protocol=6 local={addr=10.1.1.4") {
		t.Fatalf("one endpoint more: %q", w)
	}
	l.restartAgent()
	l.allConfigured(l.resync())
	l.quiet("restart of the agent")
	l.restartVPP()
	l.allConfigured(l.resync())
	if len(l.writes()) == 0 {
		t.Fatal("restart of VPP: nothing written")
	}
	l.allConfigured(l.resync())
	l.quiet("resync after restart of VPP")
	l.allConfigured(l.txn(event.Full, nil))
	t.Log(l.sim.Dump())
}

// everything has a value of every kind.
func everything() []proto.Message {
	return append(node(),
		&interfaces.Interface{
			Name: "loop", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, PhysAddress: "02:fe:00:00:00:07",
			IpAddresses: []string{"10.9.0.1/24", "2001:db8::1/64"}, Mtu: 1450, Vrf: 7,
		},
		&interfaces.Interface{Name: "veth", Type: interfaces.Interface_AF_PACKET, Enabled: true, Link: &interfaces.Interface_Afpacket{Afpacket: &interfaces.AfpacketLink{HostIfName: "eth0"}}},
		&interfaces.Interface{Name: "to-host", Type: interfaces.Interface_TAP, IpAddresses: []string{"172.30.1.1/24"}, Link: &interfaces.Interface_Tap{Tap: &interfaces.TapLink{Version: 2, HostIfName: "vpp1"}}},
		&interfaces.Interface{Name: "mem", Type: interfaces.Interface_MEMIF, Link: &interfaces.Interface_Memif{Memif: &interfaces.MemifLink{Id: 3, Master: true, SocketFilename: "/run/m.sock"}}},
		&l3.VrfTable{Id: 7, Label: "seven"},
		&l3.VrfTable{Id: 7, Protocol: l3.VrfTable_IPV6},
		&l3.Route{DstNetwork: "10.2.0.0/16", NextHopAddr: "172.30.1.2", OutgoingInterface: "to-host"},
		&l3.Route{DstNetwork: "10.2.0.0/16", NextHopAddr: "172.30.1.3", OutgoingInterface: "to-host", Weight: 2},
		&l3.Route{DstNetwork: "10.3.0.0/16", NextHopAddr: "172.30.1.2"},
		&l3.Route{DstNetwork: "10.4.0.0/16", Type: l3.Route_DROP},
		&l3.Route{DstNetwork: "10.5.0.0/16", Type: l3.Route_INTER_VRF, ViaVrfId: 7},
		&l3.Route{DstNetwork: "2001:db8:1::/48", VrfId: 7, NextHopAddr: "2001:db8::2", OutgoingInterface: "loop"},
		&l3.ARPEntry{Interface: "to-host", IpAddress: "172.30.1.2", PhysAddress: "02:fe:00:00:00:02", Static: true},
		&l3.ARPEntry{Interface: "to-host", IpAddress: "172.30.1.3", PhysAddress: "02:fe:00:00:00:03"},
		&contivl3.RejectRoute{DstNetwork: "10.96.0.11/32"},
		&contivl3.RejectRoute{DstNetwork: "10.96.0.12/32", Action: contivl3.RejectRoute_PROHIBIT},
		&nat.Nat44AddressPool{Name: "snat", VrfId: ^uint32(0), FirstIp: "192.168.16.1", LastIp: "192.168.16.2"},
		&nat.Nat44AddressPool{Name: "more", VrfId: ^uint32(0), FirstIp: "192.168.16.3"},
		&nat.Nat44Interface{Name: "veth", OutputFeature: true},
		&nat.Nat44Interface{Name: "to-host", NatOutside: true},
		&cnat.SnatPolicy{Kind: cnat.SnatPolicy_KUBERNETES, Ipv6Address: "2001:db8::1", ExcludedPrefixes: []string{"2001:db8:1::/48"}},
		&cnat.Interface{Name: "loop", Ipv6: true, Pod: true, IncludeIpv6: true},
		&cnat.Interface{Name: "tap1", Ipv6: true, Host: true},
		&contivl3.RejectRoute{DstNetwork: "2001:db8:96::10/128"},
		translation("2001:db8:96::10", 80, "2001:db8:1::2", "2001:db8:1::3"),
		translation("2001:db8:96::10", 81, "2001:db8:1::2"),
		&cnat.Translation{
			Vip: &cnat.Endpoint{Interface: "to-host", Port: 30080}, Protocol: cnat.Protocol_UDP, RealAddress: true, AllocatePort: true,
			LoadBalancing: cnat.LoadBalancing_MAGLEV, FlowHash: []cnat.FlowHashField{cnat.FlowHashField_SRC_ADDRESS},
			Paths: []*cnat.Path{{Destination: &cnat.Endpoint{Address: "10.1.1.9", Port: 53}, Source: &cnat.Endpoint{Interface: "to-host"}}},
		},
		dnat("default/web", "10.96.0.10", 80, "10.1.1.2:8080", "10.1.1.3:8080"),
		dnat("default/empty", "10.96.0.20", 80),
		dnat("default/"+strings.Repeat("very-long-", 20), "10.96.0.21", 80, "10.1.1.2:1"),
		&nat.DNat44{
			Label:      "ids",
			IdMappings: []*nat.DNat44_IdentityMapping{{IpAddress: "192.168.16.1", Port: 4789, Protocol: nat.DNat44_UDP}, {IpAddress: "192.168.16.9"}, {Interface: "to-host", Port: 53}},
			StMappings: []*nat.DNat44_StaticMapping{{ExternalIp: "192.168.16.77", LocalIps: []*nat.DNat44_StaticMapping_LocalIP{{LocalIp: "10.1.1.7"}}}},
		},
		&nat.DNat44{Label: "sticky", StMappings: []*nat.DNat44_StaticMapping{{ExternalIp: "10.96.0.30", ExternalPort: 53, Protocol: nat.DNat44_UDP, SessionAffinity: 10800, LocalIps: []*nat.DNat44_StaticMapping_LocalIP{
			{LocalIp: "10.1.1.2", LocalPort: 53, Probability: 3}, {LocalIp: "10.1.1.3", LocalPort: 53},
		}}}},
	)
}

func TestEverything(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	empty := l.sim.Dump()
	l.writes()
	l.allConfigured(l.put(everything()...))
	full := l.sim.Dump()
	t.Log(strings.Join(l.writes(), "\n"))
	t.Log(full)
	l.allConfigured(l.resync())
	l.quiet("resync")
	l.restartAgent()
	l.allConfigured(l.resync())
	l.quiet("agent restart")
	l.restartVPP()
	l.allConfigured(l.resync())
	if got := l.sim.Dump(); got != full {
		t.Fatalf("after VPP's restart:\n%s\nwant:\n%s", got, full)
	}
	l.restartAgent()
	l.allConfigured(l.resync())
	l.want = kv.Values{}
	c := l.resync()
	l.allConfigured(c)
	t.Log(empty, l.sim.Dump())
}
