package recorder_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/recorder"
	"github.com/contiv-agent/contiv-agent/recorder/segment"
	"github.com/contiv-agent/contiv-agent/test/samples"
)

func put(source, name, label string) *event.Update {
	o := &model.Namespace{Name: name, Labels: map[string]string{"a": label}}
	return &event.Update{Source: source, Changes: []event.Change{{Ref: o.Ref(), Object: o}}}
}

// journal is what a folder has.
type journal struct {
	labels          map[string]string // by namespace
	values          map[string]bool   // keys of values of other programs
	synced          bool
	merged, dropped int
	outcomes        int
	messages        []string
	problems        []string
}

func journalOf(t *testing.T, dir string) journal {
	t.Helper()
	j := journal{labels: map[string]string{}, values: map[string]bool{}}
	err := segment.Read(dir, func(it *segment.Item) error {
		if it.Problem != "" {
			j.problems = append(j.problems, it.Problem)
		}
		if it.Gap != nil {
			j.merged, j.dropped = j.merged+it.Gap.Merged, j.dropped+it.Gap.Dropped
		}
		if it.Outcome != nil {
			j.outcomes++
			for _, m := range it.Outcome.Messages {
				j.messages = append(j.messages, fmt.Sprint(m.Name, " ", m.Count, " ", m.Failed, " ", m.Error))
			}
		}
		switch ev := it.Event.(type) {
		case *event.Update:
			ch := ev.Changes[0]
			if delete(j.labels, ch.Ref.Name); ch.Object != nil {
				j.labels[ch.Ref.Name] = ch.Object.(*model.Namespace).Labels["a"]
			}
		case *event.SyncStatus:
			j.synced = ev.Status == event.InSync
		case *event.External:
			if ev.Resync {
				clear(j.values)
			}
			for key, m := range ev.Values {
				if delete(j.values, key); m != nil {
					j.values[key] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func newRecorder(t *testing.T, dir string) *recorder.Recorder {
	t.Helper()
	r, err := recorder.New(recorder.Config{Dir: dir, Bound: 1 << 20, Node: "node-1", Sources: []string{"kube"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// runFor runs a recorder while do runs, and until everything is written.
func runFor(t *testing.T, r *recorder.Recorder, do func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	do()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func recordsWith(t *testing.T, r *recorder.Recorder, result string) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := r.Register(reg); err != nil {
		t.Fatal(err)
	}
	return samples.Read(t, reg)[`contiv_recorder_records_total{result="`+result+`"}`]
}

// TestTheLoopNeverWaits: nothing writes for 5,000 events. Then the journal has the last version of each object, and says how many events are
// merged.
func TestTheLoopNeverWaits(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir)
	want := map[string]string{}
	values := map[string]bool{}
	route := func(i int) (string, proto.Message) {
		m := &l3.Route{DstNetwork: fmt.Sprintf("10.%d.%d.0/24", 1+i/256, i%256), NextHopAddr: "192.168.16.2"}
		return kv.Key(m), m
	}
	for i := range 5000 {
		name, label := fmt.Sprint("ns-", i%70), fmt.Sprint(i)
		switch ev := put("kube", name, label); {
		case i%5 == 4:
			ev.Changes[0].Object = nil
			delete(want, name)
			r.Observe(ev)
		case i%7 == 3:
			key, m := route(i)
			if delete(values, key); i%2 == 0 {
				m = nil
			} else {
				values[key] = true
			}
			r.Observe(event.ExternalConfigChange("etcd", map[string]proto.Message{key: m}))
		case i == 3000:
			key, m := route(6000)
			values = map[string]bool{key: true}
			r.Observe(event.ExternalConfigResync("etcd", map[string]proto.Message{key: m}))
		case i%11 == 0:
			r.Observe(&event.Committed{Seq: uint64(i)})
		default:
			want[name] = label
			r.Observe(ev)
		}
	}
	r.Observe(&event.SyncStatus{Source: "kube", Status: event.InSync})
	merged, dropped := recordsWith(t, r, "merged"), recordsWith(t, r, "dropped")
	runFor(t, r, func() {
		for j := (journal{}); j.merged == 0; {
			r.Observe(&event.Tick{}) // as once per second
			if _, err := os.Stat(filepath.Join(dir, "00000001.journal")); err == nil {
				j = journalOf(t, dir)
			}
		}
	})
	j := journalOf(t, dir)
	if !maps.Equal(j.labels, want) || !maps.Equal(j.values, values) || !j.synced || len(j.problems) > 0 {
		t.Errorf("objects %v\nwant %v\nvalues %v\nwant %v\nin sync %t, problems %q", j.labels, want, j.values, values, j.synced, j.problems)
	}
	if float64(j.merged) != merged || float64(j.dropped) != dropped || merged < 3000 || dropped < 100 {
		t.Errorf("the journal names %d merged and %d dropped events, the metrics %v and %v", j.merged, j.dropped, merged, dropped)
	}
}

// TestWhatIsRecordedInTheEnd: the agent ends at once after its last event.
func TestWhatIsRecordedInTheEnd(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir)
	observe := r.CountRequests(func(string, time.Duration, error) {})
	for i := range 1000 { // more than one batch
		r.Observe(put("kube", fmt.Sprint("ns-", i), "x"))
	}
	observe("acl_add_replace", 0, nil)
	observe("acl_add_replace", 0, errors.New("refused"))
	r.Observe(&event.Committed{Seq: 1})
	r.Observe(&event.Committed{Seq: 2})
	runFor(t, r, func() {})
	j := journalOf(t, dir)
	if len(j.labels) != 1000 || j.outcomes != 2 || j.merged != 0 || fmt.Sprint(j.messages) != "[acl_add_replace 2 1 refused]" {
		t.Errorf("%d objects, %d outcomes, %d merged, messages %q", len(j.labels), j.outcomes, j.merged, j.messages)
	}
	if n := recordsWith(t, r, "written"); n != 1002 {
		t.Errorf("%v records", n)
	}
}

// TestAFolderThatCannotBeWritten: the agent runs, the status has the reason, and the journal is complete when the folder exists.
func TestAFolderThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file", "journal")
	if err := os.WriteFile(filepath.Dir(dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, dir)
		runFor(t, r, func() {
			r.Observe(put("kube", "a", "1"))
			synctest.Wait()
			if why := r.Problem(); !strings.Contains(why, "not a directory") {
				t.Errorf("problem %q", why)
			}
			if err := os.Remove(filepath.Dir(dir)); err != nil {
				t.Fatal(err)
			}
			r.Observe(put("kube", "b", "2"))
			<-time.After(time.Minute)
			synctest.Wait()
			if why := r.Problem(); why != "" {
				t.Errorf("problem %q", why)
			}
		})
		if j := journalOf(t, dir); len(j.labels) != 2 || recordsWith(t, r, "failed") != 1 {
			t.Errorf("%+v", j)
		}
	})
}

// TestObjectsThatDoNotFitEndTheJournal: it then drops everything, and says so.
func TestObjectsThatDoNotFitEndTheJournal(t *testing.T) {
	dir := t.TempDir()
	r, err := recorder.New(recorder.Config{Dir: dir, Bound: segment.MinBound, Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	runFor(t, r, func() {
		for i := range 500 {
			r.Observe(put("kube", fmt.Sprint("ns-", i), strings.Repeat("x", 1000)))
		}
	})
	written, dropped := recordsWith(t, r, "written"), recordsWith(t, r, "dropped")
	if written+dropped != 500 || written < 20 || !strings.Contains(r.Problem(), "do not fit") {
		t.Errorf("%v written, %v dropped, problem %q", written, dropped, r.Problem())
	}
	if _, err := recorder.New(recorder.Config{Dir: dir, Bound: 7}); err == nil {
		t.Error("a bound of 7 bytes")
	}
}

func TestNoRecorder(t *testing.T) {
	var r *recorder.Recorder
	r.Observe(&event.Tick{})
	seen := ""
	r.CountRequests(func(name string, _ time.Duration, _ error) { seen = name })("x", 0, nil)
	if err := errors.Join(r.Run(t.Context()), r.Register(prometheus.NewRegistry())); err != nil || r.Problem() != "" || seen != "x" {
		t.Error(err, r.Problem(), seen)
	}
}
