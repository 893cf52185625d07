package replay_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/recorder/record"
	"github.com/contiv-agent/contiv-agent/recorder/segment"
	"github.com/contiv-agent/contiv-agent/replay"
	"github.com/contiv-agent/contiv-agent/trace"
)

// journal writes events into a folder.
type journal struct {
	t   *testing.T
	dir string
	w   *segment.Writer
	now time.Time
}

func newJournal(t *testing.T) *journal {
	return &journal{t: t, dir: t.TempDir(), now: time.Date(2026, 11, 27, 7, 0, 0, 0, time.UTC)}
}

// start begins a file, as a new agent does.
func (j *journal) start(settings map[string]string) {
	j.t.Helper()
	j.stop()
	w, err := segment.Open(segment.Config{
		Dir: j.dir, Bound: segment.MinBound, Now: func() time.Time { return j.now },
		Header: record.Header{Node: "node-1", Version: "v1", Settings: settings, Sources: []string{"kube"}},
	})
	if err != nil {
		j.t.Fatal(err)
	}
	j.w = w
}

func (j *journal) stop() {
	if j.w != nil {
		_ = j.w.Close()
	}
}

// write records events, one per second.
func (j *journal) write(events ...event.Event) {
	j.t.Helper()
	for _, ev := range events {
		j.now = j.now.Add(time.Second)
		lines := record.Lines(ev)
		for i := range lines {
			lines[i].At = j.now
		}
		if _, err := j.w.Append(lines); err != nil {
			j.t.Fatal(err)
		}
	}
}

func (j *journal) put(objects ...model.Object) {
	j.t.Helper()
	for _, o := range objects {
		j.write(&event.Update{Source: "kube", Changes: []event.Change{{Ref: o.Ref(), Object: o}}})
	}
}

func (j *journal) remove(o model.Object) {
	j.t.Helper()
	j.write(&event.Update{Source: "kube", Changes: []event.Change{{Ref: o.Ref()}}})
}

func (j *journal) synced() {
	j.t.Helper()
	j.write(&event.SyncStatus{Source: "kube", Status: event.InSync})
}

// nextFile changes an object until the writer begins the second file, whose last record is the last change.
func (j *journal) nextFile() (first, second string) {
	j.t.Helper()
	first, second = filepath.Join(j.dir, "00000001.journal"), filepath.Join(j.dir, "00000002.journal")
	for i := 0; ; i++ {
		j.put(label(i))
		if _, err := os.Stat(second); err == nil {
			return first, second
		}
	}
}

func (j *journal) load() *replay.Timeline {
	j.t.Helper()
	t, err := replay.Load(j.dir)
	if err != nil {
		j.t.Fatal(err)
	}
	return t
}

