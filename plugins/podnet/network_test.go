package podnet

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
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/ipam"
	"github.com/contiv-agent/contiv-agent/plugins/podnet/probe"
)

var (
	_ cni.Network         = (*Network)(nil)
	_ controller.Onlooker = (*Network)(nil)
)

// here is a network namespace that exists.
const here = "/proc/self/ns/net"

// world stands for the controller and VPP around a network.
type world struct {
	t      *testing.T
	dir    string
	now    time.Time
	net    *Network
	pool   *ipam.Pool
	source func(event.Event) // emit of a source
	stop   func()

	mu     sync.Mutex
	seq    uint64
	values kv.Values             // desired
	lists  kv.Values             // of pods with addresses
	events []event.Event         // that reached the controller
	held   func(key string) bool // keys that VPP does not acknowledge; nil: none
	probe  func(context.Context, probe.Link) error
	away   bool
	prefer string // the kind of pods that ask for none
	hung   string // why VPP is silent; "": it answers
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), now: time.Unix(1000, 0), values: kv.Values{}, lists: kv.Values{}}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start starts the agent: the files stay from an earlier one.
func (w *world) start() {
	w.t.Helper()
	var err error
	clock := func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now }
	if w.pool, err = ipam.Open(clock(), ipam.Config{File: filepath.Join(w.dir, "addresses.db")}); err != nil {
		w.t.Fatal(err)
	}
	w.net, err = New(Config{
		Settings: Settings{NodeName: "node-1"}, File: filepath.Join(w.dir, "attachments.db"), Memifs: filepath.Join(w.dir, "memif"), Pool: w.pool, Prefer: func() string { return w.prefer }, Closed: true, PodWait: 20 * time.Millisecond, Now: clock, ProbeWait: 20 * time.Millisecond,
		Probe: func(ctx context.Context, l probe.Link) error {
			if w.probe == nil {
				return nil
			}
			return w.probe(ctx, l)
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.values = kv.Values{}
	w.source = w.net.Watch(w.take, func() string { w.mu.Lock(); defer w.mu.Unlock(); return w.hung })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		ended <- w.net.Run(ctx, func(ev event.Event) {
			w.take(ev)
			if ex, ok := ev.(*event.External); ok && ex.Resync {
				close(started)
			}
		})
	}()
	<-started
	w.stop = func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			w.t.Error(err)
		}
		if err := w.pool.Close(); err != nil {
			w.t.Error(err)
		}
	}
	w.source(&event.VPPStatus{Connected: true})
}

// take is the controller: it records an event, and VPP acknowledges what follows from it.
func (w *world) take(ev event.Event) {
	w.mu.Lock()
	w.events = append(w.events, ev)
	var touched []string
	switch ev := ev.(type) {
	case *event.External:
		if ev.Resync {
			clear(w.values)
		}
		for key, m := range ev.Values {
			touched = append(touched, key)
			if w.values[key] = m; m == nil {
				delete(w.values, key)
			}
		}
	case *event.Update:
		for _, ch := range ev.Changes {
			if pod, ok := ch.Object.(*model.Pod); ok && len(pod.IPs) > 0 {
				for key, m := range w.values {
					if name, is := kv.PodInterfaceOf(key); is && strings.Contains(name, pod.ID.String()+":") {
						w.lists[kv.InterfaceACLsKey(name)] = m
						touched = append(touched, kv.InterfaceACLsKey(name))
					}
				}
			}
		}
	}
	w.mu.Unlock()
	w.acknowledge(touched...)
}

// acknowledge ends a transaction of these keys.
func (w *world) acknowledge(keys ...string) {
	w.mu.Lock()
	w.seq++
	c := &event.Committed{Seq: w.seq}
	if w.away {
		c.Err = errors.New("vpp is away")
	}
	all := maps.Clone(w.values)
	maps.Copy(all, w.lists)
	for _, key := range keys {
		st := event.ValueStatus{Key: key, State: event.Configured}
		switch {
		case all[key] == nil:
			st.State = event.Removed
		case w.away:
			st.State, st.Err = event.Retrying, "vpp is away"
		case w.held != nil && w.held(key):
			st.State, st.Err = event.Retrying, "held back"
		}
		c.Statuses = append(c.Statuses, st)
	}
	w.mu.Unlock()
	w.net.Committed(c, func(key string) proto.Message { return all[key] })
}

