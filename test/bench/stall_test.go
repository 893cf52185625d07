package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// The node whose stalls are measured.
const (
	stallMembers  = 10_000
	stallPods     = 100
	stallServices = 1000
)

// meter hands requests to VPP and reads how much CPU time its main thread takes for them: a busy machine does not count.
type meter struct {
	conn *bare
	task string
	each bool // one request at a time; else as the agent sends them

	groups []stalled
}

// stalled is what requests took that were sent without a pause in between.
type stalled struct {
	names string
	calls int
	ms    float64
}

// mainThread is the CPU time of VPP's main thread, in milliseconds.
func (m *meter) mainThread() float64 {
	b, err := os.ReadFile(m.task)
	if err != nil {
		panic(err) // VPP ended
	}
	ns, _ := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	return ns / 1e6
}

func (m *meter) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	if !m.each {
		return m.group(ctx, calls)
	}
	var out []vpp.Reply
	for _, c := range calls {
		out = append(out, m.group(ctx, []vpp.Call{c})...)
	}
	return out
}

func (m *meter) group(ctx context.Context, calls []vpp.Call) []vpp.Reply {
	before := m.mainThread()
	out := m.conn.Do(ctx, calls...)
	m.groups = append(m.groups, stalled{calls[0].Msg.GetMessageName(), len(calls), m.mainThread() - before})
	return out
}

// figures are the worst of what was measured since, and the sum.
func (m *meter) figures() (worst stalled, calls int, sum float64) {
	for _, g := range m.groups {
		calls, sum = calls+g.calls, sum+g.ms
	}
	if len(m.groups) > 0 {
		worst = slices.MaxFunc(m.groups, func(a, b stalled) int { return cmp.Compare(a.ms, b.ms) })
	}
	m.groups = nil
	return worst, calls, sum
}

// stallNode is a renderer of policies and an agent on a real VPP.
type stallNode struct {
	t      testing.TB
	meter  *meter
	agent  *vppagent.Agent
	acl    *acl.Renderer
	owners map[string]map[string]proto.Message
	next   map[string]proto.Message
	seq    uint64
	pauses time.Duration
}

func (n *stallNode) Set(owner string, values map[string]proto.Message, _ []model.Note) {
	for key := range n.owners[owner] {
		n.next[key] = nil
	}
	maps.Copy(n.next, values)
	n.owners[owner] = values
}

func newStallNode(t testing.TB, each bool) *stallNode {
	dial, stop := startVPP(t)
	t.Cleanup(stop)
	conn := dialBare(t, dial)
	pid := conn.State().PID
	n := &stallNode{
		t: t, owners: map[string]map[string]proto.Message{}, next: map[string]proto.Message{},
		meter: &meter{conn: conn, each: each, task: filepath.Join("/proc", fmt.Sprint(pid), "task", fmt.Sprint(pid), "schedstat")},
	}
	for i := range stallPods {
		r := conn.Do(t.Context(), vpp.Call{Msg: &interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: uint32(1000 + i)}})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		idx := r.Msg.(*interfaces.CreateLoopbackInstanceReply).SwIfIndex
		conn.do(t, []vpp.Call{
			{Msg: &interfaces.SwInterfaceSetInterfaceName{SwIfIndex: idx, Name: fmt.Sprint("pod", i)}},
			{Msg: &interfaces.SwInterfaceSetFlags{SwIfIndex: idx, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}},
		})
	}
	n.agent = vppagent.New(stallConfig(n))
	n.acl = acl.New(acl.Config{}, n)
	return n
}

// apply commits what the renderer says, transaction after transaction.
func (n *stallNode) apply(resync event.ResyncKind) {
	n.t.Helper()
	for again := true; again; {
		again = n.acl.Apply()
		n.commit(resync)
		resync = event.NoResync
	}
}

