package agent

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/abf"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	vppifs "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// stepped is a Stepper with the guestbook of the examples, and its VPP.
type stepped struct {
	t     *rapid.T
	v     *sim.VPP
	agent *Stepper
	late  bool // VPP has not reported yet which interfaces were removed, and others may already have their numbers
}

func newStepped(t *rapid.T, changes []event.Change) *stepped {
	v := sim.New(sim.Config{PuntLocal: true})
	if err := cni.New(v, "node-1").Apply(changes); err != nil {
		t.Fatal(err)
	}
	v.AddInterface(sim.Interface{Name: "two"})
	s := &stepped{t: t, v: v}
	s.start(changes)
	return s
}

func (s *stepped) start(changes []event.Change) {
	var err error
	s.agent, err = NewStepper(s.t.Context(), Config{NodeName: "node-1", VPP: vpp.Config{Dial: s.v.Dial}, Override: cni.Located(), Sources: map[string]Source{manifest.Name: Fed{}}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.feed(&event.Update{Source: manifest.Name, Changes: changes}, &event.SyncStatus{Source: manifest.Name, Status: event.InSync})
}

func (s *stepped) close() {
	s.agent.Close()
	s.v.Close()
}

func (s *stepped) feed(events ...event.Event) {
	if s.late {
		for index := range uint32(16) {
			s.agent.VPPAgent().InterfaceGone(index)
		}
	}
	if err := s.agent.Feed(s.t.Context(), events...); err != nil {
		s.t.Fatal(err)
	}
}

// drawnValue returns one of few values: some have keys that the agent itself wants, some keys that only programs want. "two"
// is a foreign interface. "one" is a loopback that a program may want; there is only one, because VPP numbers them in order
// of creation, and it has an MTU, because one without keeps its present MTU. Values of different keys never want the same
// object of VPP: the winner would depend on the order.
func drawnValue(t *rapid.T) proto.Message {
	n := rapid.IntRange(0, 3).Draw(t, "n")
	name := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "name")
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0: // of a service's label
		m := &nat.DNat44{Label: "guestbook/frontend"}
		for i := range n {
			m.StMappings = append(m.StMappings, &nat.DNat44_StaticMapping{
				ExternalIp: fmt.Sprintf("192.0.2.%d", 1+i), ExternalPort: 80, Protocol: nat.DNat44_TCP,
				LocalIps: []*nat.DNat44_StaticMapping_LocalIP{{LocalIp: fmt.Sprintf("10.1.1.%d", 2+n), LocalPort: 8080}},
			})
		}
		return m
	case 1:
		return &nat.Nat44Global{Forwarding: n > 1}
	case 2:
		return &nat.Nat44Interface{Name: "pod-guestbook/client", NatInside: n > 1, NatOutside: n%2 == 1}
	case 3:
		m := &vppifs.Interface{Name: "one", Type: vppifs.Interface_SOFTWARE_LOOPBACK, Enabled: n > 0, Mtu: 1000 + uint32(n)}
		for i := range n {
			m.IpAddresses = append(m.IpAddresses, fmt.Sprintf("10.77.1.%d/32", 1+i))
		}
		return m
	case 4:
		return &l3.VrfTable{Id: uint32(n), Label: name}
	case 5:
		return &l3.Route{DstNetwork: fmt.Sprintf("203.0.113.%d/32", n), OutgoingInterface: name, NextHopAddr: "10.77.0.9", Weight: uint32(n)}
	case 6:
		m := &l2.BridgeDomain{Name: "bridge", Forward: n > 0, Flood: n > 1, MacAge: uint32(n)}
		if n > 1 {
			m.Interfaces = []*l2.BridgeDomain_Interface{{Name: name}}
		}
		return m
	case 7:
		m := &acl.ACL{Name: name}
		for range n {
			m.Rules = append(m.Rules, &acl.ACL_Rule{Action: acl.ACL_Rule_Action(n % 2), IpRule: &acl.ACL_Rule_IpRule{Ip: &acl.ACL_Rule_IpRule_Ip{
				SourceNetwork: "10.9.0.0/16", DestinationNetwork: "10.10.0.0/16",
			}}})
		}
		return m
	case 8:
		return &abf.ABF{
			Index: uint32(n), AclName: name, ForwardingPaths: []*abf.ABF_ForwardingPath{{NextHopIp: "10.77.0.9", InterfaceName: "one", Weight: uint32(n)}},
			AttachedInterfaces: []*abf.ABF_AttachedInterface{{InputInterface: "pod-guestbook/client", Priority: uint32(n)}},
		}
	}
	return &l3.ARPEntry{Interface: name, IpAddress: "10.77.0.9", PhysAddress: fmt.Sprintf("02:00:00:00:00:0%d", n), Static: true}
}

// TestCollisions: VPP's configuration follows from the final desired state of all owners, not from the order of requests.
// When the programs have deleted their values, the configuration equals the agent's own, byte for byte, and nothing is left
// to write.
func TestCollisions(t *testing.T) {
	pace.NotRaced(t)
	changes, err := manifest.Load("../examples/guestbook")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := newStepped(t, changes)
		defer s.close()
		alone := s.v.Dump()
		wants := map[string]map[string]proto.Message{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			who := rapid.SampledFrom([]string{"etcd", "grpc", "grpc/lab"}).Draw(t, "who")
			msgs := map[string]proto.Message{}
			for range rapid.IntRange(0, 5).Draw(t, "values") {
				m := drawnValue(t)
				msgs[kv.Key(m)] = m
			}
			if wants[who] == nil {
				wants[who] = map[string]proto.Message{}
			}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				wants[who] = msgs
				s.feed(event.ExternalConfigResync(who, msgs))
				continue
			case 1:
				for key := range msgs {
					msgs[key] = nil
				}
			}
			for key, m := range msgs {
				if wants[who][key] = m; m == nil {
					delete(wants[who], key)
				}
			}
			s.late = rapid.Bool().Draw(t, "late")
			s.feed(event.ExternalConfigChange(who, msgs))
		}
		other := newStepped(t, changes)
		defer other.close()
		for _, who := range rapid.Permutation(slices.Sorted(maps.Keys(wants))).Draw(t, "order") {
			other.feed(event.ExternalConfigResync(who, wants[who]))
		}
		if diff := cmp.Diff(other.v.Dump(), s.v.Dump()); diff != "" {
			t.Fatalf("another way to the same wishes (-at once +step by step):\n%s", diff)
		}
		for _, who := range rapid.Permutation(slices.Sorted(maps.Keys(wants))).Draw(t, "gone") {
			s.feed(event.ExternalConfigResync(who, nil))
		}
		if diff := cmp.Diff(alone, s.v.Dump()); diff != "" {
			t.Fatalf("without programs (-before +after):\n%s", diff)
		}
		s.agent.Close()
		before := s.v.Writes()
		s.start(changes)
		if n := s.v.Writes() - before; n != 0 {
			t.Fatalf("%d writes at the next start", n)
		}
	})
}
