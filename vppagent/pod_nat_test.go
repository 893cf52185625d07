package vppagent_test

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/feature"
	binapi "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"
	"go.fd.io/govpp/binapi/vlib"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// Arrangements of NAT44 on tap1, as natOn returns them.
const (
	asPod  = "inside: nat44-ed-classify"
	asBoth = "outside inside: nat44-ed-classify"
	noNAT  = ": "
)

// natOn returns the roles of interface 1 and the nodes of NAT44 on its arcs.
func natOn(t tb, conn *vpp.Conn) string {
	t.Helper()
	ask := func(m api.Message, dump bool) vpp.Reply {
		r := conn.Do(t.Context(), vpp.Call{Msg: m, Dump: dump})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r
	}
	var words []string
	for _, d := range ask(&nat44_ed.Nat44InterfaceDump{}, true).Details {
		for _, role := range []nat_types.NatConfigFlags{nat_types.NAT_IS_OUTSIDE, nat_types.NAT_IS_INSIDE} {
			if i := d.(*nat44_ed.Nat44InterfaceDetails); i.SwIfIndex == 1 && i.Flags&role != 0 {
				words = append(words, strings.ToLower(strings.TrimPrefix(role.String(), "NAT_IS_")))
			}
		}
	}
	roles := strings.Join(words, " ")
	words = nil
	name := descriptor.FixedText(ask(&binapi.SwInterfaceDump{SwIfIndex: 1}, true).Details[0].(*binapi.SwInterfaceDetails).InterfaceName)
	for line := range strings.Lines(ask(descriptor.ShowFeatures(name), false).Msg.(*vlib.CliInbandReply).Reply) {
		if word := strings.TrimSpace(line); strings.HasPrefix(word, "nat") {
			words = append(words, word)
		}
	}
	slices.Sort(words) // VPP does not list the arcs in the sim's order
	return roles + ": " + strings.Join(words, " ")
}

func (l *lab) wantNAT(when, want string) {
	l.t.Helper()
	if got := natOn(l.t.(tb), l.conn); got != want {
		l.t.Fatalf("%s: tap1 has %q, want %q", when, got, want)
	}
}

// podNATLab is a lab with two pods, NAT44 on tap1, and a Service of the pod at tap2.
func podNATLab(t *testing.T) (l *lab, role proto.Message) {
	l = newLab(t, vppagent.Config{Journal: filepath.Join(t.TempDir(), "journal")})
	pods(l)
	role = &nat.Nat44Interface{Name: "tap1", NatInside: true, NatOutside: true}
	l.allConfigured(l.put(append(node(), &nat.Nat44Interface{Name: "tap2", NatInside: true, NatOutside: true}, dnat("default/web", "10.96.0.10", 80, "10.1.1.3:8080"))...))
	return l, role
}

// reaches fails unless a packet from tap1 to the Service reaches the pod behind tap2, and its answer returns as the Service's.
func (l *lab) reaches(when string, port uint16) {
	l.t.Helper()
	client, vip := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.96.0.10")
	there := l.sim.Send("tap1", sim.Packet{Src: client, Dst: vip, Proto: 6, SrcPort: port, DstPort: 80, TCPFlags: packet.SYN})
	if len(there.Out) != 1 || there.Out[0].Interface != "tap2" || there.Out[0].Packet.Src != client || there.Out[0].Packet.DstPort != 8080 {
		l.t.Fatalf("%s: to the Service: %v", when, there)
	}
	p := there.Out[0].Packet
	back := l.sim.Send("tap2", sim.Packet{Src: p.Dst, Dst: p.Src, Proto: 6, SrcPort: p.DstPort, DstPort: p.SrcPort, TCPFlags: packet.SYN | packet.ACK})
	if len(back.Out) != 1 || back.Out[0].Packet.Src != vip || back.Out[0].Packet.SrcPort != 80 {
		l.t.Fatalf("%s: the answer: %v", when, back)
	}
	sessions := len(l.sim.Sessions())
	direct := l.sim.Send("tap1", sim.Packet{Src: client, Dst: netip.MustParseAddr("10.1.1.3"), Proto: 6, SrcPort: port, DstPort: 9000, TCPFlags: packet.SYN})
	if len(direct.Out) != 1 || direct.Out[0].Packet.Src != client || len(l.sim.Sessions()) != sessions {
		l.t.Fatalf("%s: to the pod: %v, %d sessions more", when, direct, len(l.sim.Sessions())-sessions)
	}
}