func (n *stallNode) commit(resync event.ResyncKind) {
	n.t.Helper()
	n.seq++
	c := n.agent.Commit(n.t.Context(), &event.Txn{Seq: n.seq, Resync: resync, Values: n.next})
	n.next = map[string]proto.Message{}
	if c.Err != nil {
		n.t.Fatal(c.Err)
	}
	for _, s := range c.Statuses {
		if s.State != event.Configured && s.State != event.Removed {
			n.t.Fatalf("%s: %s %s", s.Key, s.State, s.Err)
		}
	}
}

// stallMember is the address of a pod of the cluster: 110 pods on each node.
func stallMember(i int) string {
	return fmt.Sprintf("10.%d.%d.%d/32", 2+i/110/256, i/110%256, 2+i%110)
}

func stallPolicy(port int32, more bool) *felix.ToDataplane {
	r := &felix.Rule{Action: "allow", SrcIpSetIds: []string{"s:big"}}
	if port > 0 {
		r.Protocol = &felix.Protocol{NumberOrName: &felix.Protocol_Number{Number: 6}}
		r.DstPorts = []*felix.PortRange{{First: port, Last: port}}
		if more {
			r.DstPorts = append(r.DstPorts, &felix.PortRange{First: port + 1000, Last: port + 1000})
		}
	}
	p := &felix.Policy{InboundRules: []*felix.Rule{r}}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &felix.ActivePolicyUpdate{
		Id: &felix.PolicyID{Tier: "default", Name: "p"}, Policy: p,
	}}}
}

func (n *stallNode) endpoints(policies ...string) {
	for i := range stallPods {
		e := &felix.WorkloadEndpoint{State: "active", Ipv4Nets: []string{stallPod(i).String() + "/32"}, ProfileIds: []string{"open"}}
		if len(policies) > 0 {
			e.Tiers = []*felix.TierInfo{{Name: "default", IngressPolicies: policies}}
		}
		n.acl.OnUpdate(&felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointUpdate{WorkloadEndpointUpdate: &felix.WorkloadEndpointUpdate{
			Id: &felix.WorkloadEndpointID{OrchestratorId: "k8s", WorkloadId: fmt.Sprint("default/pod-", i), EndpointId: "eth0"}, Endpoint: e,
		}}})
	}
}

func stallPod(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 1, byte(2 + i)}) }

func (n *stallNode) members(add, remove []int) {
	d := &felix.IPSetDeltaUpdate{Id: "s:big"}
	for _, i := range add {
		d.AddedMembers = append(d.AddedMembers, stallMember(i))
	}
	for _, i := range remove {
		d.RemovedMembers = append(d.RemovedMembers, stallMember(i))
	}
	n.acl.OnUpdate(&felix.ToDataplane{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: d}})
}

// begin gives the renderer the node, and the set: about every second pod of a cluster, or every pod.
func (n *stallNode) begin(dense bool, port int32) {
	node := dataplane.Node{
		View4: dataplane.PreDNAT, View6: dataplane.PostDNAT, Interfaces: map[netip.Addr]string{}, Uplink: cni.Uplink, Overlay: cni.Overlay, Host: cni.Host,
		Frontends: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}
	for i := range stallPods {
		node.Interfaces[stallPod(i)] = fmt.Sprint("pod", i)
	}
	var all []string
	for i := range stallMembers {
		if !dense {
			i = 2*i + i%7%2
		}
		all = append(all, stallMember(i))
	}
	open := []*felix.Rule{{Action: "allow"}}
	for _, m := range []*felix.ToDataplane{
		{Payload: &felix.ToDataplane_IpsetUpdate{IpsetUpdate: &felix.IPSetUpdate{Id: "s:big", Type: felix.IPSetUpdate_NET, Members: all}}},
		stallPolicy(port, false),
		{Payload: &felix.ToDataplane_ActiveProfileUpdate{ActiveProfileUpdate: &felix.ActiveProfileUpdate{
			Id: &felix.ProfileID{Name: "open"}, Profile: &felix.Profile{InboundRules: open, OutboundRules: open},
		}}},
		{Payload: &felix.ToDataplane_InSync{InSync: &felix.InSync{}}},
	} {
		n.acl.OnUpdate(m)
	}
	n.endpoints("p")
	n.acl.SetNode(node)
}

