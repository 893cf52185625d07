package service

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// recorder is a renderer that records its calls and keeps the state they describe.
type recorder struct {
	calls    []string
	fail     func(call string) error
	services map[model.ServiceID]*renderer.ContivService
	nodeIPs  *renderer.IPAddresses
	front    renderer.Interfaces
	back     renderer.Interfaces
	node     renderer.NodeState
}

func (r *recorder) call(format string, args ...any) error {
	c := fmt.Sprintf(format, args...)
	r.calls = append(r.calls, c)
	if r.fail != nil {
		return r.fail(c)
	}
	return nil
}

func ids(services []*renderer.ContivService) string {
	out := make([]string, len(services))
	for i, s := range services {
		out[i] = s.ID.Name
	}
	return strings.Join(out, ",")
}

func (r *recorder) AddService(s *renderer.ContivService) error {
	if _, twice := r.services[s.ID]; twice {
		panic("added twice: " + s.ID.String())
	}
	if err := r.call("add %s", s.ID.Name); err != nil {
		return err
	}
	r.services[s.ID] = s
	return nil
}

func (r *recorder) UpdateService(old, now *renderer.ContivService, others []*renderer.ContivService) error {
	if r.services[now.ID] != old {
		panic("update of something else: " + now.ID.String())
	}
	if err := r.call("update %s others=%s", now.ID.Name, ids(others)); err != nil {
		return err
	}
	r.services[now.ID] = now
	return nil
}

func (r *recorder) DeleteService(s *renderer.ContivService, others []*renderer.ContivService) error {
	if r.services[s.ID] != s {
		panic("delete of something else: " + s.ID.String())
	}
	if err := r.call("delete %s others=%s", s.ID.Name, ids(others)); err != nil {
		return err
	}
	delete(r.services, s.ID)
	return nil
}

func (r *recorder) UpdateNodePortServices(nodeIPs *renderer.IPAddresses, np []*renderer.ContivService) error {
	if err := r.call("node-ips %s services=%s", nodeIPs, ids(np)); err != nil {
		return err
	}
	r.nodeIPs = nodeIPs
	return nil
}

func (r *recorder) UpdateLocalFrontendIfs(_, now renderer.Interfaces) error {
	r.front = now.Copy()
	defer clear(now) // must not change the processor's sets
	return r.call("frontends %s", now)
}

func (r *recorder) UpdateLocalBackendIfs(_, now renderer.Interfaces) error {
	r.back = now.Copy()
	defer clear(now)
	return r.call("backends %s", now)
}

func (r *recorder) UpdateNode(n renderer.NodeState) error {
	r.node = n
	return r.call("node")
}

func (r *recorder) Resync(ev *renderer.ResyncEventData) error {
	if err := r.call("resync %s", ids(ev.Services)); err != nil {
		return err
	}
	r.services = map[model.ServiceID]*renderer.ContivService{}
	for _, s := range ev.Services {
		r.services[s.ID] = s
	}
	r.nodeIPs, r.front, r.back = ev.NodeIPs, ev.FrontendIfs.Copy(), ev.BackendIfs
	clear(ev.FrontendIfs) // renderers may modify their input: the processor's sets must not change
	return nil
}

// take returns the calls since the last take.
func (r *recorder) take() []string {
	c := r.calls
	r.calls = nil
	return c
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrs(list ...string) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, s := range list {
		out[i] = addr(s)
	}
	return out
}

func cluster(name, ip string, change ...func(*model.Service)) *model.Service {
	svc := &model.Service{
		ID: model.ServiceID{Namespace: "default", Name: name}, ClusterIPs: addrs(ip),
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	for _, f := range change {
		f(svc)
	}
	return svc
}

func slice(service string, eps ...model.Endpoint) *model.EndpointSlice {
	return &model.EndpointSlice{
		ID:      model.SliceID{Namespace: "default", Name: service + "-1"},
		Service: model.ServiceID{Namespace: "default", Name: service},
		Ports:   []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}}, Endpoints: eps,
	}
}

// ep returns a ready endpoint; 10.1.1.x is on node-1, others on node-2.
func ep(ip string) model.Endpoint {
	node := "node-2"
	if strings.HasPrefix(ip, "10.1.1.") {
		node = "node-1"
	}
	return model.Endpoint{Addr: addr(ip), Ready: true, Serving: true, NodeName: node}
}

func node(n int, ips ...string) *model.Node {
	return &model.Node{
		Name: fmt.Sprintf("node-%d", n), InternalIPs: addrs(ips...),
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/24", n))},
	}
}

func pod(name, ip string) *model.Pod {
	p := &model.Pod{ID: model.PodID{Namespace: "default", Name: name}, NodeName: "node-2", IPs: addrs(ip)}
	if strings.HasPrefix(ip, "10.1.1.") {
		p.NodeName = "node-1"
	}
	return p
}

func newTest(t *testing.T) (*Processor, *recorder) {
	t.Helper()
	r := &recorder{services: map[model.ServiceID]*renderer.ContivService{}}
	p := New(Config{NodeName: "node-1"}, r)
	return p, r
}

