package policy_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/event"
	rules "github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
)

// facts is what the nodes of a cluster know beside policies.
type facts struct {
	names   []string
	own     map[string][]netip.Addr // a node's addresses
	pods    map[netip.Addr]string   // → interface
	at      map[netip.Addr]string   // pods and nodes → node
	hairpin map[string]netip.Addr   // a node's address for clients it hides
}

func factsOf(objects []policy.Object) *facts {
	f := &facts{own: map[string][]netip.Addr{}, pods: map[netip.Addr]string{}, at: map[netip.Addr]string{}, hairpin: map[string]netip.Addr{}}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Node:
			f.names = append(f.names, o.Name)
			f.hairpin[o.Name] = netip.AddrFrom4([4]byte{10, 2, byte(len(f.names)), 254})
			for _, a := range o.Status.Addresses {
				ip := netip.MustParseAddr(a.Address)
				f.own[o.Name] = append(f.own[o.Name], ip)
				f.at[ip] = o.Name
			}
		case *corev1.Pod:
			if o.Spec.HostNetwork || o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
				continue
			}
			for _, ip := range o.Status.PodIPs {
				a := netip.MustParseAddr(ip.IP)
				f.pods[a], f.at[a] = "pod-"+o.Namespace+"/"+o.Name, o.Spec.NodeName
			}
		}
	}
	return f
}

// whole reports whether a flow can be evaluated: its nodes exist, with their addresses.
func (f *facts) whole(flow policy.Flow) bool {
	for _, a := range []netip.Addr{flow.Src, flow.Dst} {
		if f.pods[a] != "" && f.own[f.at[a]] == nil {
			return false
		}
	}
	return f.own[flow.Node] != nil
}

// frontends are what services answer at whose clients are seen: cluster IPs.
func (f *facts) frontends() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
}

// views are the two ways of VPP to see services, and what a renderer makes of them.
var views = [...]struct {
	name   string
	v4, v6 dataplane.View
}{{"nat44", dataplane.PreDNAT, dataplane.PostDNAT}, {"cnat", dataplane.PostDNAT, dataplane.PostDNAT}}

// node is the policy part of an agent, and a renderer for each view.
type node struct {
	name      string
	processor *rules.Processor
	renderers [len(views)]*acl.Renderer
	sinks     [len(views)]*sink
	states    [len(views)][]*lists // since the last change, interim states included
	facts     *facts
	bytes     bool
	again     [len(views)]bool
	known     dataplane.Node // from the processor
}

func newNode(name string, bytes bool) *node {
	n := &node{name: name, bytes: bytes}
	for i := range views {
		n.sinks[i] = &sink{owners: map[string]map[string]proto.Message{}}
		n.renderers[i] = acl.New(acl.Config{}, n.sinks[i])
	}
	n.processor = rules.New(rules.Config{NodeName: name}, n)
	return n
}

// OnUpdate implements the driver.
func (n *node) OnUpdate(m *felix.ToDataplane) {
	for _, r := range n.renderers {
		r.OnUpdate(m)
	}
}

// SetNode implements the driver, and adds the facts that the processor does not have without Services.
func (n *node) SetNode(known dataplane.Node) {
	n.known = known
	n.tell()
}

func (n *node) tell() {
	for i, v := range views {
		n.renderers[i].SetNode(dataplane.Node{
			View4: v.v4, View6: v.v6, Interfaces: n.known.Interfaces, Near: n.known.Near, Far: n.known.Far, Uplink: uplink, Overlay: overlay, Host: hostIf,
			Addrs: n.facts.own[n.name], HostAddrs: n.facts.own[n.name], Hairpin: []netip.Addr{n.facts.hairpin[n.name]}, Frontends: n.facts.frontends(), Outer: n.facts.outer(n.name), ByteMatch6: n.bytes,
		})
	}
}

// Apply implements the driver.
func (n *node) Apply() (again bool) {
	for i, r := range n.renderers {
		n.again[i] = r.Apply()
		n.states[i] = append(n.states[i], readLists(n.sinks[i]))
		again = again || n.again[i]
	}
	return again
}

// Resync implements the driver.
func (n *node) Resync() {
	for _, r := range n.renderers {
		r.Resync()
	}
}

// Cause implements the driver.
func (n *node) Cause(string, bool, int, int) (c dataplane.Cause, ok bool) { return c, false }

