package realvpp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/boltstore"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/ipam"
	"github.com/contiv-agent/contiv-agent/test/oracle"
)

// killed is a node on which the plugin, the agent and VPP are killed while a runtime starts and ends pods. Pods called w… may talk with friend
// alone, in both directions; denied and they send to each other all the time.
type killed struct {
	*podCluster
	n              *podNode
	random         *rand.Rand
	begin          time.Time
	story          []string
	next           int // number of the next pod
	list           map[string]any
	friend, denied *speaker
	far            *speaker     // on another node
	last           atomic.Int64 // last byte of the latest pod's address
	before         string       // what is left of nothing
	broken         sync.Map     // forbidden packets that arrived
	kills, calls   map[string]int
	took           map[string]time.Duration // by verb: a call without a fault
	calm           bool                     // no call has a fault by chance
	enters         func(*netns)             // of the next pod
	kinds          []string                 // of the pods' interfaces, in turn; "": the agent's
	mend           func()                   // what an administrator does before pods talk
	also           func() error             // what must be true besides when nothing is left
}

func (k *killed) note(format string, args ...any) {
	k.story = append(k.story, time.Since(k.begin).Round(time.Millisecond).String()+" "+fmt.Sprintf(format, args...))
}

// speaker is a pod whose program runs before the pod is attached: it answers, and counts packets that policies forbid.
type speaker struct {
	name   string
	ns     *netns
	conn   net.PacketConn
	ended  sync.WaitGroup
	stop   chan struct{}
	heard  chan string
	result *protocol.Result
	output json.RawMessage // of the ADD
}

const talkPort = 9999

// talk starts the program of a pod. It sends its name to all addresses that to returns.
func (k *killed) talk(name string, ns *netns, forbids func(from string) bool, to func() []netip.Addr) *speaker {
	k.t.Helper()
	p := &speaker{name: name, ns: ns, stop: make(chan struct{}), heard: make(chan string, 100)}
	var err error
	ns.do(func() { p.conn, err = net.ListenPacket("udp", fmt.Sprint(":", talkPort)) })
	k.check(err)
	p.ended.Go(func() {
		buf := make([]byte, 100)
		for {
			n, from, err := p.conn.ReadFrom(buf)
			if err != nil {
				return
			}
			who, question := strings.CutSuffix(string(buf[:n]), "?")
			if forbids(who) {
				k.broken.Store(fmt.Sprintf("%s heard %s (%s) after %s", name, who, from, time.Since(k.begin).Round(time.Millisecond)), true)
			}
			if question {
				_, _ = p.conn.WriteTo([]byte(name), from) // the link may be gone
			} else {
				select {
				case p.heard <- who:
				default:
				}
			}
		}
	})
	p.ended.Go(func() {
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
			}
			for _, a := range to() {
				_ = p.send(name, a) // the link may not exist yet
			}
		}
	})
	return p
}

func (p *speaker) send(text string, to netip.Addr) error {
	_, err := p.conn.WriteTo([]byte(text), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, talkPort)))
	return err
}

func (p *speaker) close() {
	close(p.stop)
	_ = p.conn.Close() // both loops end
	p.ended.Wait()
	p.ns.close()
}

// asks sends a question again and again until the answer arrives.
func (k *killed) asks(from, to *speaker) {
	k.t.Helper()
	for _, ip := range to.result.IPs {
		k.until(fmt.Sprintf("%s reaches %s at %s\n%s", from.name, to.name, ip.Address, strings.Join(k.story, "\n")), func() error {
			for len(from.heard) > 0 {
				<-from.heard
			}
			err := from.send(from.name+"?", ip.Address.Addr())
			if err != nil {
				return err
			}
			select {
			case who := <-from.heard:
				if who != to.name {
					return fmt.Errorf("%s answers", who)
				}
				return nil
			case <-time.After(300 * time.Millisecond):
				return errors.New("no answer")
			}
		})
	}
}

// fault happens while a process of the plugin runs, and returns when agent and VPP run again.
type fault func(plugin *exec.Cmd) error

// call is one process of the plugin, with one fault; nil: without one. It returns the output of an ADD.
func (k *killed) call(verb, name string, ns *netns, during fault) ([]byte, error) {
	k.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := k.runtime(k.n, verb, name, name, ns, k.asking(name))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	k.check(cmd.Start())
	var failed error
	var busy sync.WaitGroup
	if during != nil {
		busy.Go(func() { failed = during(cmd) })
	}
	err := cmd.Wait()
	took := time.Since(began)
	busy.Wait()
	k.check(failed)
	if during == nil {
		k.took[verb] = took
	}
	k.calls[verb]++
	k.note("%s %s: %v %s", verb, name, err, strings.Join(strings.Fields(stdout.String()+stderr.String()), " "))
	return stdout.Bytes(), err
}

