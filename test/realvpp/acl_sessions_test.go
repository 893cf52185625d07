package realvpp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// TestVPPAccessSessions compares the simulated and the real VPP in what happens to sessions: idle ones, more than VPP has room for, and
// those of an interface that is removed.
func TestVPPAccessSessions(t *testing.T) {
	w := startTwin(t, theVPP(t), "node-1", agent.Config{})
	for _, s := range w.sides {
		s.agent.Close()
		if err := s.cni.Apply(puts(base())); err != nil {
			t.Fatal(err)
		}
	}
	a := newACLCase(w, 1)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\n%s", err, a.story())
		}
	}
	set := func(pod *model.Pod, in, out []uint32) {
		t.Helper()
		check(a.each(func(i index) api.Message {
			all := append(append([]uint32(nil), in...), out...)
			return &acl.ACLInterfaceSetACLList{SwIfIndex: i(door(pod)), Count: uint8(len(all)), NInput: uint8(len(in)), Acls: all}
		}))
	}
	any4 := prefix(netip.MustParsePrefix("0.0.0.0/0"))
	reflect := acl_types.ACLRule{IsPermit: acl_types.ACL_ACTION_API_PERMIT_REFLECT, SrcPrefix: any4, DstPrefix: any4, SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535}
	check(a.ask(&acl.ACLAddReplace{ACLIndex: ^uint32(0), Tag: "all", R: []acl_types.ACLRule{reflect}, Count: 1})) // 0
	check(a.ask(&acl.ACLAddReplace{ACLIndex: ^uint32(0), Tag: "none"}))                                           // 1
	set(podA, []uint32{0}, []uint32{1})
	flow := func(p packet.Packet, port uint16) (flight, flight) {
		p.SrcPort = port
		return same(p), same(p.Reply())
	}
	udp := packet.NewUDP(netip.MustParseAddrPort("10.1.1.2:1"), netip.MustParseAddrPort("10.1.1.3:53"))
	tcp := packet.NewTCP(netip.MustParseAddrPort("10.1.1.2:1"), netip.MustParseAddrPort("10.1.1.3:80"))
	send := func(when string, pod *model.Pod, f flight, passes bool) {
		t.Helper()
		out, err := w.send(door(pod), f)
		check(err)
		if (len(out) > 0) != passes {
			t.Fatalf("%s: %d packets left both, expected %v", when, len(out), passes)
		}
	}

	check(a.cli("set acl-plugin session timeout udp idle 2"))
	check(a.cli("set acl-plugin session timeout tcp transient 2"))
	ask, answer := flow(udp, 4000)
	syn, synAck := flow(tcp, 4000)
	for range 3 {
		send("ask", podA, ask, true)
		send("syn", podA, syn, true)
		time.Sleep(time.Second)
		send("answer within a second", podB, answer, true)
	}
	send("syn+ack", podB, synAck, true)
	ack, _ := flow(tcp, 4000)
	ack = ack.both(func(p packet.Packet) packet.Packet { p.TCPFlags = packet.ACK; return p })
	send("ack", podA, ack, true)
	time.Sleep(4 * time.Second)
	send("answer after four seconds", podB, answer, false)
	send("established", podB, synAck, true)

	check(a.cli("clear acl-plugin sessions"))
	time.Sleep(settle)
	check(a.cli("set acl-plugin session table max-entries 4"))
	check(a.cli("set acl-plugin session timeout tcp transient 120"))
	for n := range uint16(8) {
		syn, _ := flow(tcp, 5000+n/2)
		send(fmt.Sprintf("syn %d", n), podA, syn, n < 6 || n%2 == 1)
		time.Sleep(10 * time.Millisecond)
	}
	check(a.cli("set acl-plugin session table max-entries 500000"))

	check(a.cli("set acl-plugin session timeout udp idle 600"))
	for _, reclassify := range []int{0, 1} {
		check(a.cli(fmt.Sprintf("set acl-plugin reclassify-sessions %d", reclassify)))
		set(podA, []uint32{0}, []uint32{1})
		ask, answer := flow(udp, 6000+uint16(reclassify))
		send("ask", podA, ask, true)
		for _, s := range w.sides {
			check(s.cni.Apply([]event.Change{{Ref: podA.Ref()}}))
			check(s.cni.Apply(puts([]model.Object{podA})))
		}
		check(w.lab.err)
		set(podA, nil, []uint32{1})
		time.Sleep(settle)
		// Without reclassification the new list ends the sessions; with it nobody asks about those the old interface left behind.
		send("answer to the old interface's session", podB, answer, reclassify == 1)
		check(a.each(func(i index) api.Message { return &acl.ACLInterfaceSetEtypeWhitelist{SwIfIndex: i(door(podA))} }))
		time.Sleep(settle)
		send("answer after the node of the only direction was disabled and enabled", podB, answer, false)
	}
}