// TestPodsNATInterface: an interface whose tag names a pod translates like one with both roles, and has the role inside alone. That survives restarts
// without a write, and leaves nothing.
func TestPodsNATInterface(t *testing.T) {
	l, role := podNATLab(t)
	l.wantNAT("first", asPod)
	l.reaches("first", 4000)
	l.writes()
	l.restartAgent()
	l.allConfigured(l.resync())
	l.quiet("restart of the agent")
	l.restartVPP()
	l.allConfigured(l.resync())
	l.wantNAT("restart of VPP", asPod)
	l.reaches("restart of VPP", 4001)
	l.writes()
	l.allConfigured(l.del(kv.Key(role)))
	l.wantNAT("removed", noNAT)
	if w := l.writes(); len(w) != 2 || !strings.Contains(w[0], "nat44-ed-classify") || !strings.Contains(w[1], "NAT_IS_INSIDE") {
		t.Errorf("removed by %q, want the node before the role", w)
	}
	l.allConfigured(l.put(&nat.Nat44Interface{Name: "tap1", OutputFeature: true}))
	l.wantNAT("output feature", ": nat-pre-in2out-output nat-pre-out2in")
	l.allConfigured(l.put(role))
	l.wantNAT("roles again", asPod)
	l.allConfigured(l.put(&nat.Nat44Interface{Name: "tap1", NatInside: true}))
	l.wantNAT("inside alone", "inside: nat-pre-in2out")
	l.allConfigured(l.put(&nat.Nat44Interface{Name: "tap1", NatOutside: true}))
	l.wantNAT("outside alone", "outside: nat-pre-out2in")
	l.allConfigured(l.put(role))
	l.wantNAT("both again", asPod)
}

// TestNATWithoutPod: an interface whose tag names no pod has both roles.
func TestNATWithoutPod(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.sim.AddInterface(sim.Interface{Name: "tap1", Tag: "uplink"})
	l.allConfigured(l.put(&nat.Nat44Global{Forwarding: true}, &nat.Nat44Interface{Name: "tap1", NatInside: true, NatOutside: true}))
	l.wantNAT("put", asBoth)
}

// TestEarlierRolesAreAdopted: an interface of a pod keeps both roles that an earlier agent gave it, until NAT44 leaves it.
func TestEarlierRolesAreAdopted(t *testing.T) {
	l, role := podNATLab(t)
	request := func(ms ...vpp.Call) {
		for _, r := range l.conn.Do(t.Context(), ms...) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	node := func(on bool) vpp.Call {
		return vpp.Call{Msg: &feature.FeatureEnableDisable{SwIfIndex: 1, Enable: on, ArcName: "ip4-unicast", FeatureName: "nat44-ed-classify"}}
	}
	request(node(false), vpp.Call{Msg: &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, SwIfIndex: 1, Flags: nat_types.NAT_IS_OUTSIDE}})
	l.wantNAT("an earlier agent", asBoth)
	l.writes()
	l.restartAgent()
	l.allConfigured(l.resync())
	l.quiet("the next agent")
	l.reaches("adopted", 4000)
	l.allConfigured(l.del(kv.Key(role)))
	l.wantNAT("removed", noNAT)
	l.allConfigured(l.put(role))
	l.wantNAT("put again", asPod)

	request(node(true)) // another program
	l.wantNAT("the node twice", asPod+" nat44-ed-classify")
	l.allConfigured(l.resync())
	l.wantNAT("resync", asPod)
	request(node(false))
	l.wantNAT("no node", "inside: ")
	l.allConfigured(l.resync())
	l.wantNAT("resync", asPod)
	l.reaches("at the end", 4001)
}