func (w *world) hold(f func(key string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = f
}

func (w *world) put(objects ...model.Object) {
	up := &event.Update{Source: "kube"}
	for _, o := range objects {
		up.Changes = append(up.Changes, event.Change{Ref: o.Ref(), Object: o})
	}
	w.source(up)
}

func (w *world) nodes() {
	for _, name := range []string{"node-1", "node-2"} {
		w.put(twoNodes().nodes[name])
	}
}

func pod(name string, ips ...netip.Addr) *model.Pod {
	return &model.Pod{ID: model.PodID{Namespace: "default", Name: name}, NodeName: "node-1", IPs: ips}
}

func request(container, pod string) protocol.Request {
	return protocol.Request{Attachment: protocol.Attachment{ContainerID: container, IfName: "eth0"}, Netns: here, Pod: protocol.Pod{Namespace: "default", Name: pod}}
}

// podKeys are the desired values that name an attachment.
func (w *world) podKeys() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.values {
		if strings.Contains(key, "pod:") || strings.Contains(key, "-pod") {
			out = append(out, key)
		}
	}
	return out
}

func code(err error) uint {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e.Code
	}
	return 0
}

func (w *world) add(r protocol.Request) *protocol.Result {
	w.t.Helper()
	out, err := w.net.Add(w.t.Context(), r)
	if err != nil {
		w.t.Fatalf("ADD %s: %v", r.Attachment, err)
	}
	return out
}

func TestAdd(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"))
	got := w.add(request("c1", "web"))
	if len(got.IPs) != 2 || got.IPs[0].Address != netip.MustParsePrefix("10.1.1.2/32") || got.IPs[0].Gateway != gateway4 || got.Interface.MTU != 1450 || len(got.Routes) != 2 {
		t.Errorf("result %+v", got)
	}
	again := w.add(request("c1", "web"))
	if again.IPs[0] != got.IPs[0] {
		t.Errorf("a second ADD: %+v", again)
	}
	if err := w.net.Check(t.Context(), request("c1", "web"), got); err != nil {
		t.Error(err)
	}
	if err := w.net.Check(t.Context(), request("c2", "web"), nil); code(err) != protocol.CodeUnknownContainer {
		t.Errorf("CHECK of an unknown container: %v", err)
	}
}

// TestAddWaits: an Add does not return before VPP has acknowledged each value of the pod, and its lists.
func TestAddWaits(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"))
	for i, held := range []string{"config/vpp/v2/interfaces/pod:", "config/vpp/v2/arp/pod:", "config/vpp/v2/route/if/pod:", "config/linux/interfaces/v2/interface/cv-", "config/linux/l3/v2/route/", "config/contiv/vpp/v1/interface-acls/pod:"} {
		w.hold(func(k string) bool { return strings.HasPrefix(k, held) })
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
		_, err := w.net.Add(ctx, request(fmt.Sprint("c", i), "web"))
		stop()
		if code(err) != protocol.CodeTryAgainLater || !strings.Contains(err.Error(), held) {
			t.Errorf("without %s: %v", held, err)
		}
		w.hold(nil)
	}
}

// TestAddWaitsForAnAnswer: an Add asks when VPP has everything of the pod, and fails without an answer.
func TestAddWaitsForAnAnswer(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"))
	var asked []probe.Link
	w.probe = func(ctx context.Context, l probe.Link) error {
		asked = append(asked, l)
		if why := w.net.states.missing(kv.InterfaceACLsKey((&Attachment{Attachment: request("c1", "web").Attachment, Pod: request("c1", "web").Pod}).iface())); why != "" {
			t.Errorf("it asks too early: %s", why)
		}
		if len(asked) > 1 {
			return nil
		}
		<-ctx.Done()
		return errors.New("no answer")
	}
	if _, err := w.net.Add(t.Context(), request("c1", "web")); code(err) != protocol.CodeTryAgainLater || !strings.Contains(err.Error(), "VPP receives nothing of its interface: no answer") {
		t.Errorf("without an answer: %v", err)
	}
	got := w.add(request("c1", "web"))
	want := probe.Link{Netns: here, Name: "eth0", MAC: got.Interface.MAC, Addr: got.IPs[0].Address.Addr(), Gateway: gateway4}
	if len(asked) != 2 || asked[1] != want {
		t.Errorf("asked %+v, want %+v", asked, want)
	}
	w.put(pod("router"))
	w.add(memifRequest("c2", "router", "u2"))
	if len(asked) != 2 {
		t.Error("it asks by a link that does not exist")
	}
}

