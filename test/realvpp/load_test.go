package realvpp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/hostile"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/stats"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// loaded is a real VPP with an agent that runs, a victim's flow that never stops, and a tenant with many pods.
type loaded struct {
	t         *testing.T
	l         *lab
	cni       *cni.CNI
	events    feed
	committed chan *event.Committed
	flow      *delays
	stop      func()
	status    func(context.Context) (*status.Status, error)
	port      uint16
	objects   []event.Change
}

// feed is a source that emits what it is given.
type feed chan event.Event

func (f feed) Run(ctx context.Context, emit func(event.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev := <-f:
			emit(ev)
		}
	}
}

const (
	loadPods    = 100    // of the tenant on the node
	loadMembers = 10_000 // of its set, on other nodes
	flowPort    = 7000   // open all the time
)

func put(o model.Object) event.Change { return event.Change{Ref: o.Ref(), Object: o} }

// evilPod is a pod of the tenant on this node; its interface is a loopback.
func evilPod(i int) *model.Pod {
	return &model.Pod{
		ID: model.PodID{Namespace: "evil", Name: fmt.Sprint("many-", i)}, NodeName: "node-1", IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 1, byte(100 + i)})},
		Labels: map[string]string{"many": "yes"},
	}
}

// evilMember is a pod of the tenant on another node.
func evilMember(i int, member bool) *model.Pod {
	p := &model.Pod{ID: model.PodID{Namespace: "evil", Name: fmt.Sprint("member-", i)}, NodeName: fmt.Sprint("far-", i/110), IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(2 + i/110/256), byte(i / 110 % 256), byte(2 + i%110)})}}
	if member {
		p.Labels = map[string]string{"member": "yes"}
	}
	return p
}

// inSet reports that a pod is a member in the beginning: about every second one.
func inSet(i int) bool { return i%2 == i/2%7%2 }

func evilPolicy(ports ...uint16) *model.Policy {
	p := &model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "evil", Name: "large"}, Tier: model.TierDefault, Order: model.OrderKubernetes(),
		Namespace: "evil", Selector: model.LabelNamespace + " == 'evil' && many == 'yes'", Ingress: true,
	}
	r := model.Rule{Action: model.ActionAllow, Source: model.Peer{Selector: model.LabelNamespace + " == 'evil' && member == 'yes'"}}
	if len(ports) > 0 {
		r.Protocol.Name = "tcp"
	}
	for _, port := range ports {
		r.Destination.Ports = append(r.Destination.Ports, model.PortMatch{First: port, Last: port})
	}
	p.InboundRules = []model.Rule{r}
	return p
}

// victimPolicy lets the client reach the server at the flow's port, and at another one.
func victimPolicy(port uint16) event.Change {
	ch := hostile.Policy(port)
	p := ch.Object.(*model.Policy)
	p.InboundRules[0].Protocol.Name = "udp"
	p.InboundRules[0].Destination.Ports = append(p.InboundRules[0].Destination.Ports, model.PortMatch{First: flowPort, Last: flowPort})
	return ch
}

func members() (out []event.Change) {
	for i := range 2 * loadMembers {
		out = append(out, put(evilMember(i, inSet(i))))
	}
	return out
}

// openLoaded starts VPP with so many workers. The agent starts with all objects but the policy of the tenant.
func openLoaded(t *testing.T, workers int, objects ...event.Change) *loaded {
	l, err := openLabWith(theVPP(t), workers)
	t.Cleanup(l.close)
	w := &loaded{t: t, l: l, events: make(feed, 1), committed: make(chan *event.Committed, 100_000), port: 20000}
	w.check(err)
	w.prefer()
	w.cni = cni.New(l, "node-1")
	world := hostile.World()
	w.check(w.cni.Apply(world))
	l.hollow = true
	var many []event.Change
	for i := range loadPods {
		many = append(many, put(evilPod(i)))
	}
	w.check(w.cni.Apply(many))
	l.hollow = false
	w.check(l.err)
	w.flow, err = openDelays(l, "pod-victim/client", "pod-victim/server", netip.AddrPortFrom(hostile.PodIP(3), 40000), netip.AddrPortFrom(hostile.PodIP(2), flowPort))
	w.check(err)
	t.Cleanup(w.flow.close)
	w.start()
	t.Cleanup(func() { w.stop() })
	w.objects = append(append(append(world, many...), victimPolicy(w.port)), objects...)
	w.firstSync()
	w.settle()
	return w
}

// prefer prefers VPP's threads: what else runs here is not the question.
func (w *loaded) prefer() { w.check(w.l.prefer()) }

func (l *lab) prefer() error {
	pid := l.cmd.Process.Pid
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, -15) // the test runs without, too
		}
	}
	return err
}

func (w *loaded) firstSync() {
	w.emit(w.objects...)
	w.events <- &event.SyncStatus{Source: source, Status: event.InSync}
}

func (w *loaded) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *loaded) start() {
	cfg := agent.Config{
		NodeName: "node-1", VPPAgent: vppagent.Config{Journal: filepath.Join(w.l.dir, "journal")}, Sources: map[string]agent.Source{source: w.events}, Override: cni.Located(),
		VPP: vpp.Config{Dial: func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", w.l.socket())
		}},
		NATTable: nattable.Config{Every: time.Second, Counter: stats.Reader{Socket: filepath.Join(w.l.dir, "stats.sock")}},
		Limits:   budget.Defaults().Within(1 << 30), Process: config.Process{OnCommitted: func(c *event.Committed) { w.committed <- c }}, Lock: w.l.dir,
	}
	a, err := agent.New(cfg)
	w.check(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = a.Run(ctx) }()
	w.stop = func() { cancel(); <-ended }
	w.status = a.Status
}

func (w *loaded) emit(list ...event.Change) { w.events <- &event.Update{Source: source, Changes: list} }

// settle waits until the agent is in sync and has had nothing to do for a while. The first of the two matters on a busy machine: there, after an
// agent's start, the while can pass between the transaction that closes all pods and the next one.
func (w *loaded) settle() {
	w.t.Helper()
	limit := time.After(2 * time.Minute)
	quiet := 3 * time.Second
	for left := false; ; {
		select {
		case c := <-w.committed:
			if c.Err != nil {
				w.t.Fatal(c.Err)
			}
			left = len(c.Left) > 0
			quiet = 700 * time.Millisecond
		case <-time.After(quiet):
			if left {
				continue
			}
			if st, err := w.status(w.t.Context()); err == nil && st.InSync && st.Ready { // an error: the loop is busy
				return
			}
		case <-limit:
			w.t.Fatal("the agent does not come to rest")
		}
	}
}

// victim changes the victim's policy, and returns the time until the first datagram to the new port arrives.
func (w *loaded) victim() time.Duration {
	w.t.Helper()
	w.port++
	d, err := openDelays(w.l, "pod-victim/client", "pod-victim/server", netip.AddrPortFrom(hostile.PodIP(3), w.port), netip.AddrPortFrom(hostile.PodIP(2), w.port))
	w.check(err)
	defer d.close()
	began := time.Now()
	w.emit(victimPolicy(w.port))
	for end := began.Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		d.mu.Lock()
		for i, took := range d.took {
			if took > 0 {
				at := time.Duration(d.sent[i] + took - began.UnixNano())
				d.mu.Unlock()
				return at
			}
		}
		d.mu.Unlock()
	}
	w.t.Fatal("the victim's change is not in force after 30 s")
	return 0
}