// TestPodsNATWithoutJournal: a fresh agent without a journal adopts either arrangement, and removes it.
func TestPodsNATWithoutJournal(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		l := newLab(t, vppagent.Config{})
		pods(l)
		role := &nat.Nat44Interface{Name: "tap1", NatInside: true, NatOutside: true}
		l.allConfigured(l.put(&nat.Nat44Global{Forwarding: true}, role))
		if earlier {
			for _, m := range []api.Message{
				&feature.FeatureEnableDisable{SwIfIndex: 1, ArcName: "ip4-unicast", FeatureName: "nat44-ed-classify"},
				&nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, SwIfIndex: 1, Flags: nat_types.NAT_IS_OUTSIDE},
			} {
				if r := l.conn.Do(t.Context(), vpp.Call{Msg: m})[0]; r.Err != nil {
					t.Fatal(r.Err)
				}
			}
		}
		l.writes()
		l.restartAgent()
		l.allConfigured(l.resync())
		l.quiet("restart of the agent")
		l.allConfigured(l.del(kv.Key(role)))
		l.wantNAT("removed", noNAT)
	}
}

// TestForwardingSwitched: while VPP does not forward what NAT44 does not translate, VPP reads the role outside, so a pod's interface has it.
func TestForwardingSwitched(t *testing.T) {
	l, _ := podNATLab(t)
	l.wantNAT("forwarding", asPod)
	l.allConfigured(l.put(&nat.Nat44Global{}))
	l.wantNAT("not forwarding", asBoth)
	l.writes()
	l.restartAgent()
	l.allConfigured(l.resync())
	l.quiet("restart of the agent")
	l.allConfigured(l.put(&nat.Nat44Global{Forwarding: true}))
	l.wantNAT("forwarding again", asPod)
	before := l.writes()
	for i, w := range before {
		if strings.Contains(w, "nat44_forwarding_enable_disable") && (i == 0 || !strings.Contains(before[i-1], "is_add=false") && strings.Contains(strings.Join(before[i:], " "), "NAT_IS_OUTSIDE")) {
			t.Errorf("VPP forwards before pods' interfaces have lost the role outside: %q", before)
		}
	}
	l.reaches("at the end", 4000)
}

// TestPodsNATWithWorkers: with several workers the nodes have other names.
func TestPodsNATWithWorkers(t *testing.T) {
	l := newLabOn(t, sim.New(sim.Config{Workers: 2}), vppagent.Config{})
	pods(l)
	l.allConfigured(l.put(&nat.Nat44Global{Forwarding: true}, &nat.Nat44Interface{Name: "tap1", NatInside: true, NatOutside: true}))
	l.wantNAT("put", asPod)
	w := strings.Join(l.writes(), "\n")
	for _, node := range []string{"enable=true arc_name=ip4-unicast feature_name=nat44-handoff-classify", "arc_name=ip4-unicast feature_name=nat44-in2out-worker-handoff"} {
		if !strings.Contains(w, node) {
			t.Errorf("no request with %s in:\n%s", node, w)
		}
	}
	l.allConfigured(l.resync())
	l.quiet("resync")
}

// TestVPPPodsNATInterface: a real VPP puts and removes the nodes that the agent expects of it.
func TestVPPPodsNATInterface(t *testing.T) {
	conn := realVPP(t, 1, "")
	if r := conn.Do(t.Context(), vpp.Call{Msg: &binapi.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: 1, Tag: "default/tap1"}})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	agent := vppagent.New(vppagent.Config{Caller: conn})
	want := kv.Values{}
	role := func(inside, outside, output bool) *nat.Nat44Interface {
		return &nat.Nat44Interface{Name: "default/tap1", NatInside: inside, NatOutside: outside, OutputFeature: output}
	}
	on, off, both := &nat.Nat44Global{Forwarding: true}, &nat.Nat44Global{}, role(true, true, false)
	for i, step := range []struct {
		m    proto.Message
		want string
	}{
		{on, noNAT},
		{both, asPod},
		{role(true, false, false), "inside: nat-pre-in2out"},
		{both, asPod},
		{role(false, true, false), "outside: nat-pre-out2in"},
		{both, asPod},
		{role(false, false, true), ": nat-pre-in2out-output nat-pre-out2in"},
		{both, asPod},
		{off, asBoth},
		{on, asPod},
	} {
		want.Put(step.m)
		for _, kind := range []event.ResyncKind{event.NoResync, event.Full} { // the second is a fresh agent's
			c := agent.Commit(t.Context(), &event.Txn{Resync: kind, Values: want})
			if c.Err != nil || kind == event.Full && c.Writes > 0 {
				t.Fatalf("step %d: %v, %d writes\n%s", i, c.Err, c.Writes, statuses(c))
			}
			agent = vppagent.New(vppagent.Config{Caller: conn})
		}
		if got := natOn(t, conn); got != step.want {
			t.Fatalf("step %d: %q, want %q", i, got, step.want)
		}
	}
	agent.Commit(t.Context(), &event.Txn{Resync: event.Full, Values: kv.Values{kv.Nat44GlobalKey: on, kv.Key(both): both}})
	c := agent.Commit(t.Context(), &event.Txn{Values: map[string]proto.Message{kv.Key(both): nil}})
	if got := natOn(t, conn); got != noNAT || c.Err != nil {
		t.Fatalf("removed: %q, %v\n%s", got, c.Err, statuses(c))
	}
}