func apply(p *Processor, objects ...model.Object) {
	for _, obj := range objects {
		p.Apply(event.Change{Ref: obj.Ref(), Object: obj})
	}
}

func remove(p *Processor, objects ...model.Object) {
	for _, obj := range objects {
		p.Apply(event.Change{Ref: obj.Ref()})
	}
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
	p, r := newTest(t)
	apply(p, node(1, "192.168.16.1"), cluster("b", "10.96.0.2"), cluster("a", "10.96.0.1"), cluster("c", "10.96.0.3"))
	flush(t, p, r, "node", "resync a,b,c")
	flush(t, p, r)
	apply(p, slice("b", ep("10.1.1.2")))
	flush(t, p, r, "update b others=a,c")
	apply(p, slice("b", ep("10.1.1.2"))) // no change
	flush(t, p, r)
	apply(p, cluster("d", "10.96.0.4"))
	flush(t, p, r, "add d")
	remove(p, cluster("b", "10.96.0.2"))
	flush(t, p, r, "delete b others=a,c,d")
	apply(p, cluster("b", "10.96.0.2")) // its slice existed before
	flush(t, p, r, "add b")
	if got := r.services[model.ServiceID{Namespace: "default", Name: "b"}].Backends["http"]; len(got) != 1 {
		t.Errorf("backends = %v", got)
	}
	remove(p, slice("b"))
	flush(t, p, r, "update b others=a,d,c") // the last stands in for b
	apply(p, node(2, "192.168.16.2"))
	flush(t, p, r, "node", "node-ips [192.168.16.1 192.168.16.2] services=")
	other := renderer.RemoteNode{Name: "node-2", IPs: []netip.Addr{netip.MustParseAddr("192.168.16.2")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}}
	if got := p.state.Remote; len(got) != 1 || !got[0].Equal(other) {
		t.Errorf("other nodes = %+v", got)
	}
}

func TestServiceAndSlicesLeaveNothingBehind(t *testing.T) {
	p, r := newTest(t)
	apply(p, node(1, "192.168.16.1"))
	flush(t, p, r, "node", "resync ")
	a, s := cluster("a", "10.96.0.1", withExternal("203.0.113.7")), slice("a", ep("10.1.1.2"))
	apply(p, s)
	flush(t, p, r)
	apply(p, a)
	flush(t, p, r, "add a")
	remove(p, s, a)
	flush(t, p, r, "delete a others=")
	apply(p, s)
	flush(t, p, r)
	remove(p, s)
	flush(t, p, r)
	if len(p.services)+len(p.slices)+len(p.users.at4)+len(p.users.at6)+len(p.users.queue)+len(p.claims.at)+len(p.nodePorts)+len(p.all) != 0 {
		t.Errorf("left behind: services %v slices %v users %v claims %v", p.services, p.slices, p.users, p.claims.at)
	}
}

func TestRefusedObjectIsWithdrawn(t *testing.T) {
	p, r := newTest(t)
	a := cluster("a", "10.96.0.1")
	apply(p, a)
	flush(t, p, r, "node", "resync a")
	p.Apply(event.Change{Ref: a.Ref(), Object: a, Err: errors.New("bad")})
	flush(t, p, r, "delete a others=")
}

func TestNotRendered(t *testing.T) {
	for name, change := range map[string]func(*model.Service){
		"it is headless":              func(s *model.Service) { s.Headless = true },
		"it is an ExternalName":       func(s *model.Service) { s.Type = model.ExternalName },
		"it has no cluster IP yet":    func(s *model.Service) { s.ClusterIPs = nil },
		`it is left to proxy "other"`: func(s *model.Service) { s.ProxyName = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			p, r := newTest(t)
			apply(p, cluster("a", "10.96.0.1"), slice("a", ep("10.1.1.2")))
			flush(t, p, r, "node", "resync a")
			apply(p, cluster("a", "10.96.0.1", change))
			flush(t, p, r, "delete a others=")
			if got := p.Services()[0]; got.Skipped != name || got.Rendered != nil {
				t.Errorf("status = %+v", got)
			}
			apply(p, cluster("a", "10.96.0.1"))
			flush(t, p, r, "add a")
		})
	}
}

func TestOwnProxyName(t *testing.T) {
	r := &recorder{services: map[model.ServiceID]*renderer.ContivService{}}
	p := New(Config{ProxyName: "contiv"}, r)
	apply(p, cluster("a", "10.96.0.1"), cluster("b", "10.96.0.2", func(s *model.Service) { s.ProxyName = "contiv" }))
	flush(t, p, r, "node", "resync b")
}