// TestVPPReturnsDuringAdd: VPP ends while it takes a pod's values, and gets them when it returns, without a transaction. Add finds them.
func TestVPPReturnsDuringAdd(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"))
	away := func(is bool) { w.mu.Lock(); defer w.mu.Unlock(); w.away = is }
	away(true)
	ended := make(chan error, 1)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	go func() { _, err := w.net.Add(ctx, request("c1", "web")); ended <- err }()
	if err := w.net.until(ctx, func() string {
		if w.net.states.last == nil {
			return "VPP is not away"
		}
		return ""
	}); err != nil {
		t.Fatal(err)
	}
	away(false)
	returned := &event.Committed{Resync: event.Downstream}
	w.mu.Lock()
	all := maps.Clone(w.values)
	w.mu.Unlock()
	for key := range all {
		returned.Statuses = append(returned.Statuses, event.ValueStatus{Key: key, State: event.Configured})
	}
	w.net.Committed(returned, func(key string) proto.Message { return all[key] })
	if err := <-ended; err != nil {
		t.Errorf("ADD: %v", err)
	}
}

// TestPodArrivesLater: the pod stays attached and closed, and the next Add finds it evaluated.
func TestPodArrivesLater(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	if _, err := w.net.Add(t.Context(), request("c1", "web")); code(err) != protocol.CodeTryAgainLater || !strings.Contains(err.Error(), "Pod object is not known yet") {
		t.Fatal(err)
	}
	if len(w.podKeys()) == 0 {
		t.Error("nothing of the pod is in VPP")
	}
	w.put(pod("web"))
	if got := w.add(request("c1", "web")); got.IPs[0].Address.Addr() != netip.MustParseAddr("10.1.1.2") {
		t.Errorf("result %+v", got)
	}
}

// TestPodsGetAddresses: the loop sees the Pods of attachments with their addresses, whatever the API server has.
func TestPodsGetAddresses(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"), pod("other"))
	w.add(request("c1", "web"))
	other := pod("web")
	other.Labels = map[string]string{"changed": "yes"}
	w.put(other)
	w.put(pod("web", netip.MustParseAddr("10.9.9.9"))) // of an earlier sandbox
	if err := w.net.Delete(t.Context(), request("c1", "web")); err != nil {
		t.Fatal(err)
	}
	var seen [][]netip.Addr
	for _, ev := range w.events {
		if up, ok := ev.(*event.Update); ok {
			for _, ch := range up.Changes {
				if p, ok := ch.Object.(*model.Pod); ok && p.ID.Name == "web" {
					seen = append(seen, p.IPs)
				}
			}
		}
	}
	own := addrs("10.1.1.2", "2001:db8:1:1::2")
	want := [][]netip.Addr{nil, own, own, own, addrs("10.9.9.9")}
	if !slices.EqualFunc(seen, want, slices.Equal) {
		t.Errorf("the loop saw %v, want %v", seen, want)
	}
	if len(other.IPs) > 0 {
		t.Error("the source's object was changed")
	}
}

// TestStalePodHasNoAddressOfAnother: a Pod that the API server shows again, without an attachment, does not have the address that another pod has now. It is shown before
// that pod's ADD, or after it.
func TestStalePodHasNoAddressOfAnother(t *testing.T) {
	for _, before := range []bool{false, true} {
		w := newWorld(t)
		w.nodes()
		stale := pod("old", addrs("10.1.1.2", "2001:db8:1:1::2")...)
		w.put(pod("web"))
		if before {
			w.put(stale)
		}
		w.add(request("c1", "web"))
		if !before {
			w.put(stale)
		}
		if got := w.lastAddresses("old"); len(got) > 0 {
			t.Errorf("before the ADD %t: the Pod has %v, which are those of another attachment", before, got)
		}
		if err := w.net.Delete(t.Context(), request("c1", "web")); err != nil {
			t.Fatal(err)
		}
		if got := w.lastAddresses("old"); !slices.Equal(got, stale.IPs) {
			t.Errorf("before the ADD %t: the Pod has %v when the other attachment is removed, want %v", before, got, stale.IPs)
		}
	}
}