// TestOwnPodsNATInterface: an interface that a value makes for a pod is arranged as a pod's in the transaction that makes it, in every order, and
// survives restarts without a write.
func TestOwnPodsNATInterface(t *testing.T) {
	made := kv.PodInterface("default/web", "12345678")
	iface := &interfaces.Interface{Name: made, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true}
	role, global := &nat.Nat44Interface{Name: made, NatInside: true, NatOutside: true}, &nat.Nat44Global{Forwarding: true}
	for _, order := range [][][]proto.Message{{{iface, role, global}}, {{role}, {global}, {iface}}, {{iface}, {role}, {global}}, {{global, iface}, {role}}} {
		l := newLab(t, vppagent.Config{})
		for _, some := range order {
			l.put(some...)
		}
		l.wantNAT("put", asPod)
		if w := strings.Join(l.writes(), "\n"); strings.Contains(w, "NAT_IS_OUTSIDE") {
			t.Errorf("the role outside comes in between:\n%s", w)
		}
		l.allConfigured(l.resync())
		l.quiet("resync")
		l.restartAgent()
		l.allConfigured(l.resync())
		l.quiet("restart of the agent")
		l.restartVPP()
		l.allConfigured(l.resync())
		l.wantNAT("restart of VPP", asPod)
		l.allConfigured(l.put(&nat.Nat44Global{}))
		l.wantNAT("not forwarding", asBoth)
		l.allConfigured(l.put(global))
		l.wantNAT("forwarding again", asPod)
		l.allConfigured(l.del(kv.Key(role)))
		l.wantNAT("removed", noNAT)
	}
}

// TestOwnInterfaceWithoutPod: another interface that a value makes has both roles.
func TestOwnInterfaceWithoutPod(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.allConfigured(l.put(&nat.Nat44Global{Forwarding: true}, &interfaces.Interface{Name: "gateway", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true},
		&nat.Nat44Interface{Name: "gateway", NatInside: true, NatOutside: true}))
	l.wantNAT("put", asBoth)
}

// TestUnnameablePodsNAT: an interface that VPP's command line does not find gets both roles, because nothing shows the nodes on it.
func TestUnnameablePodsNAT(t *testing.T) {
	v := sim.New(sim.Config{HostInterfaces: []string{"eth0.5"}})
	l := newLabOn(t, v, vppagent.Config{})
	made := kv.PodInterface("default/web", "12345678")
	c := l.put(&nat.Nat44Global{Forwarding: true}, &nat.Nat44Interface{Name: made, NatInside: true, NatOutside: true},
		&interfaces.Interface{Name: made, Type: interfaces.Interface_AF_PACKET, Enabled: true, Link: &interfaces.Interface_Afpacket{Afpacket: &interfaces.AfpacketLink{HostIfName: "eth0.5"}}})
	if !strings.Contains(statuses(c), "command line") {
		t.Errorf("no status says why NAT44 is retried:\n%s", statuses(c))
	}
	l.allConfigured(l.resync())
	if w := strings.Join(l.writes(), "\n"); !strings.Contains(w, "NAT_IS_OUTSIDE") || strings.Contains(w, "feature_enable_disable") {
		t.Errorf("arranged as a pod's:\n%s", w)
	}
}