// asking is the configuration with the annotation of a pod called w…, whose number chooses the kind of its interface.
func (k *killed) asking(pod string) map[string]any {
	list := maps.Clone(k.list)
	if kind := k.kindOf(pod); kind != "" {
		list["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{protocol.AnnotationInterface: kind}}
	}
	return list
}

func (k *killed) kindOf(pod string) string {
	number, is := strings.CutPrefix(pod, "w")
	n, err := strconv.Atoi(number)
	if !is || err != nil || len(k.kinds) == 0 {
		return ""
	}
	return k.kinds[n%len(k.kinds)]
}

// chance is a fault in three of four cases: mostly while a call of this kind runs, sometimes afterwards.
func (k *killed) chance(verb string) fault {
	if k.calm || k.random.IntN(4) == 0 {
		return nil
	}
	limit := max(k.took[verb], 10*time.Millisecond)
	if k.random.IntN(4) == 0 {
		limit += 100 * time.Millisecond
	}
	delay, what := time.Duration(k.random.Int64N(int64(limit))), []string{"plugin", "agent", "VPP", "agent and plugin", "agent and VPP"}[k.random.IntN(5)]
	again := time.Duration(k.random.Int64N(int64(100 * time.Millisecond)))
	k.note("  %s is killed after %s, for %s", what, delay, again)
	k.kills[what]++
	return func(plugin *exec.Cmd) error {
		wait(k.t.Context(), delay)
		return k.kill(plugin, what, again, func() {})
	}
}

// kill ends processes by SIGKILL, and starts agent and VPP again after a while. It calls dead between the two.
func (k *killed) kill(plugin *exec.Cmd, what string, again time.Duration, dead func()) (err error) {
	if strings.Contains(what, "plugin") {
		_ = plugin.Process.Kill() // it may have ended
	}
	if strings.Contains(what, "agent") {
		k.n.stopAgent()
	}
	if strings.Contains(what, "VPP") {
		k.n.process.kill()
	}
	dead()
	wait(k.t.Context(), again)
	if strings.Contains(what, "VPP") {
		err = k.n.start()
	}
	if strings.Contains(what, "agent") {
		err = errors.Join(err, k.runAgent(k.n))
	}
	return err
}

// connect is a runtime that starts a pod, and takes a refused ADD back; nil: it was refused.
func (k *killed) connect(name, app string, during fault, forbids func(string) bool, to func() []netip.Addr) *speaker {
	k.t.Helper()
	ns, err := newNetns()
	k.check(err)
	k.enters(ns)
	k.object(k.n, name, app, "phase: Pending")
	p := k.talk(name, ns, forbids, to)
	out, err := k.call("ADD", name, ns, during)
	if err != nil {
		k.remove(p)
		return nil
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	k.check(json.Unmarshal(out, &result))
	p.result, p.output = &protocol.Result{}, out
	for _, ip := range result.IPs {
		p.result.IPs = append(p.result.IPs, protocol.IP{Address: ip.Address})
	}
	if len(p.result.IPs) != 2 {
		k.t.Fatalf("the result of %s: %s", name, out)
	}
	k.object(k.n, name, app, fmt.Sprintf("phase: Running, podIPs: [{ip: \"%s\"}, {ip: \"%s\"}]", p.result.IPs[0].Address.Addr(), p.result.IPs[1].Address.Addr()))
	return p
}

// remove is a runtime that ends a pod: it repeats the DEL until it succeeds, and sends more without the namespace.
func (k *killed) remove(p *speaker) {
	k.t.Helper()
	for try := 0; ; try++ {
		var during fault
		if try < 3 {
			during = k.chance("DEL")
		}
		if _, err := k.call("DEL", p.name, p.ns, during); err == nil {
			break
		}
		if try > 20 {
			k.t.Fatalf("%sthe DEL never succeeds\n%s", k.tails(), strings.Join(k.story, "\n"))
		}
	}
	k.forget(p)
	for range k.random.IntN(3) {
		_, _ = k.call("DEL", p.name, nil, k.chance("DEL")) // of a sandbox that no longer exists
	}
}

// forget ends a pod's program, sandbox and object.
func (k *killed) forget(p *speaker) {
	k.t.Helper()
	p.close()
	k.removeManifest("pod-" + p.name + ".yaml")
}

// lose is a runtime that crashed: its DEL never arrives.
func (k *killed) lose(p *speaker) {
	k.note("the DEL of %s is lost", p.name)
	k.forget(p)
}

// collect is a runtime's GC, with the attachments that exist. The runtime repeats it until it succeeds; the first try may have a fault.
func (k *killed) collect(during fault, all ...*speaker) {
	k.t.Helper()
	var valid []any
	for _, p := range append(all, k.friend, k.denied) {
		valid = append(valid, map[string]string{"containerID": p.name, "ifname": "eth0"})
	}
	k.list["cni.dev/valid-attachments"] = valid
	defer delete(k.list, "cni.dev/valid-attachments")
	k.until("GC", func() error {
		_, err := k.call("GC", "", nil, during)
		during = nil
		return err
	})
}

func (k *killed) toDenied() (out []netip.Addr) {
	for _, ip := range k.denied.result.IPs {
		out = append(out, ip.Address.Addr())
	}
	return out
}

// near are the addresses around the last one that a pod got, and so those that the next pods get.
func (k *killed) near(last *atomic.Int64) (out []netip.Addr) {
	at := byte(last.Load()) // below 256
	a, six := netip.AddrFrom4([4]byte{10, 1, 1, at}), netip.MustParseAddr(fmt.Sprintf("2001:db8:1:1::%x", at))
	for range 6 {
		out = append(out, a, six)
		a, six = a.Next(), six.Next()
	}
	return out
}

// connectNext is connect of the next pod called w….
func (k *killed) connectNext(during fault) *speaker {
	k.t.Helper()
	k.next++
	p := k.connect(fmt.Sprint("w", k.next), "web", during, func(from string) bool { return from == "denied" }, k.toDenied)
	if p != nil {
		k.last.Store(int64(p.result.IPs[0].Address.Addr().As4()[3]))
	}
	return p
}

// other is a call, in some cases, that changes nothing: STATUS, CHECK of a pod that runs, or GC.
func (k *killed) other(running []*speaker) {
	k.t.Helper()
	switch n := k.random.IntN(6); {
	case n == 0:
		_, _ = k.call("STATUS", "", nil, k.chance("STATUS")) // the node may be unready
	case n == 1 && len(running) > 0:
		p := running[k.random.IntN(len(running))]
		k.list["prevResult"] = p.output
		_, _ = k.call("CHECK", p.name, p.ns, k.chance("CHECK")) // likewise
		delete(k.list, "prevResult")
	case n == 2:
		k.collect(k.chance("GC"), running...)
	}
}

// runSeed is the life of a few pods. In the end those that run talk, and after their end the node is as before.
func (k *killed) runSeed(seed uint64) {
	k.t.Helper()
	k.random, k.story, k.begin = rand.New(rand.NewPCG(seed, 24)), nil, time.Now()
	var running []*speaker
	for range 4 {
		k.other(running)
		var during fault
		if k.random.IntN(2) == 0 {
			during = k.chance("ADD")
		}
		if p := k.connectNext(during); p != nil {
			running = append(running, p)
		}
		if len(running) > 0 && k.random.IntN(2) == 0 {
			at := k.random.IntN(len(running))
			if p := running[at]; k.random.IntN(5) == 0 {
				k.lose(p)
			} else {
				k.remove(p)
			}
			running = slices.Delete(running, at, at+1)
		}
	}
	k.settle(append(running, k.oneOfEach()...))
	k.files(seed%8 == 0)
}

// oneOfEach starts a pod of each kind without a fault: on a busy machine kills leave a seed few pods, and perhaps none of a kind.
func (k *killed) oneOfEach() (out []*speaker) {
	k.t.Helper()
	k.calm = true
	defer func() { k.calm = false }()
	for range k.kinds {
		k.ready()
		if p := k.connectNext(nil); p != nil {
			out = append(out, p)
		} else {
			k.t.Errorf("a pod is refused without a fault:\n%s", strings.Join(k.story, "\n"))
		}
	}
	return out
}

// ready waits until the node serves.
func (k *killed) ready() {
	k.t.Helper()
	k.until("STATUS", func() error { return k.n.client().Status(k.t.Context()) })
}

// settle lets the pods that run talk, ends them, and fails unless the node is as before.
func (k *killed) settle(running []*speaker) {
	k.t.Helper()
	k.ready()
	k.mend()
	k.note("%d pods run", len(running))
	for _, p := range running {
		if k.kindOf(p.name) != protocol.InterfaceMemif { // no program is at the other end
			k.asks(k.friend, p)
		}
	}
	k.asks(k.friend, k.far)
	k.collect(nil, running...)
	for _, p := range running {
		_, err := k.call("DEL", p.name, p.ns, nil)
		k.check(err)
		k.forget(p)
	}
	now := ""
	k.until("nothing is left"+strings.Join(k.story, "\n"), func() error {
		if now = k.n.left(k.t); now != k.before {
			return fmt.Errorf("the node has\n%s\nand before had\n%s", now, k.before)
		}
		return k.also()
	})
	k.note("nothing is left")
	k.broken.Range(func(what, _ any) bool {
		k.t.Errorf("a forbidden packet arrived: %s\n%s", what, strings.Join(k.story, "\n"))
		return true
	})
}

// files fails unless the agent's files have friend and denied alone: copies of them, because the agent locks them. With a restart of the agent also
// no recorded DEL must be left.
func (k *killed) files(restart bool) {
	k.t.Helper()
	want := []string{"address of denied", "address of friend", "attachment of denied", "attachment of friend"}
	k.until("the agent's files\n"+strings.Join(k.story, "\n"), func() error {
		got, err := k.inFiles()
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("the agent's files have %q, want %q", got, want)
		}
		return err
	})
	if !restart {
		return
	}
	k.n.stopAgent()
	k.startAgent(k.n)
	k.ready()
	records, err := protocol.Spool{Dir: filepath.Join(k.n.dir, "cni")}.Read(time.Now())
	if k.check(err); len(records) > 0 {
		k.t.Errorf("recorded DELs are left after a start of the agent: %v", records)
	}
}

// inFiles are the attachments in copies of the agent's files.
func (k *killed) inFiles() (got []string, err error) {
	dir := k.t.TempDir()
	for _, name := range []string{"addresses.db", "attachments.db"} {
		text, err := os.ReadFile(filepath.Join(k.n.dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	pool, err := ipam.Open(time.Now(), ipam.Config{File: filepath.Join(dir, "addresses.db")})
	if err != nil {
		return nil, err
	}
	for _, a := range pool.Attachments() {
		got = append(got, "address of "+a.ContainerID)
	}
	file, err := boltstore.Open(filepath.Join(dir, "attachments.db"), boltstore.Schema{Buckets: []string{"attachments/v1"}})
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	err = file.Each("attachments/v1", func(container, _ string, _ []byte) error {
		got = append(got, "attachment of "+container)
		return nil
	})
	return got, errors.Join(err, file.Close(), pool.Close())
}

// TestVPPPodNetworkKilled kills the plugin, the agent and VPP by SIGKILL while a runtime starts and ends pods. CONTIV_VPP_KILLS is the number of
// seeds; unset: none, because a seed takes some seconds. CONTIV_VPP_SEED is the first seed.
func TestVPPPodNetworkKilled(t *testing.T) {
	first, cases := theSeeds(t)
	runSeeds(killNodes(openPodCluster(t, theVPP(t))), first, cases)
}

// theSeeds are the seeds to run; the test is skipped without any.
func theSeeds(t *testing.T) (first, cases uint64) {
	t.Helper()
	if cases, first = oracle.Setting(t, "CONTIV_VPP_KILLS", 0), oracle.Setting(t, "CONTIV_VPP_SEED", 1); cases == 0 {
		t.Skip("CONTIV_VPP_KILLS is not set: set it to a number of seeds")
	}
	return first, cases
}

func runSeeds(k *killed, first, cases uint64) {
	t := k.t
	t.Helper()
	for seed := first; seed < first+cases && !t.Failed(); seed++ {
		k.runSeed(seed)
		if t.Logf("seed %d: %s", seed, time.Since(k.begin).Round(time.Millisecond)); os.Getenv("CONTIV_VPP_TRACE") != "" {
			t.Log(strings.Join(k.story, "\n"))
		}
	}
	t.Logf("killed: %v, %d pods, calls: %v", k.kills, k.next, k.calls)
}

// killNodes starts friend and denied on the first node of a cluster, and far on the second.
func killNodes(c *podCluster) *killed {
	t := c.t
	k := &killed{podCluster: c, enters: func(*netns) {}, mend: func() {}, also: func() error { return nil }, kills: map[string]int{}, calls: map[string]int{}, took: map[string]time.Duration{}, random: rand.New(rand.NewPCG(0, 24)), begin: time.Now()}
	for _, n := range k.nodes {
		k.until("STATUS", func() error { return n.client().Status(t.Context()) })
	}
	k.write("policy.yaml", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: default}\nspec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}], egress: [{to: [{podSelector: {matchLabels: {app: friend}}}]}]}\n")
	k.last.Store(2)
	nobody, nowhere := func(string) bool { return false }, func() []netip.Addr { return nil }
	k.n = k.nodes[1]
	k.list = k.readList(k.n)
	k.far = k.connect("far", "far", nil, nobody, nowhere)
	k.n = k.nodes[0]
	k.list = k.readList(k.n)
	k.friend = k.connect("friend", "friend", nil, nobody, nowhere)
	k.denied = k.connect("denied", "denied", nil, func(from string) bool { return strings.HasPrefix(from, "w") }, func() []netip.Addr { return k.near(&k.last) })
	if k.friend == nil || k.denied == nil || k.far == nil {
		t.Fatalf("%sthe first pods are refused: %s", k.tails(), strings.Join(k.story, "\n"))
	}
	t.Cleanup(func() { k.friend.close(); k.denied.close(); k.far.close() })
	k.asks(k.friend, k.denied)
	k.asks(k.friend, k.far)
	k.before = k.n.left(t)
	return k
}
