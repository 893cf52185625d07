package replayed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/recorder"
	"github.com/contiv-agent/contiv-agent/recorder/segment"
	"github.com/contiv-agent/contiv-agent/replay"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

const nodeName = "node-1"

// script is a source of objects, and another program, whose events the test sends.
type script struct {
	name  string
	send  chan event.Event
	first []event.Event
}

func (s *script) String() string { return s.name }

// Run implements agent.Source and controller.ExternalConfigSource.
func (s *script) Run(ctx context.Context, emit func(event.Event)) error {
	for _, ev := range s.first {
		emit(ev)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev := <-s.send:
			emit(ev)
		}
	}
}

// node is a node with an embedded VPP, and an agent that is stopped and started.
type node struct {
	t      *testing.T
	world  *generate.World
	random *rand.Rand
	vpp    *sim.VPP
	cni    *cni.CNI
	dir    string
	// remember is the file in which agents remember what they made in VPP.
	remember string
	bound    int64
	objects  script
	values   script
	routes   map[string]proto.Message
	markers  int
	stop     func()
}

func newNode(t *testing.T, seed uint64) *node {
	n := &node{
		t: t, world: generate.NewWorld(seed, generate.AllKinds()), random: rand.New(rand.NewPCG(seed, 1)), vpp: sim.New(sim.Config{Seed: 1, PuntLocal: true}),
		dir: t.TempDir(), remember: filepath.Join(t.TempDir(), "made"), routes: map[string]proto.Message{}, bound: recorder.DefaultBound,
	}
	if n.random.IntN(2) == 0 {
		n.bound = 4 * segment.MinBound
	}
	t.Cleanup(n.vpp.Close)
	n.cni = cni.New(n.vpp, nodeName)
	n.objects, n.values = script{name: "kube", send: make(chan event.Event)}, script{name: "etcd", send: make(chan event.Event)}
	return n
}

func (n *node) heard(changes []generate.Change) []event.Change {
	out, err := hear.All(changes)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// start starts an agent on the VPP, with the same folder.
func (n *node) start() {
	n.t.Helper()
	var all []generate.Change
	for _, o := range n.world.Objects() {
		all = append(all, generate.Change{Key: policy.KeyOf(o), Object: o})
	}
	n.objects.first = []event.Event{
		&event.SyncStatus{Source: "kube", Status: event.ResyncInProgress},
		&event.Update{Source: "kube", Changes: n.heard(all)}, &event.SyncStatus{Source: "kube", Status: event.InSync},
	}
	n.values.first = []event.Event{event.ExternalConfigResync("etcd", maps.Clone(n.routes))}
	cfg := agent.Config{NodeName: nodeName, Override: cni.Located(), Sources: map[string]agent.Source{"kube": n.cni.Before(&n.objects, func(err error) { n.t.Error(err) })}}
	cfg.VPPAgent.Journal = n.remember // routes have no tag in VPP
	cfg.VPP.Dial, cfg.External = n.vpp.Dial, []controller.ExternalConfigSource{&n.values}
	var err error
	cfg.Process.Recorder, err = recorder.New(recorder.Config{Dir: n.dir, Bound: n.bound, Node: nodeName, Sources: cfg.SourceNames()})
	if err != nil {
		n.t.Fatal(err)
	}
	a, err := agent.New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	n.stop = func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			n.t.Error(err)
		}
	}
}

// step changes something: objects, or values of the other program.
func (n *node) step() {
	if n.random.IntN(4) > 0 {
		n.objects.send <- &event.Update{Source: "kube", Changes: n.heard(n.world.Step())}
		return
	}
	route := &l3.Route{DstNetwork: fmt.Sprintf("172.20.%d.0/24", n.random.IntN(4)), OutgoingInterface: "uplink", Weight: n.random.Uint32N(2) + 1}
	n.putRoute(route, n.random.IntN(3) > 0)
}

func (n *node) putRoute(route *l3.Route, wanted bool) {
	key := kv.Key(route)
	change := map[string]proto.Message{key: nil}
	if delete(n.routes, key); wanted {
		n.routes[key], change[key] = route, route
	}
	n.values.send <- event.ExternalConfigChange("etcd", change)
}

// copied returns a copy of the folder as a kill between two lines would leave it at a moment after everything was sent. A route marks that moment.
func (n *node) copied() string {
	n.t.Helper()
	n.markers++
	// The objects' source has no event behind this one: the agent takes it before the marker.
	n.objects.send <- &event.SyncStatus{Source: "kube", Status: event.InSync, Note: fmt.Sprint(n.markers)}
	marker := fmt.Sprintf("172.21.%d.0/24", n.markers)
	n.putRoute(&l3.Route{DstNetwork: marker, OutgoingInterface: "uplink"}, true)
	deadline := time.Now().Add(time.Minute)
	for ; time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		dir := n.t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(n.dir)); errors.Is(err, fs.ErrNotExist) {
			continue // the recorder has removed the oldest file
		} else if err != nil {
			n.t.Fatal(err)
		}
		if journalHas(n.t, dir, marker, fmt.Sprint(n.markers)) && strings.Contains(n.vpp.Dump(), marker) {
			return dir
		}
	}
	n.t.Fatal("the marker is not recorded")
	return ""
}