// take changes the node's objects until nothing more follows.
func (n *node) take(changes []event.Change, f *facts) error {
	n.facts = f
	mine := map[netip.Addr]string{}
	for a, iface := range f.pods {
		if f.at[a] == n.name {
			mine[a] = iface
		}
	}
	for i := range views {
		last := len(n.states[i]) - 1
		n.states[i] = n.states[i][max(last, 0):] // the one from before stays
	}
	n.processor.Located(&event.Located{Pods: mine})
	for _, ch := range changes {
		n.processor.Apply(ch)
	}
	n.tell()
	for range 10 {
		if err := n.processor.Flush(); err != nil {
			return err
		}
		if n.processor.Again() {
			continue
		}
		for again := len(n.states[0]) < 2; again; again = n.Apply() { // node ports may have changed, and nothing else
		}
		return n.broken()
	}
	return fmt.Errorf("%s: no end to the states on the way", n.name)
}

func (n *node) broken() error {
	for i, states := range n.states {
		for _, l := range states {
			if len(l.broken) > 0 {
				return fmt.Errorf("%s, %s: %v", n.name, views[i].name, l.broken)
			}
		}
	}
	return nil
}

// nodes is the nodes of a cluster.
type nodes []*node

func newNodes(names []string, seed uint64) nodes {
	var out nodes
	for _, name := range names {
		out = append(out, newNode(name, matchesBytes(seed)))
	}
	return out
}

// matchesBytes reports whether the VPPs of a world match IPv6 prefixes by whole bytes only.
func matchesBytes(seed uint64) bool { return seed%8 == 0 }

func (ns nodes) take(changes []generate.Change, f *facts) error {
	list, err := hear.All(changes)
	if err != nil {
		return err
	}
	for _, n := range ns {
		if err := n.take(list, f); err != nil {
			return err
		}
	}
	return nil
}

// network is the cluster in a view; step counts the states since before the last change (-1: the last).
func (ns nodes) network(view, step int, f *facts) *network {
	out := &network{pods: f.pods, at: f.at, first: map[string]netip.Addr{}, lists: map[string]*lists{}}
	for _, n := range ns {
		states := n.states[view]
		at := len(states) - 1
		if step >= 0 {
			at = min(step, at)
		}
		out.lists[n.name] = states[at]
		out.first[n.name] = f.own[n.name][0]
	}
	return out
}

func (ns nodes) networks(step int, f *facts) (out [len(views)]*network) {
	for i := range views {
		out[i] = ns.network(i, step, f)
	}
	return out
}

// entry is how a flow can come to be: directly, or by way of a service.
type entry struct {
	flow policy.Flow
	in   string
	seen packet // by the first hook
	text string
	as   netip.Addr // the source address that the pod sees, if not the sender's
}

// entries are the ways in which a flow can begin. In the view before translation the first hook sees the Service. A packet
// of a pod to its own address stays in the pod, unless a Service leads it there.
func (f *facts) entries(flow policy.Flow, n *network, pre bool) []entry {
	in := n.door(flow.Node, flow.Src)
	dialled := entry{flow: flow, in: in, seen: packetOf(&flow), text: "by way of a cluster IP"}
	if pre {
		dialled.seen.dst, dialled.seen.dport = netip.MustParseAddr("10.96.0.10"), 8001
	}
	served := (f.pods[flow.Dst] != "" || f.pods[flow.Src] != "" && f.at[flow.Dst] == "") && flow.Dst.Is4() &&
		(flow.Proto == policy.TCP || flow.Proto == policy.UDP)
	if flow.Src == flow.Dst {
		if pre {
			dialled.as = f.hairpin[flow.Node] // before the output hook sees it
		}
		if !served {
			return nil
		}
		return []entry{dialled}
	}
	out := []entry{{flow: flow, in: in, seen: packetOf(&flow), text: "directly"}}
	if !served {
		return out
	}
	out = append(out, dialled)
	number, hides := nodePort(flow.Dst, flow.Proto, flow.DstPort)
	if number == 0 || !pre || f.pods[flow.Dst] == "" {
		return out
	}
	ported := dialled
	ported.text = "by way of a node port"
	ported.seen.dst, ported.seen.dport = f.own[flow.Node][0], number
	if hides {
		ported.as = f.hairpin[flow.Node] // an address of the node stands in for the client
	}
	return append(out, ported)
}