func TestFailuresAreReportedAndRepeated(t *testing.T) {
	p, r := newTest(t)
	second := &recorder{services: map[model.ServiceID]*renderer.ContivService{}}
	p.targets = append(p.targets, newTarget(1, second))
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p.Locate(start)
	flush(t, p, r, "node", "resync ")
	second.take()
	r.fail = func(call string) error {
		if strings.HasSuffix(call, " a") || strings.HasPrefix(call, "delete a") {
			return errors.New("no room")
		}
		return nil
	}
	apply(p, cluster("a", "10.96.0.1"), cluster("b", "10.96.0.2"))
	err := p.Flush()
	if err == nil || err.Error() != "service default/a: no room" {
		t.Errorf("Flush = %v", err)
	}
	if got := r.take(); !slices.Equal(got, []string{"add a", "add b"}) {
		t.Errorf("calls %v: one failure blocks another service", got)
	}
	if got := second.take(); !slices.Equal(got, []string{"add a", "add b"}) {
		t.Errorf("calls %v: one renderer blocks another", got)
	}
	if got := p.Services()[0].Err; got == nil {
		t.Error("the status does not show the failure")
	}
	flush(t, p, r) // too early
	p.Locate(start.Add(firstRetry))
	if err := p.Flush(); err == nil {
		t.Error("the repeated call did not fail")
	}
	r.take()
	p.Locate(start.Add(2 * firstRetry))
	flush(t, p, r) // the pause has doubled
	r.fail = nil
	p.Locate(start.Add(3 * firstRetry))
	flush(t, p, r, "add a")
	if got := p.Services()[0].Err; got != nil || len(second.take()) != 0 {
		t.Errorf("after success: %v", got)
	}
	r.fail = func(string) error { return errors.New("no") }
	remove(p, cluster("a", "10.96.0.1"))
	if err := p.Flush(); err == nil {
		t.Error("no error from a failing delete")
	}
	r.take()
	r.fail = nil
	p.Locate(start.Add(time.Hour))
	flush(t, p, r, "delete a others=b")
	if len(p.services) != 1 {
		t.Error("a deleted service is kept")
	}
}

func TestFailedResyncIsRepeated(t *testing.T) {
	p, r := newTest(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p.Locate(start)
	r.fail = func(call string) error {
		if strings.HasPrefix(call, "resync") {
			return errors.New("not now")
		}
		return nil
	}
	apply(p, cluster("a", "10.96.0.1"))
	if err := p.Resync(); err == nil || p.Targets()[0].Synced {
		t.Errorf("Resync = %v, targets %v", err, p.Targets())
	}
	r.fail = nil
	r.take()
	apply(p, cluster("b", "10.96.0.2"))
	flush(t, p, r) // everything waits for the resync
	p.Locate(start.Add(firstRetry))
	flush(t, p, r, "node", "resync a,b")
	if !p.Targets()[0].Synced {
		t.Error("not synced")
	}
}

func TestFailedInterfaceCallIsRepeated(t *testing.T) {
	p, r := newTest(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p.Locate(start)
	apply(p, node(1, "192.168.16.1"))
	flush(t, p, r, "node", "resync ")
	p.Located(&event.Located{Uplink: "eth0"})
	r.fail = func(call string) error { return errors.New("not now") }
	if err := p.Flush(); err == nil || len(r.take()) != 3 {
		t.Error("the three calls did not all fail")
	}
	r.fail = nil
	flush(t, p, r)
	p.Locate(start.Add(time.Minute))
	flush(t, p, r, "node", "frontends [eth0]", "backends [eth0]")
	flush(t, p, r)
}

// dealer is a renderer that takes a resync in portions of one service.
type dealer struct{ *recorder }

func (d dealer) ResyncInPortions(ev *renderer.ResyncEventData) (portions []func(), err error) {
	err = d.call("begin %s", ids(ev.Services))
	for _, svc := range ev.Services {
		portions = append(portions, func() {
			_ = d.call("portion %s", svc.ID.Name)
			d.services[svc.ID] = svc
		})
	}
	return portions, err
}

// TestResyncInPortions: a renderer without portions gets everything at once. A renderer with portions gets them at the end.
func TestResyncInPortions(t *testing.T) {
	_, whole := newTest(t)
	d := dealer{&recorder{services: map[model.ServiceID]*renderer.ContivService{}}}
	p := New(Config{NodeName: "node-1"}, d, whole)
	apply(p, node(1, "192.168.16.1"), cluster("b", "10.96.0.2"), cluster("gone", "10.96.0.3"))
	p.Prepare()
	apply(p, cluster("a", "10.96.0.1"))
	remove(p, cluster("gone", "10.96.0.3"))
	p.Prepare()
	if calls := append(d.take(), whole.take()...); len(calls) > 0 {
		t.Errorf("preparing: %v", calls)
	}
	portions, err := p.ResyncInPortions()
	if diff := cmp.Diff([]string{"node", "begin a,b"}, d.take()); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{"node", "resync a,b"}, whole.take()); diff != "" {
		t.Errorf("as a whole (-want +got):\n%s", diff)
	}
	for _, do := range portions {
		do()
	}
	apply(p, slice("b", ep("10.1.1.2")))
	p.Prepare() // too late: nothing may be lost
	flush(t, p, d.recorder, "portion a", "portion b", "update b others=a")
	if diff := cmp.Diff([]string{"update b others=a"}, whole.take()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	if len(p.services) != 2 {
		t.Errorf("%d services are kept", len(p.services))
	}
	d.fail = func(string) error { return errors.New("not now") }
	if _, err := p.ResyncInPortions(); err == nil || p.Targets()[0].Synced {
		t.Errorf("failing: %v, targets %v", err, p.Targets())
	}
}
