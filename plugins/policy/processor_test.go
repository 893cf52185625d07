package policy

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// recorder is a driver that records its calls.
type recorder struct {
	calls   []string
	node    dataplane.Node
	interim int // number of the next Applys that are interim states
	cause   func(iface string, output bool, place, rule int) (dataplane.Cause, bool)
}

func (r *recorder) OnUpdate(m *felix.ToDataplane) {
	switch m := m.Payload.(type) {
	case *felix.ToDataplane_WorkloadEndpointUpdate:
		r.calls = append(r.calls, "endpoint "+m.WorkloadEndpointUpdate.Id.WorkloadId)
	case *felix.ToDataplane_WorkloadEndpointRemove:
		r.calls = append(r.calls, "no endpoint "+m.WorkloadEndpointRemove.Id.WorkloadId)
	case *felix.ToDataplane_HostEndpointUpdate:
		r.calls = append(r.calls, "host endpoint "+m.HostEndpointUpdate.Id.EndpointId)
	case *felix.ToDataplane_HostEndpointRemove:
		r.calls = append(r.calls, "no host endpoint "+m.HostEndpointRemove.Id.EndpointId)
	case *felix.ToDataplane_ActivePolicyUpdate:
		r.calls = append(r.calls, "policy "+m.ActivePolicyUpdate.Id.Name)
	case *felix.ToDataplane_ActivePolicyRemove:
		r.calls = append(r.calls, "no policy "+m.ActivePolicyRemove.Id.Name)
	case *felix.ToDataplane_ActiveProfileUpdate:
		r.calls = append(r.calls, "profile "+m.ActiveProfileUpdate.Id.Name)
	case *felix.ToDataplane_ActiveProfileRemove:
		r.calls = append(r.calls, "no profile "+m.ActiveProfileRemove.Id.Name)
	case *felix.ToDataplane_InSync:
		r.calls = append(r.calls, "in sync")
	}
}

func (r *recorder) SetNode(n dataplane.Node) { r.node = n; r.calls = append(r.calls, "node") }
func (r *recorder) Resync()                  { r.calls = append(r.calls, "resync") }

func (r *recorder) Apply() bool {
	r.calls = append(r.calls, "apply")
	if r.interim > 0 {
		r.interim--
		return true
	}
	return false
}

func (r *recorder) Cause(iface string, output bool, place, rule int) (dataplane.Cause, bool) {
	if r.cause == nil {
		return dataplane.Cause{}, false
	}
	return r.cause(iface, output, place, rule)
}