// lastAddresses are those of a Pod as the loop has seen it last.
func (w *world) lastAddresses(name string) (ips []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ev := range w.events {
		if up, ok := ev.(*event.Update); ok {
			for _, ch := range up.Changes {
				if p, ok := ch.Object.(*model.Pod); ok && p.ID.Name == name {
					ips = p.IPs
				}
			}
		}
	}
	return ips
}

// TestDelete: removals are idempotent, and an address is not used again before everything has forgotten it.
func TestDelete(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"))
	w.add(request("c1", "web"))
	r := request("c1", "web")
	for range 3 {
		r.Netns = ""
		if err := w.net.Delete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if keys := w.podKeys(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
	taken := func() bool {
		w.net.forget()
		return len(w.pool.Waiting()) > 0
	}
	w.put(pod("web", addrs("10.1.1.2", "2001:db8:1:1::2")...))
	if !taken() {
		t.Error("the addresses are free while a Pod object still has them")
	}
	w.source(&event.Update{Source: "kube", Changes: []event.Change{{Ref: pod("web").Ref()}}})
	if taken() {
		t.Error("nothing has the addresses, and they are not free")
	}
}

// TestDeleteWhileVPPIsSlow: the addresses wait for VPP.
func TestDeleteWhileVPPIsSlow(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"))
	w.add(request("c1", "web"))
	w.source(&event.Update{Source: "kube", Changes: []event.Change{{Ref: pod("web").Ref()}}})
	w.mu.Lock()
	w.away = true
	w.mu.Unlock()
	if err := w.net.Delete(t.Context(), request("c1", "web")); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.away = false
	w.mu.Unlock()
	w.acknowledge() // of something else
	if w.net.forget(); len(w.pool.Waiting()) == 0 {
		t.Error("the addresses are free before VPP has removed their routes")
	}
	w.net.Committed(&event.Committed{Seq: 99, Resync: event.Full}, func(string) proto.Message { return nil })
	if w.net.forget(); len(w.pool.Waiting()) > 0 {
		t.Error("VPP has removed everything, and the addresses are not free")
	}
}

// TestRestart: a restarted agent has the same values; an attachment whose namespace is gone has none, and its address is released.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"), pod("old"))
	w.add(request("c1", "web"))
	w.add(request("c2", "old"))
	before := text(w.values)
	w.stop()
	w.start()
	w.nodes()
	if got := text(w.values); got != before {
		t.Errorf("after a restart:\n%s\nbefore:\n%s", got, before)
	}
	w.put(pod("web"))
	if got := w.add(request("c1", "web")); got.IPs[0].Address.Addr() != netip.MustParseAddr("10.1.1.2") {
		t.Errorf("after a restart: %+v", got)
	}
	gone := &Attachment{Attachment: request("c2", "old").Attachment, Netns: filepath.Join(w.dir, "gone"), Pod: request("c2", "old").Pod, MTU: 1450, Addresses: addrs("10.1.1.3", "2001:db8:1:1::3")}
	if err := w.net.store.put(gone); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.start()
	w.nodes()
	if strings.Contains(text(w.values), "default/old") || len(w.pool.Leases(gone.Attachment)) > 0 {
		t.Errorf("an attachment without a namespace is back:\n%s", text(w.values))
	}
}

// TestKilledAdd: an Add that was killed between its steps leaves nothing after the runtime's DEL, or without one after a restart.
func TestKilledAdd(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	if _, err := w.pool.Allocate(w.now, request("c1", "web").Attachment); err != nil { // killed before the file
		t.Fatal(err)
	}
	w.stop()
	w.start()
	if left := w.pool.Attachments(); len(left) > 0 {
		t.Errorf("addresses of %v are left", left)
	}
}

func TestCollect(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("a"), pod("b"))
	w.add(request("c1", "a"))
	w.add(request("c2", "b"))
	if err := w.net.Collect(t.Context(), []protocol.Attachment{request("c2", "b").Attachment}); err != nil {
		t.Fatal(err)
	}
	if got := text(w.values); strings.Contains(got, "default/a:") || !strings.Contains(got, "default/b:") {
		t.Errorf("left:\n%s", got)
	}
}