// cluster is a node with two pods.
func cluster() []model.Object {
	out := []model.Object{
		&model.Node{Name: "node-1", InternalIPs: []netip.Addr{netip.MustParseAddr("192.168.16.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}},
		&model.Namespace{Name: "prod", Labels: map[string]string{"kubernetes.io/metadata.name": "prod"}},
	}
	for i, name := range []string{"client", "web"} {
		out = append(out, &model.Pod{
			ID: model.PodID{Namespace: "prod", Name: name}, NodeName: "node-1", IPs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.1.1.%d", i+2))},
			Labels: map[string]string{"app": name},
		})
	}
	return out
}

// isolate is a policy that allows nothing to the pods that its selector matches.
func isolate(name, selector string) *model.Policy {
	return &model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "prod", Name: name}, Namespace: "prod", Tier: model.TierDefault, Order: model.OrderKubernetes(),
		Selector: selector, Ingress: true,
	}
}

func label(i int) *model.Namespace {
	return &model.Namespace{Name: "other", Labels: map[string]string{"i": fmt.Sprint(i)}}
}

var packet = trace.Step{Question: trace.Question{From: "pod:prod/client", To: "pod:prod/web:80", Protocol: "TCP"}}

func bisect(t *testing.T, timeline *replay.Timeline, all bool) *replay.Found {
	t.Helper()
	found, err := replay.Bisect(t.Context(), timeline, agent.Config{}, packet, all)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestBisectFindsThePlantedChange plants one change at each place among changes that do not matter.
func TestBisectFindsThePlantedChange(t *testing.T) {
	const steps = 40
	for _, at := range []int{0, 1, 17, 38, 39} {
		j := newJournal(t)
		j.start(nil)
		j.put(cluster()...)
		j.put(isolate("web", "app == 'other'"))
		j.synced()
		planted := ""
		for i := range steps {
			if i != at {
				j.put(label(i))
				continue
			}
			j.put(isolate("web", "app == 'web'"))
			planted = j.now.Format(time.RFC3339Nano)
		}
		found := bisect(t, j.load(), false)
		if len(found.Turns) != 1 || found.Whole {
			t.Fatalf("planted at %d: found %+v", at, found)
		}
		turn := found.Turns[0]
		want := []string{"NetworkPolicy prod/web is changed", `  Selector: "app == 'other'" -> "app == 'web'"`}
		if turn.At != planted || !slices.Equal(turn.Changes, want) || turn.Before.Verdict != "delivered" || turn.After.Verdict != "dropped" ||
			!strings.Contains(turn.After.Reason, "NetworkPolicy prod/web isolates prod/web") {
			t.Errorf("planted at %d, %s: found %+v", at, planted, turn)
		}
		if found.Probes > 8 {
			t.Errorf("%d states asked for %d steps", found.Probes, steps)
		}
	}
}

// turnsOf shows the records as text.
func turnsOf(f *replay.Found) (out []string) {
	for _, t := range f.Turns {
		out = append(out, fmt.Sprintf("%s: %s -> %s", t.Text, t.Before.Verdict, t.After.Verdict))
	}
	return out
}

// TestBisectFindsAllChanges: the verdict changes and changes back.
func TestBisectFindsAllChanges(t *testing.T) {
	j := newJournal(t)
	j.start(nil)
	objects := cluster()
	web := objects[3].(*model.Pod)
	j.put(objects...)
	j.synced()
	j.put(label(1), isolate("web", "app == 'web'"), label(2))
	j.remove(isolate("web", ""))
	j.put(label(3))
	j.remove(web)
	j.put(label(4), web, isolate("web", "app == 'web'"))
	j.remove(isolate("web", ""))
	want := []string{
		"NetworkPolicy prod/web is added: delivered -> dropped", "NetworkPolicy prod/web is removed: dropped -> delivered",
		"Pod prod/web is removed: delivered -> not answerable", "Pod prod/web is added: not answerable -> delivered",
		"NetworkPolicy prod/web is added: delivered -> dropped", "NetworkPolicy prod/web is removed: dropped -> delivered",
	}
	for _, all := range []bool{false, true} { // both ends are equal, so it asks everywhere
		if found := bisect(t, j.load(), all); !slices.Equal(turnsOf(found), want) || !found.Whole {
			t.Errorf("all %t: found\n%s\nwant\n%s", all, strings.Join(turnsOf(found), "\n"), strings.Join(want, "\n"))
		}
	}
	quiet := newJournal(t)
	quiet.start(nil)
	quiet.put(objects...)
	quiet.synced()
	quiet.put(label(1), label(2))
	if found := bisect(t, quiet.load(), false); len(found.Turns) != 0 || found.Probes != 3 {
		t.Errorf("nothing changes the verdict: %+v", found)
	}
}

// texts are the steps that change something.
func texts(timeline *replay.Timeline) (out []string) {
	for _, s := range timeline.Steps {
		if len(s.Moves) > 0 {
			out = append(out, s.Text)
		}
	}
	return out
}

// TestARestartIsADifference: the next agent gets all objects again, without one that was removed meanwhile, and with one that was changed.
func TestARestartIsADifference(t *testing.T) {
	j := newJournal(t)
	j.start(nil)
	objects := cluster()
	j.put(objects...)
	j.put(isolate("gone", "all()"))
	route := func(weight uint32) *event.External {
		m := &l3.Route{DstNetwork: "172.20.0.0/24", OutgoingInterface: "uplink", Weight: weight}
		return event.ExternalConfigResync("etcd", map[string]proto.Message{kv.Key(m): m})
	}
	j.write(route(1), event.ExternalConfigResync(podnet.Name, nil))
	j.synced()
	j.put(label(1))
	j.start(map[string]string{"no-snat": "true"})
	j.put(objects[0], objects[2], objects[3], label(2), &model.Namespace{Name: "prod"})
	j.write(route(2))
	j.synced()
	j.put(label(2), label(3))
	timeline := j.load()
	want := []string{
		"the agent knows all objects: 6 changes", "Namespace other is added", "the agent knows all objects again: 4 changes", "Namespace other is changed",
	}
	if got := texts(timeline); !slices.Equal(got, want) {
		t.Errorf("steps\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if timeline.Settings["no-snat"] != "true" || len(timeline.Remarks) != 2 || !strings.Contains(timeline.Remarks[0], "started with other flags") {
		t.Errorf("settings %v, remarks %q", timeline.Settings, timeline.Remarks)
	}
	var moved []string
	for _, s := range timeline.Steps {
		if strings.Contains(s.Text, "again") {
			for i := range s.Moves {
				moved = append(moved, s.Moves[i].String())
			}
		}
	}
	if !slices.Equal(moved, []string{"Namespace other is changed", "Namespace prod is changed", "NetworkPolicy prod/gone is removed", "1 values of etcd"}) {
		t.Errorf("the restart: %q", moved)
	}
}

// TestPlayShowsWhatTheAgentDid plays values of another program and policies.
func TestPlayShowsWhatTheAgentDid(t *testing.T) {
	j := newJournal(t)
	j.start(nil)
	j.put(cluster()...)
	m := &l3.Route{DstNetwork: "172.20.0.0/24", OutgoingInterface: "uplink"}
	j.write(event.ExternalConfigResync("etcd", nil))
	j.synced()
	j.write(event.ExternalConfigChange("etcd", map[string]proto.Message{kv.Key(m): m}))
	j.write(&event.VPPStatus{Err: errors.New("gone")})
	j.put(isolate("web", "app == 'web'"))
	j.write(event.ExternalConfigChange("etcd", map[string]proto.Message{kv.Key(m): nil}))
	timeline := j.load()
	p, err := replay.NewPlayer(t.Context(), timeline.Node, agent.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var shown []string
	for i := range timeline.Steps {
		played, err := p.PlayStep(t.Context(), &timeline.Steps[i])
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, played.Text)
		shown = append(shown, played.Operations...)
		if strings.Contains(played.Text, "NetworkPolicy") && !slices.ContainsFunc(p.Values(), func(v string) bool { return strings.HasPrefix(v, kv.Key(m)+" ") }) {
			t.Errorf("values %q", p.Values())
		}
	}
	text := strings.Join(shown, "\n")
	for _, want := range []string{
		"the agent of node node-1 starts", "1 values of etcd\ncreate " + kv.Key(m), "VPP is not connected: gone\nNetworkPolicy prod/web is added\ncreate ",
		"1 values of etcd\ndelete " + kv.Key(m),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if st := p.Status(); len(st.Policies) != 1 || !st.InSync {
		t.Errorf("%+v", st)
	}
}

func TestUntil(t *testing.T) {
	j := newJournal(t)
	j.start(nil)
	j.put(cluster()...)
	j.synced()
	j.put(label(1))
	at := j.now
	j.put(label(2))
	timeline := j.load()
	last := timeline.Steps[len(timeline.Steps)-1].Record
	for got, want := range map[int]int{
		timeline.Until(0, at): len(timeline.Steps) - 1, timeline.Until(last-1, time.Time{}): len(timeline.Steps) - 1,
		timeline.Until(last, time.Time{}) + 100: len(timeline.Steps) + 100, timeline.Until(0, at.Add(-time.Hour)) + 200: 200,
	} {
		if got != want {
			t.Errorf("%d steps, want %d", got, want)
		}
	}
}

// TestAJournalThatEndsEarly: the agent was killed before it knew all objects.
func TestAJournalThatEndsEarly(t *testing.T) {
	j := newJournal(t)
	j.start(nil)
	j.put(cluster()[:3]...)
	timeline := j.load()
	if got := texts(timeline); !slices.Equal(got, []string{"the objects that were known at the end: 3 changes"}) || len(timeline.Remarks) != 1 {
		t.Errorf("steps %q, remarks %q", got, timeline.Remarks)
	}
	if _, err := replay.Load(filepath.Join(j.dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestARestartThatEndsEarly: the next agent was killed before it knew all objects. It had changed nothing in VPP.
func TestARestartThatEndsEarly(t *testing.T) {
	j := newJournal(t)
	j.start(nil)
	j.put(cluster()...)
	j.synced()
	want := texts(j.load())
	j.start(nil)
	for _, o := range cluster()[:2] {
		timeline := j.load()
		if got := texts(timeline); !slices.Equal(got, want) {
			t.Errorf("steps %q, want %q", got, want)
		}
		if len(timeline.Remarks) != 1 || !strings.HasPrefix(timeline.Remarks[0], "the journal ends before the agent knew all objects again") {
			t.Errorf("remarks %q", timeline.Remarks)
		}
		j.put(o)
	}
}

// TestAFileThatEndsInItsState: the agent was killed while it wrote the state at the beginning of a file. The files before it have that state.
func TestAFileThatEndsInItsState(t *testing.T) {
	j := newJournal(t)
	j.start(nil)
	j.put(cluster()...)
	j.synced()
	_, second := j.nextFile()
	j.stop()
	text, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	cut := func(size int) *replay.Timeline {
		if err := os.WriteFile(second, text[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		return j.load()
	}
	want := texts(cut(0))
	if last := want[len(want)-1]; last != "Namespace other is changed" {
		t.Fatalf("the first file ends with %q", last)
	}
	lines, size := slices.Collect(strings.Lines(string(text))), 0
	for _, line := range lines[:len(lines)-1] { // the last one is not a part of the state
		size += len(line)
		if timeline := cut(size); !slices.Equal(texts(timeline), want) || len(timeline.Remarks) > 0 {
			t.Errorf("after %d bytes of the file: steps %q, want %q; remarks %q", size, texts(timeline), want, timeline.Remarks)
		}
	}
	if got := texts(cut(len(text))); !slices.Equal(got, append(want, want[len(want)-1])) {
		t.Errorf("the whole file: steps %q", got)
	}
}

// TestADamagedRecordEndsWithTheNextFile: the policy is not known until then.
func TestADamagedRecordEndsWithTheNextFile(t *testing.T) {
	j := newJournal(t)
	j.start(nil)
	j.put(cluster()...)
	j.synced()
	j.put(isolate("web", "app == 'web'"))
	first, _ := j.nextFile()
	text, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first, []byte(strings.Replace(string(text), "app == 'web'", "app == 'xxx'", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	timeline := j.load()
	got := texts(timeline)
	if len(got) < 3 || got[0] != "the agent knows all objects: 4 changes" || !slices.Contains(got, "records are missing: the state that the next file begins with: 1 changes") {
		t.Errorf("steps %q", got)
	}
	if len(timeline.Remarks) != 1 || !strings.Contains(timeline.Remarks[0], "the checksum differs") {
		t.Errorf("remarks %q", timeline.Remarks)
	}
}