// TestLists grows random clusters and compares what the access lists of every node say, in both views, with the
// specifications.
func TestLists(t *testing.T) {
	excused.Store(0)
	unanswered.Store(0)
	grow(t, listWorlds, growLists)
	t.Logf("%d flows of SCTP are denied only because their node has no room for rules about their ports, and says so, %d of UDP to high ports that nobody declares get no answers", excused.Load(), unanswered.Load())
}

// excused and unanswered count flows that are denied for that reason.
var excused, unanswered atomic.Int64

const listWorlds = 300

func growLists(t *testing.T, seed uint64) (flows int) {
	w := generate.NewWorld(seed, generate.AllKinds())
	f := factsOf(w.Objects())
	ns := newNodes(f.names, seed)
	changes := allOf(w.Objects())
	var before *policy.Cluster
	var last []policy.Object
	for step := 0; ; step++ {
		f = factsOf(w.Objects())
		if err := ns.take(changes, f); err != nil {
			t.Errorf("seed %d step %d: %v", seed, step, err)
			return flows
		}
		c, err := policy.Read(w.Objects())
		if err != nil {
			t.Errorf("seed %d step %d: %v", seed, step, err)
			return flows
		}
		seen := ns.networks(-1, f)
		for _, flow := range w.Flows(contents) {
			flows++
			if before != nil {
				if d := passing(ns, before, c, f, flow); d != "" {
					t.Errorf("seed %d step %d: %s\nafter %v in\n%s", seed, step, d, changes, policy.YAML(w.Objects()))
					return flows
				}
			}
			if d := compareLists(seen, c, f, flow); d != "" {
				t.Errorf("seed %d step %d: %s", seed, step, d)
				explain(t, w.Objects(), func(objects []policy.Object) string { return listsDiffer(objects, flow, seed) })
				return flows
			}
		}
		fresh := newNodes(f.names, seed)
		if err := fresh.take(allOf(w.Objects()), f); err != nil {
			t.Errorf("seed %d step %d: %v", seed, step, err)
			return flows
		}
		if d := ns.differ(fresh); d != "" {
			t.Errorf("seed %d step %d: %s", seed, step, d)
			explainWay(t, last, w.Objects(), seed)
			return flows
		}
		if step == stepsPerWorld {
			return flows
		}
		last = w.Objects()
		before, changes = c, w.Step()
	}
}

// wayMatters returns how a renderer's output after a change differs from that of a renderer with only the final objects.
func wayMatters(before, after []policy.Object, seed uint64) string {
	f := factsOf(before)
	grown, fresh := newNodes(f.names, seed), newNodes(f.names, seed)
	if grown.take(allOf(before), f) != nil || grown.take(difference(before, after), factsOf(after)) != nil || fresh.take(allOf(after), factsOf(after)) != nil {
		return ""
	}
	return grown.differ(fresh)
}

// difference is the changes from some objects to others.
func difference(before, after []policy.Object) []generate.Change {
	now := map[policy.Key]policy.Object{}
	for _, o := range after {
		now[policy.KeyOf(o)] = o
	}
	var out []generate.Change
	for _, o := range before {
		if now[policy.KeyOf(o)] == nil {
			out = append(out, generate.Change{Key: policy.KeyOf(o)})
		}
	}
	for _, o := range after {
		if !slices.Contains(before, o) {
			out = append(out, generate.Change{Key: policy.KeyOf(o), Object: o})
		}
	}
	return out
}

// differ compares what all renderers want.
func (ns nodes) differ(fresh nodes) string {
	for i, n := range ns {
		for view := range views {
			got, want := n.sinks[view].owners, fresh[i].sinks[view].owners
			for _, owner := range slices.Sorted(maps.Keys(want)) {
				for key, v := range want[owner] {
					if !proto.Equal(v, got[owner][key]) {
						return fmt.Sprintf("%s depends on the way at %s, %s: %v, from scratch %v", key, n.name, views[view].name, got[owner][key], v)
					}
				}
			}
			for _, owner := range slices.Sorted(maps.Keys(got)) {
				if want[owner] == nil && len(got[owner]) > 0 {
					return fmt.Sprintf("%s stays behind at %s, %s", owner, n.name, views[view].name)
				}
			}
		}
	}
	return ""
}