func TestRefused(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"))
	for want, change := range map[string]func(*protocol.Request){
		"network namespace": func(r *protocol.Request) { r.Netns = w.dir },
		"K8S_POD_NAME":      func(r *protocol.Request) { r.Pod = protocol.Pod{} },
		"at most 15 bytes":  func(r *protocol.Request) { r.IfName = "a-name-of-16-byt" },
	} {
		r := request("c1", "web")
		change(&r)
		if _, err := w.net.Add(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	given := request("c3", "web")
	given.IPs = []protocol.IP{{Address: netip.MustParsePrefix("10.1.1.77/24")}}
	w.add(given)
	given.ContainerID = "c4"
	if _, err := w.net.Add(t.Context(), given); code(err) != protocol.CodeTryAgainLater || !strings.Contains(err.Error(), "10.1.1.77 still belongs to pod default/web") {
		t.Errorf("an address in use: %v", err)
	}
}

func TestStatus(t *testing.T) {
	w := newWorld(t)
	want := func(when string, code uint, text string) {
		t.Helper()
		err := w.net.Status(t.Context())
		if e, _ := errors.AsType[*protocol.Error](err); e == nil || e.Code != code || !strings.Contains(e.Msg, text) {
			t.Errorf("%s: %v, want %d %q", when, err, code, text)
		}
	}
	want("no Node", 50, "knows no Node node-1 yet")
	w.put(&model.Node{Name: "node-1"})
	want("no range", 50, "has no spec.podCIDRs")
	w.hold(func(key string) bool { return key == "config/vpp/v2/interfaces/host" })
	w.nodes()
	if err := w.net.Status(t.Context()); err != nil && code(err) != protocol.CodeLimited { // the host link did not change
		t.Error(err)
	}
	w.acknowledge("config/vpp/v2/interfaces/host")
	want("no host link", 50, "config/vpp/v2/interfaces/host is RETRYING: held back")
	w.hold(func(key string) bool { return strings.HasPrefix(key, "config/vpp/v2/interfaces/vxlan:") })
	w.acknowledge("config/vpp/v2/interfaces/host", "config/vpp/v2/interfaces/vxlan:192.168.16.2")
	if why := forwards(settings, twoNodes().nodes["node-1"]); why == "" {
		want("no tunnel", 51, "vxlan:192.168.16.2 is RETRYING")
	} else {
		want("no forwarding", 51, why)
	}
	w.source(&event.VPPStatus{Err: errors.New("no such file")})
	want("no VPP", 50, "VPP is away: no such file")
}

// TestHungVPP: STATUS names a VPP that is connected and silent. An ADD is refused to be repeated, a DEL ends, and neither waits: also one in progress.
func TestHungVPP(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // a runtime's
	defer cancel()
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"))
	w.add(request("c1", "web"))
	const why = "VPP has not answered for 11s"
	hang := func(why string) { w.mu.Lock(); w.hung = why; w.mu.Unlock() }
	w.hold(func(string) bool { return true }) // a silent VPP acknowledges nothing
	w.put(pod("early"))
	before := len(w.podKeys())
	early := make(chan error, 1)
	go func() { _, err := w.net.Add(ctx, request("c2", "early")); early <- err }()
	for len(w.podKeys()) == before { // it has sent its values, and waits
		time.Sleep(time.Millisecond)
	}
	hang(why)
	if err := <-early; code(err) != protocol.CodeTryAgainLater || !strings.Contains(err.Error(), why) {
		t.Errorf("an ADD in progress: %v", err)
	}
	w.put(pod("late"))
	if _, err := w.net.Add(ctx, request("c3", "late")); code(err) != protocol.CodeTryAgainLater || !strings.Contains(err.Error(), why) {
		t.Errorf("a new ADD: %v", err)
	}
	if err := w.net.Status(t.Context()); code(err) != protocol.CodeNotAvailable || !strings.Contains(err.Error(), why) {
		t.Errorf("STATUS: %v", err)
	}
	if err := w.net.Delete(ctx, request("c1", "web")); err != nil || ctx.Err() != nil {
		t.Errorf("DEL: %v", err)
	}
	hang("")
	if err := w.net.Status(t.Context()); err != nil && code(err) == protocol.CodeNotAvailable && strings.Contains(err.Error(), "answered") {
		t.Errorf("STATUS of a VPP that goes on: %v", err)
	}
}

// TestForwards: a node needs the kernel's forwarding in the families that it has.
func TestForwards(t *testing.T) {
	both := twoNodes().nodes["node-1"]
	only4, only6 := *both, *both
	only4.InternalIPs, only4.PodCIDRs = both.InternalIPs[:1], both.PodCIDRs[:1]
	only6.InternalIPs, only6.PodCIDRs = both.InternalIPs[1:], both.PodCIDRs[1:]
	for _, c := range []struct {
		four, six string
		node      *model.Node
		want      string
	}{
		{"1", "1", both, ""},
		{"0", "1", both, "net.ipv4.ip_forward is 0"},
		{"1", "0", both, "net.ipv6.conf.all.forwarding is 0"},
		{"1", "0", &only4, ""},
		{"0", "1", &only6, ""},
		{"0", "0", &only6, "net.ipv6.conf.all.forwarding is 0"},
	} {
		dir := t.TempDir()
		for name, value := range map[string]string{"ipv4/ip_forward": c.four, "ipv6/conf/all/forwarding": c.six} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got := forwards(dir, c.node); (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("IPv4 %s, IPv6 %s, %v: %q, want %q", c.four, c.six, c.node.PodCIDRs, got, c.want)
		}
	}
}

// TestPathIndependence: nodes and pods in any order, with changes and removals in between, end in the values of the final state.
func TestPathIndependence(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		defer func() { w.stop(); w.stop = func() {} }()
		w.put(twoNodes().nodes["node-1"])
		live := map[string]*Attachment{}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "kind") {
			case 0:
				n := *twoNodes().nodes["node-2"]
				n.InternalIPs = addrs(rapid.SampledFrom([]string{"192.168.16.2", "192.168.16.3", "2001:db8:16::2"}).Draw(rt, "address"))
				w.put(&n)
			case 1:
				w.source(&event.Update{Changes: []event.Change{{Ref: twoNodes().nodes["node-2"].Ref()}}})
			case 2:
				name := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "pod")
				w.put(pod(name))
				if _, err := w.net.Add(t.Context(), request(name, name)); err != nil {
					rt.Fatal(err)
				}
			case 3:
				name := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "pod")
				if err := w.net.Delete(t.Context(), request(name, name)); err != nil {
					rt.Fatal(err)
				}
			}
		}
		for at, a := range w.net.attached {
			live[at.String()] = a
		}
		final := w.net.cluster.values(&w.net.cfg.Settings, slices.Collect(maps.Values(live)))
		if got, want := text(w.values), text(final); got != want {
			rt.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestSandboxMadeAgain: the runtime makes a second sandbox before it deletes the first, and the API server has the first one's address meanwhile.
func TestSandboxMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"))
	first := w.add(request("c1", "web"))
	w.put(pod("web", first.IPs[0].Address.Addr(), first.IPs[1].Address.Addr()))
	w.mu.Lock()
	w.now = w.now.Add(time.Second)
	w.mu.Unlock()
	second := w.add(request("c2", "web"))
	if second.IPs[0] == first.IPs[0] {
		t.Errorf("both sandboxes have %v", first.IPs[0])
	}
	for _, when := range []string{"before", "after"} {
		last := w.events[len(w.events)-1].(*event.Update).Changes[0].Object.(*model.Pod)
		if last.IPs[0] != second.IPs[0].Address.Addr() {
			t.Errorf("%s the first DEL the loop has the address %v of the first sandbox", when, last.IPs)
		}
		if err := w.net.Delete(t.Context(), request("c1", "web")); err != nil {
			t.Fatal(err)
		}
	}
	if keys := strings.Join(w.podKeys(), " "); strings.Count(keys, "config/vpp/v2/interfaces/pod:") != 1 {
		t.Errorf("desired: %s", keys)
	}
}