func stallService(i, first, count int) *nat.DNat44 {
	m := &nat.DNat44_StaticMapping{
		ExternalIp: fmt.Sprintf("10.96.%d.%d", i>>8, i&255), ExternalPort: 80, Protocol: nat.DNat44_TCP, TwiceNat: nat.DNat44_StaticMapping_SELF,
	}
	for j := first; j < first+count; j++ {
		m.LocalIps = append(m.LocalIps, &nat.DNat44_StaticMapping_LocalIP{LocalIp: fmt.Sprintf("10.%d.%d.%d", 1+j, i>>8, i&255), LocalPort: 8080, Probability: 1})
	}
	return &nat.DNat44{Label: fmt.Sprint("default/service-", i), StMappings: []*nat.DNat44_StaticMapping{m}}
}

func (n *stallNode) services(first, count int) {
	for i := range stallServices {
		m := stallService(i, first, count)
		n.next[kv.Key(m)] = m
	}
}

// TestVPPStall measures how long a real VPP's main thread is at the requests of one change.
func TestVPPStall(t *testing.T) {
	if bin := realVPP(); bin == "" || bin == "sim" {
		t.Skip("CONTIV_VPP names no real VPP: the cost is VPP's own")
	}
	for _, dense := range []bool{false, true} {
		for _, port := range []int32{80, 0} {
			for _, each := range []bool{true, false} {
				t.Run(fmt.Sprintf("dense=%v/port=%d/each=%v", dense, port, each), func(t *testing.T) { stallStory(t, dense, port, each) })
			}
		}
	}
}

func stallStory(t *testing.T, dense bool, port int32, each bool) {
	n := newStallNode(t, each)
	step := func(name string, do func()) {
		n.pauses = 0
		n.meter.figures()
		began := time.Now()
		do()
		took := time.Since(began)
		worst, calls, sum := n.meter.figures()
		fmt.Printf("| port %-2d each %-5v | %-24s | worst %7.2f ms (%d× %s) | %6d requests | %8.1f ms | pauses %6.0f ms | took %6.0f ms |\n",
			port, each, name, worst.ms, worst.calls, worst.names, calls, sum, float64(n.pauses)/1e6, float64(took)/1e6)
	}
	n.begin(dense, port)
	step("first sync", func() { n.apply(event.Full) })
	for range 3 {
		step("one member more", func() { n.members([]int{30_001}, nil); n.apply(event.NoResync) })
		step("one member less", func() { n.members(nil, []int{30_001}); n.apply(event.NoResync) })
	}
	var thousand []int
	for i := range 1000 {
		thousand = append(thousand, 25_000+i)
	}
	step("1,000 members more", func() { n.members(thousand, nil); n.apply(event.NoResync) })
	step("1,000 members less", func() { n.members(nil, thousand); n.apply(event.NoResync) })
	if port > 0 {
		step("a port more", func() { n.acl.OnUpdate(stallPolicy(port, true)); n.apply(event.NoResync) })
		step("a port less", func() { n.acl.OnUpdate(stallPolicy(port, false)); n.apply(event.NoResync) })
	}
	step("policy goes", func() { n.endpoints(); n.apply(event.NoResync) })
	step("policy arrives", func() { n.endpoints("p"); n.apply(event.NoResync) })
	pool := &nat.Nat44AddressPool{VrfId: ^uint32(0), FirstIp: "10.1.1.254", TwiceNat: true}
	n.next[kv.Key(&nat.Nat44Global{})], n.next[kv.Key(pool)] = &nat.Nat44Global{Forwarding: true}, pool
	n.commit(event.NoResync)
	step("1,000 services arrive", func() { n.services(0, 10); n.commit(event.NoResync) })
	step("1,000 services change", func() { n.services(1, 10); n.commit(event.NoResync) })
	step("1,000 services go", func() {
		for i := range stallServices {
			n.next[kv.Key(stallService(i, 0, 1))] = nil
		}
		n.commit(event.NoResync)
	})
}