// explainWay prints the fewest objects with which a change leads elsewhere than no change.
func explainWay(t *testing.T, before, after []policy.Object, seed uint64) {
	differs := func(without policy.Key) ([]policy.Object, []policy.Object, bool) {
		not := func(o policy.Object) bool { return policy.KeyOf(o) == without }
		b, a := slices.DeleteFunc(slices.Clone(before), not), slices.DeleteFunc(slices.Clone(after), not)
		return b, a, wayMatters(b, a, seed) != ""
	}
	if _, _, alone := differs(policy.Key{}); !alone {
		return
	}
	for _, o := range slices.Concat(before, after) {
		if _, isNode := o.(*corev1.Node); isNode {
			continue
		}
		if b, a, still := differs(policy.KeyOf(o)); still {
			before, after = b, a
		}
	}
	var changed []policy.Object
	for _, c := range difference(before, after) {
		if c.Object != nil {
			changed = append(changed, c.Object)
		} else {
			t.Logf("removed is %s", c.Key)
		}
	}
	t.Errorf("in short: %s\nfrom\n%s\nby\n%s", wayMatters(before, after, seed), policy.YAML(before), policy.YAML(changed))
}

// passing reports whether a flow passes in an interim state although it is denied before and after the change.
func passing(ns nodes, before, after *policy.Cluster, f *facts, flow policy.Flow) string {
	if before.Judge(&flow).Allowed || after.Judge(&flow).Allowed || flow.Src == flow.Dst {
		return ""
	}
	for i, v := range views {
		most := 0
		for _, n := range ns {
			most = max(most, len(n.states[i]))
		}
		for step := 1; step < most-1; step++ { // the first is the one before, the last the one after
			n := ns.network(i, step, f)
			if n.passes(&flow, n.door(flow.Node, flow.Src), packetOf(&flow)) == nil {
				return fmt.Sprintf("%s: %v passes in state %d of %d on the way, though denied before and after", v.name, flow, step, most-1)
			}
		}
	}
	return ""
}

// compareLists returns how the lists differ from the specifications for a flow.
func compareLists(networks [len(views)]*network, c *policy.Cluster, f *facts, flow policy.Flow) string {
	for i, v := range views {
		n := networks[i]
		for _, e := range f.entries(flow, n, v.v4 == dataplane.PreDNAT && flow.Dst.Is4()) {
			want, fickle := wantedOf(c, &e, v.v4 == dataplane.PreDNAT && flow.Dst.Is4()), fickle(c, e)
			if e.as.IsValid() {
				e.flow.Src = e.as
			}
			where := n.passes(&e.flow, e.in, e.seen)
			got := where == nil
			nameless := v.v4 == dataplane.PreDNAT && flow.Dst.Is4() // nat44 gives SCTP of anybody another address: fails closed
			if got == want.Allowed || !got && flow.Proto == policy.SCTP && nameless || !got && fickle {
				continue
			}
			if !got && flow.Proto == policy.SCTP {
				untracked := n.lists[where.node].untracked[where.iface]
				if where.output && untracked[1] || !where.output && untracked[0] {
					continue
				}
			}
			if !got && flow.Proto == policy.SCTP && n.lists[where.node].big {
				excused.Add(1) // a note of that node says so
				continue
			}
			if !got && where.answer && e.flow.Proto == policy.UDP && e.flow.Undeclared() {
				unanswered.Add(1)
				continue
			}
			return fmt.Sprintf("%s: %v %s: allowed %v (%s), should be %v: %s", v.name, e.flow, e.text, got, where, want.Allowed, want.Why)
		}
	}
	return ""
}

// fickle reports that a client that will be hidden may dial from some ports and not from others: then it may not at all.
func fickle(c *policy.Cluster, e entry) bool {
	for _, port := range []uint16{500, 40000, 40001} {
		if e.flow.SrcPort = port; e.as.IsValid() && !wantedOf(c, &e, true).Allowed {
			return true
		}
	}
	return false
}

func listsDiffer(objects []policy.Object, flow policy.Flow, seed uint64) string {
	f := factsOf(objects)
	ns := newNodes(f.names, seed)
	for _, addrs := range f.own {
		if len(addrs) == 0 {
			return ""
		}
	}
	if !f.whole(flow) {
		return ""
	}
	if ns.take(allOf(objects), f) != nil {
		return ""
	}
	c, err := policy.Read(objects)
	if err != nil {
		return ""
	}
	return compareLists(ns.networks(-1, f), c, f, flow)
}