// journalHas reports whether a folder has the route and the note of a marker, and nothing else than whole lines.
func journalHas(t *testing.T, dir, route, note string) bool {
	t.Helper()
	hasRoute, hasNote, whole := false, false, true
	err := segment.Read(dir, func(it *segment.Item) error {
		whole = whole && it.Problem == "" // the copy may have a part of the last line
		switch ev := it.Event.(type) {
		case *event.External:
			hasRoute = hasRoute || strings.Contains(string(it.Body), route)
		case *event.SyncStatus:
			hasNote = hasNote || ev.Note == note
		}
		return nil
	})
	if err != nil && !errors.Is(err, segment.ErrNone) { // a copy may be older than the recorder's first file
		t.Fatal(err)
	}
	return hasRoute && hasNote && whole
}

// compareAtRest compares the VPP's state with a replayed one. The agent looks for interfaces once per second, so the VPP may need some time.
func (n *node) compareAtRest(replayed string) (diff string) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if n.vpp.Dump() == replayed {
			return ""
		}
	}
	return cmp.Diff(strings.Split(n.vpp.Dump(), "\n"), strings.Split(replayed, "\n"))
}

// replayed returns the state of the VPP of a replay.
func replayed(t *testing.T, dir string) (state string, timeline *replay.Timeline) {
	t.Helper()
	timeline, err := replay.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := replay.NewPlayer(t.Context(), timeline.Node, agent.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i := range timeline.Steps {
		if _, err := p.PlayStep(t.Context(), &timeline.Steps[i]); err != nil {
			t.Fatal(err)
		}
	}
	return p.VPP.Dump(), timeline
}

// TestReplayIsTheRecordedState: agents on random clusters with changes, values of another program, restarts and changes meanwhile, and small
// bounds. Whenever an agent is killed, the journal replays to the state that its VPP then has.
func TestReplayIsTheRecordedState(t *testing.T) {
	pace.NotRaced(t)
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	var compared, files, restarts atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](6, 2)); seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, seed)
				n.start()
				for range 1 + n.random.IntN(3) {
					for range n.random.IntN(25) {
						n.step()
					}
					files.Add(n.compareReplay())
					compared.Add(1)
					if n.random.IntN(2) == 0 {
						n.restart()
						restarts.Add(1)
					}
				}
				n.stop()
			})
		}
	})
	t.Logf("%d states compared, in %d files, %d restarts", compared.Load(), files.Load(), restarts.Load())
	if compared.Load() == 0 || restarts.Load() == 0 || files.Load() <= compared.Load()+restarts.Load() {
		t.Error("too little was compared")
	}
}

// restart ends the agent and starts another one on the same VPP, which meets changes.
func (n *node) restart() {
	n.stop()
	for range n.random.IntN(4) {
		if err := n.cni.Apply(n.heard(n.world.Step())); err != nil {
			n.t.Fatal(err)
		}
	}
	n.start()
}

// compareReplay plays a copy of the journal, and returns the number of its files.
func (n *node) compareReplay() (files int64) {
	n.t.Helper()
	dir := n.copied()
	got, timeline := replayed(n.t, dir)
	if d := n.compareAtRest(got); d != "" {
		n.t.Fatalf("the replayed VPP differs (-recorded +replayed):\n%s", d)
	}
	if len(timeline.Remarks) > 0 {
		n.t.Errorf("remarks: %q", timeline.Remarks)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		n.t.Fatal(err)
	}
	return int64(len(paths))
}

// TestDamageEndsWithTheNextFile: a record in the first file is damaged. The replay says so, and ends in the recorded state.
func TestDamageEndsWithTheNextFile(t *testing.T) {
	n := newNode(t, 3)
	n.bound = 8 * segment.MinBound
	n.start()
	defer n.stop()
	second := filepath.Join(n.dir, "00000002.journal")
	for _, err := os.Stat(second); err != nil; _, err = os.Stat(second) {
		n.step()
	}
	dir := n.copied()
	path := filepath.Join(dir, "00000001.journal")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	damaged := ""
	for i, line := range lines {
		if strings.Contains(line, `+ "object `) && i > len(lines)/2 {
			damaged, lines[i] = line, line[:len(line)/2]+"?"+line[len(line)/2+1:]
			break
		}
	}
	if damaged == "" {
		t.Fatal("no object is recorded")
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	got, timeline := replayed(t, dir)
	if d := n.compareAtRest(got); d != "" {
		t.Errorf("the replayed VPP differs (-recorded +replayed):\n%s", d)
	}
	if len(timeline.Remarks) != 1 || !strings.Contains(timeline.Remarks[0], "the checksum differs") {
		t.Errorf("remarks %q", timeline.Remarks)
	}
}