func (r *recorder) take() []string {
	c := r.calls
	r.calls = nil
	return c
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// pod returns a pod of namespace prod on node-1, or on node-2 if its address is 10.1.2.x.
func pod(name, ip string, change ...func(*model.Pod)) *model.Pod {
	p := &model.Pod{
		ID: model.PodID{Namespace: "prod", Name: name}, NodeName: "node-1", IPs: []netip.Addr{addr(ip)},
		Labels: map[string]string{"app": name}, ServiceAccount: "default",
	}
	if netip.MustParsePrefix("10.1.2.0/24").Contains(p.IPs[0]) {
		p.NodeName = "node-2"
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// web returns a NetworkPolicy for pods labelled app=web: clients labelled app=client may reach port 80.
func web(change ...func(*model.Policy)) *model.Policy {
	p := &model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "prod", Name: "web"}, Tier: model.TierDefault,
		Order: model.OrderKubernetes(), Namespace: "prod", Selector: "app == 'web'", Ingress: true,
		InboundRules: []model.Rule{{
			Action: model.ActionAllow, Protocol: model.RuleProtocol{Name: "tcp"}, Origin: "ingress rule 1",
			Source: model.Peer{Selector: "app == 'client'"}, Destination: model.Peer{Ports: []model.PortMatch{{First: 80, Last: 80}}},
		}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func apply(p *Processor, objects ...model.Object) {
	for _, o := range objects {
		p.Apply(event.Change{Ref: o.Ref(), Object: o})
	}
}

func remove(p *Processor, objects ...model.Object) {
	for _, o := range objects {
		p.Apply(event.Change{Ref: o.Ref()})
	}
}

func located(pairs ...string) *event.Located {
	l := &event.Located{Pods: map[netip.Addr]string{}}
	for i := 0; i < len(pairs); i += 2 {
		l.Pods[addr(pairs[i])] = pairs[i+1]
	}
	return l
}

func newTest() (*Processor, *recorder) {
	r := &recorder{}
	return New(Config{NodeName: "node-1"}, r), r
}

func flush(t *testing.T, p *Processor, r *recorder, want ...string) {
	t.Helper()
	if err := p.Flush(); err != nil {
		t.Errorf("Flush: %v", err)
	}
	if diff := cmp.Diff(want, r.take()); diff != "" {
		t.Errorf("calls: -want +got\n%s", diff)
	}
}

func TestCallsFollowChanges(t *testing.T) {
	p, r := newTest()
	apply(p, pod("web", "10.1.1.2"), pod("other", "10.1.2.2"), web())
	if len(r.calls) > 0 {
		t.Fatalf("calls before the first flush: %v", r.calls)
	}
	flush(t, p, r, "policy prod/knp.default.web", "profile kns.prod", "profile ksa.prod.default", "endpoint prod/web", "in sync",
		"node", "apply")
	flush(t, p, r)
	p.Located(located("10.1.1.2", "tap1", "10.1.1.9", "tap9"))
	flush(t, p, r, "node", "apply")
	if diff := cmp.Diff(map[netip.Addr]string{addr("10.1.1.2"): "tap1"}, r.node.Interfaces, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("interfaces: -want +got\n%s", diff)
	}
	apply(p, pod("web", "10.1.1.2")) // it changes nothing
	flush(t, p, r)
	apply(p, web(func(p *model.Policy) { p.InboundRules = nil }))
	flush(t, p, r, "policy prod/knp.default.web", "apply")
	remove(p, pod("web", "10.1.1.2"))
	flush(t, p, r, "no endpoint prod/web", "no profile kns.prod", "no profile ksa.prod.default", "no policy prod/knp.default.web", "node", "apply")
}

// The driver marks a state as interim, and the processor calls it again for the rest, once, even if nothing else changes.
func TestStatesOnTheWay(t *testing.T) {
	p, r := newTest()
	r.interim = 1
	apply(p, pod("web", "10.1.1.2"))
	if flush(t, p, r, "profile kns.prod", "profile ksa.prod.default", "endpoint prod/web", "in sync", "node", "apply", "apply"); p.Again() {
		t.Error("the first sync goes by way of another state")
	}
	r.interim = 1
	apply(p, web())
	if flush(t, p, r, "policy prod/knp.default.web", "endpoint prod/web", "apply"); !p.Again() {
		t.Error("the rest is forgotten")
	}
	if flush(t, p, r, "apply"); p.Again() {
		t.Error("no end to it")
	}
	flush(t, p, r)
}

func TestResyncSendsEverythingAgain(t *testing.T) {
	p, r := newTest()
	apply(p, pod("web", "10.1.1.2"))
	_ = p.Flush()
	r.take()
	apply(p, web())
	if err := p.Resync(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"policy prod/knp.default.web", "endpoint prod/web", "apply", "resync"}, r.take()); diff != "" {
		t.Errorf("calls: -want +got\n%s", diff)
	}
}

func TestPodsWithoutEndpoint(t *testing.T) {
	for name, change := range map[string]func(*model.Pod){
		"host network": func(p *model.Pod) { p.HostNetwork = true },
		"finished":     func(p *model.Pod) { p.Finished = true },
		"no node":      func(p *model.Pod) { p.NodeName = "" },
	} {
		t.Run(name, func(t *testing.T) {
			p, r := newTest()
			apply(p, pod("web", "10.1.1.2"))
			p.Located(located("10.1.1.2", "tap1"))
			_ = p.Flush()
			r.take()
			apply(p, pod("web", "10.1.1.2", change))
			flush(t, p, r, "no endpoint prod/web", "no profile kns.prod", "no profile ksa.prod.default", "node", "apply")
			if len(r.node.Interfaces)+len(p.pods)+len(p.local)+len(p.parents) > 0 {
				t.Errorf("left: %v %v %v %v", r.node.Interfaces, p.pods, p.local, p.parents)
			}
		})
	}
}

// A pod has an interface before it has an address. If policies apply to the pod, nothing passes until the policies can be applied,
// without a gap in between.
func TestPodWithoutAddress(t *testing.T) {
	p, r := newTest()
	unborn := func(name string) *model.Pod { return pod(name, "10.1.1.2", func(p *model.Pod) { p.IPs = nil }) }
	far := pod("far", "10.1.2.2", func(p *model.Pod) { p.IPs = nil })
	apply(p, unborn("web"), unborn("free"), far, web())
	ask := p.Locate(time.Time{})
	if want := []string{"prod/free", "prod/web"}; ask == nil || !slices.Equal(ask.Names, want) {
		t.Fatalf("asks %+v, want %v", ask, want)
	}
	if ask := p.Locate(time.Time{}); ask != nil {
		t.Errorf("asks again: %+v", ask)
	}
	_ = p.Flush()
	p.Located(&event.Located{Names: map[string]string{"prod/web": "tap1", "prod/free": "tap2"}})
	_ = p.Flush()
	if len(r.node.Interfaces) > 0 || !slices.Equal(r.node.Isolated, []string{"tap1"}) {
		t.Errorf("located: %+v", r.node)
	}
	r.cause = func(string, bool, int, int) (dataplane.Cause, bool) {
		return dataplane.Cause{Kind: dataplane.CauseIsolated, Denied: true}, true
	}
	if why, _ := p.Explain("tap1", true, 1, 0); why.Text != "denied: prod/web is isolated until its policies are known" {
		t.Errorf("says %s", why)
	}
	if why, _ := p.Explain("tap7", true, 1, 0); why.Text != "denied: the interface is isolated until its policies are known" {
		t.Errorf("of an interface nobody knows it says %s", why)
	}
	remove(p, web()) // no policy isolates it any more
	_ = p.Flush()
	if len(r.node.Isolated) > 0 {
		t.Errorf("without policies: %+v", r.node)
	}
	apply(p, web())
	_ = p.Flush()
	apply(p, pod("web", "10.1.1.2"))
	_ = p.Flush()
	if r.node.Interfaces[addr("10.1.1.2")] != "tap1" || len(r.node.Isolated) > 0 {
		t.Errorf("with an address: %+v", r.node)
	}
	if ask := p.Locate(time.Time{}); ask == nil || !slices.Equal(ask.Names, []string{"prod/free"}) {
		t.Errorf("asks %+v", ask)
	}
	remove(p, unborn("web"), unborn("free"))
	_ = p.Flush()
	if len(r.node.Interfaces)+len(r.node.Isolated)+len(p.unborn) > 0 {
		t.Errorf("left: %+v %v", r.node, p.unborn)
	}
}

// A pod of the same name may start on another node before the end of its predecessor is known here.
func TestPodMoves(t *testing.T) {
	p, r := newTest()
	apply(p, pod("web", "10.1.1.2"))
	_ = p.Flush()
	r.take()
	apply(p, pod("web", "10.1.2.2"))
	flush(t, p, r, "no endpoint prod/web", "no profile kns.prod", "no profile ksa.prod.default", "apply")
	apply(p, pod("web", "10.1.1.3"))
	flush(t, p, r, "profile kns.prod", "profile ksa.prod.default", "endpoint prod/web", "apply")
}

// The remaining parts of a refused policy are enforced: it isolates.
func TestRefusedPolicyIsolates(t *testing.T) {
	p, _ := newTest()
	rest := web(func(p *model.Policy) { p.InboundRules = nil })
	apply(p, pod("web", "10.1.1.2"), web())
	p.Apply(event.Change{Ref: rest.Ref(), Object: rest, Err: errors.New("a peer that is not understood")})
	_ = p.Flush()
	if got := p.sent.policies[model.WireName{Tier: "default", Name: "prod/knp.default.web"}]; got == nil || len(got.InboundRules) > 0 {
		t.Errorf("policy %v", got)
	}
	if tiers := p.sent.workloads["prod/web"].Tiers; len(tiers) != 1 || !slices.Equal(tiers[0].IngressPolicies, []string{"prod/knp.default.web"}) {
		t.Errorf("tiers %v", tiers)
	}
	p.Apply(event.Change{Ref: rest.Ref(), Err: errors.New("nothing is understood")})
	_ = p.Flush()
	if len(p.sent.policies) > 0 {
		t.Errorf("policies %v", p.sent.policies)
	}
}

// A staged policy without a kind that says so, and one that stages a removal, is in no message. It is listed, and applies to nothing.
func TestStagedPoliciesAreNotSent(t *testing.T) {
	p, _ := newTest()
	apply(p, pod("web", "10.1.1.2"), web(), web(func(p *model.Policy) { p.ID.Name, p.Staged = "try", model.StagedSet }),
		web(func(p *model.Policy) {
			p.ID.Kind, p.Staged, p.InboundRules = model.KindStagedKubernetesPolicy, model.StagedDelete, nil
		}))
	_ = p.Flush()
	before := len(p.sent.policies)
	for _, s := range p.Policies() {
		if (len(s.Endpoints) > 0) != (s.Policy.Staged == "") {
			t.Errorf("%s is applied to %v", s.Policy.ID, s.Endpoints)
		}
	}
	apply(p, web(func(p *model.Policy) { p.Staged = model.StagedSet }))
	_ = p.Flush()
	if tiers := p.sent.workloads["prod/web"].Tiers; before != 1 || len(p.sent.policies) != 0 || len(tiers) != 0 {
		t.Errorf("%d policies before, then %v; tiers %v", before, p.sent.policies, tiers)
	}
}

func TestNamespacesAndAccounts(t *testing.T) {
	p, _ := newTest()
	labels := func(profile string) map[string]string { return p.parents[profile].profile(profile).Labels }
	apply(p, pod("web", "10.1.1.2"))
	for _, c := range []struct {
		name    string
		step    func()
		profile string
		want    map[string]string
	}{
		{"known by its pods", func() {}, "kns.prod", map[string]string{"pcns.projectcalico.org/name": "prod", "pcns.kubernetes.io/metadata.name": "prod"}},
		{"with an object", func() { apply(p, &model.Namespace{Name: "prod", Labels: map[string]string{"team": "a"}}) }, "kns.prod", map[string]string{
			"pcns.projectcalico.org/name": "prod", "pcns.kubernetes.io/metadata.name": "prod", "pcns.team": "a",
		}},
		{"without again", func() { remove(p, &model.Namespace{Name: "prod"}) }, "kns.prod", map[string]string{
			"pcns.projectcalico.org/name": "prod", "pcns.kubernetes.io/metadata.name": "prod",
		}},
		{"account", func() {
			apply(p, &model.ServiceAccount{Namespace: "prod", Name: "default", Labels: map[string]string{"role": "x"}})
		}, "ksa.prod.default", map[string]string{"pcsa.projectcalico.org/name": "default", "pcsa.role": "x"}},
	} {
		c.step()
		if diff := cmp.Diff(c.want, labels(c.profile)); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.name, diff)
		}
	}
	bad := &model.Namespace{Name: "prod"}
	p.Apply(event.Change{Ref: bad.Ref(), Err: errors.New("bad")})
	if got := p.parents["kns.prod"].profile("kns.prod"); got.Rules != nil {
		t.Errorf("a namespace that is not understood allows: %v", got.Rules)
	}
	remove(p, bad, pod("web", "10.1.1.2"), &model.ServiceAccount{Namespace: "prod", Name: "default"})
	if len(p.parents) > 0 {
		t.Errorf("left: %v", p.parents)
	}
}

func TestWorkload(t *testing.T) {
	got := workload(pod("web", "10.1.1.2", func(p *model.Pod) {
		p.IPs = append(p.IPs, addr("fd00::2"))
		p.Ports = []model.NamedPort{{Name: "http", Protocol: model.TCP, Port: 8080}}
		p.ServiceAccount = "robot"
	}))
	want := &model.WorkloadEndpoint{
		ID: model.WorkloadID{Node: "node-1", Orchestrator: "k8s", Workload: "prod/web", Endpoint: "eth0"}, State: "active",
		Profiles: []string{"kns.prod", "ksa.prod.robot"},
		Nets:     []netip.Prefix{netip.MustParsePrefix("10.1.1.2/32"), netip.MustParsePrefix("fd00::2/128")},
		Labels: map[string]string{
			"app": "web", "projectcalico.org/namespace": "prod", "projectcalico.org/orchestrator": "k8s",
			"projectcalico.org/serviceaccount": "robot",
		},
		Ports: []model.NamedPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A built-in tier returns when the object in its place is removed; other tiers are removed with their objects.
func TestTiers(t *testing.T) {
	p, _ := newTest()
	apply(p, pod("web", "10.1.1.2"), web(), web(func(p *model.Policy) {
		p.ID = model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: "sec.all"}
		p.Tier, p.Namespace, p.Order = "sec", "", model.OrderOf(1)
	}))
	order := func() []string {
		_ = p.Flush()
		var out []string
		for _, tier := range p.sent.workloads["prod/web"].Tiers {
			out = append(out, tier.Name+" "+tier.DefaultAction)
		}
		return out
	}
	first, swapped := &model.Tier{Name: "sec", Order: model.OrderOf(5), DefaultAction: model.TierPass}, &model.Tier{Name: "default", Order: model.OrderOf(1), DefaultAction: model.TierPass}
	for _, c := range []struct {
		step func()
		want []string
	}{
		{func() {}, []string{"default Deny", "sec "}},
		{func() { apply(p, first) }, []string{"sec Pass", "default Deny"}},
		{func() { apply(p, swapped) }, []string{"default Pass", "sec Pass"}},
		{func() { remove(p, swapped) }, []string{"sec Pass", "default Deny"}},
		{func() { remove(p, first) }, []string{"default Deny", "sec "}},
	} {
		c.step()
		if diff := cmp.Diff(c.want, order()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

// A host endpoint may move to another node under the same name.
func TestHostEndpointMoves(t *testing.T) {
	p, r := newTest()
	host := func(node string) *model.HostEndpoint {
		return &model.HostEndpoint{ID: model.HostEndpointID{Node: node, Name: "uplink"}, Interface: "eth0"}
	}
	apply(p, host("node-1"))
	flush(t, p, r, "host endpoint uplink", "in sync", "node", "apply")
	apply(p, host("node-2"))
	flush(t, p, r, "no host endpoint uplink", "apply")
	remove(p, host("node-2"))
	flush(t, p, r)
	if len(p.items) > 0 {
		t.Errorf("left: %v", p.items)
	}
}

func TestTranslations(t *testing.T) {
	p, r := newTest()
	api := p.Translations()
	svc := func(name string, nodePort uint16, external string, ips ...string) *renderer.ContivService {
		s := renderer.NewContivService()
		s.ID = model.ServiceID{Namespace: "prod", Name: name}
		for _, ip := range ips {
			s.ClusterIPs = renderer.IPAddressesOf(append(slices.Clone(s.ClusterIPs.Addrs()), addr(ip))...)
		}
		if external != "" {
			s.ExternalIPs = renderer.IPAddressesOf(addr(external))
		}
		s.Ports["http"] = &renderer.ServicePort{Port: 80, NodePort: nodePort}
		return s
	}
	must := func(errs ...error) {
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	a, b := svc("a", 0, "198.51.100.1", "10.96.0.1"), svc("b", 30080, "198.51.100.1", "10.98.0.1", "fd01::1")
	must(api.(renderer.NodeRenderer).UpdateNode(renderer.NodeState{
		Name: "node-1", IPs: []netip.Addr{addr("192.168.16.1")}, Uplink: "up", Host: "host",
		UplinkIPs: []netip.Prefix{netip.MustParsePrefix("192.168.16.1/24"), netip.MustParsePrefix("fd02::1/64")},
		Loopback:  addr("10.1.1.254"), ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}), api.Resync(&renderer.ResyncEventData{
		NodeIPs: renderer.IPAddressesOf(addr("192.168.16.1"), addr("192.168.16.2")), Services: []*renderer.ContivService{a},
	}))
	p.VPP(&event.VPPStatus{Connected: true, Version: "25.10-release"})
	check := func(frontends ...string) {
		t.Helper()
		_ = p.Flush()
		r.take()
		want := dataplane.Node{
			Interfaces: map[netip.Addr]string{}, Uplink: "up", Host: "host", Addrs: []netip.Addr{addr("192.168.16.1"), addr("fd02::1")},
			Hairpin: []netip.Addr{addr("10.1.1.254")},
		}
		for _, f := range frontends {
			want.Frontends = append(want.Frontends, netip.MustParsePrefix(f))
		}
		if diff := cmp.Diff(want, r.node, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
	check("10.96.0.0/16")
	must(api.AddService(b))
	check("10.96.0.0/16", "10.98.0.1/32", "fd01::1/128")
	lone := svc("lone", 0, "198.51.100.9", "10.99.0.1")
	must(api.AddService(lone))
	check("10.96.0.0/16", "10.98.0.1/32", "10.99.0.1/32", "fd01::1/128")
	must(api.DeleteService(lone, nil), api.DeleteService(a, nil))
	check("10.96.0.0/16", "10.98.0.1/32", "fd01::1/128")
	moved := svc("b", 0, "", "10.98.0.2", "fd01::1")
	must(api.UpdateService(b, moved, nil))
	check("10.96.0.0/16", "10.98.0.2/32", "fd01::1/128")
	must(api.UpdateService(moved, b, nil))
	check("10.96.0.0/16", "10.98.0.1/32", "fd01::1/128")
	// Services within the ranges of cluster IPs change nothing.
	must(api.AddService(svc("c", 0, "", "10.96.7.7")))
	flush(t, p, r)
}

func TestCounts(t *testing.T) {
	p, _ := newTest()
	apply(p, pod("web", "10.1.1.2"), pod("far", "10.1.2.2"), web(), &model.HostEndpoint{ID: model.HostEndpointID{Node: "node-1", Name: "up"}})
	_ = p.Flush()
	if got := p.Counts(); got != (Counts{Policies: 1, Endpoints: 2}) {
		t.Errorf("%+v", got)
	}
}

func TestNotesNameThePolicy(t *testing.T) {
	p, _ := newTest()
	apply(p, pod("web", "10.1.1.2"), web(func(p *model.Policy) { p.InboundRules[0].Source.Selector = "app = 'x'" }))
	_ = p.Flush()
	notes := p.Notes()
	if len(notes) != 1 || notes[0].Ref != web().Ref() || notes[0].Reason == "" {
		t.Errorf("notes %v", notes)
	}
}
