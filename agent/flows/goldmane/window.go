package goldmane

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/proto/calico/goldmane"
)

// Times of Felix and Goldmane.
const (
	windowLength = 15 * time.Second // of a flow, and of Goldmane's memory
	keepFor      = 5 * time.Minute  // a flow is sent again after a reconnection
)

// mostKept is how many flows are kept for a reconnection. The oldest are dropped, and counted.
const mostKept = 20000

// windows adds up what flows have grown by in each window. One goroutine owns it.
type windows struct {
	most   int           // flows that the agent keeps
	known  map[any]known // what each flow had at the last call of grow
	start  time.Time     // of the open window; zero: none is open
	closed time.Time     // the end of the latest closed window
	open   map[string]*goldmane.Flow
	recent []*goldmane.Flow // of closed windows, the oldest first
	unsent int              // the last ones of recent
	lost   uint64           // flows that had no room, and changes that had none in the agent's memory
}

type known struct {
	number uint64 // of its latest change
	first  time.Time
	flows.Counts
}

func newWindows(most int) *windows {
	return &windows{most: most, known: map[any]known{}, open: map[string]*goldmane.Flow{}}
}

// grow adds what the flows of an answer have grown by since the answer before.
func (w *windows) grow(a *agentflows.Answer) {
	w.lost += a.Lost
	for i := range a.Flows {
		f := &a.Flows[i]
		id := f.Identity()
		was := w.known[id]
		w.known[id] = known{f.Number, f.First, f.Counts}
		if !was.first.Equal(f.First) { // the agent forgot it meanwhile, and it began again
			was = known{}
		}
		w.closeWindow(f.Last)
		w.addObservation(f, flows.Counts{Connections: f.Connections - was.Connections, Packets: f.Packets - was.Packets, Bytes: f.Bytes - was.Bytes})
	}
	w.forgetOld()
}

// forgetOld drops what is known of flows that the agent has forgotten, if it is much: the agent keeps the flows with the latest changes.
func (w *windows) forgetOld() {
	if len(w.known) <= 2*w.most {
		return
	}
	numbers := make([]uint64, 0, len(w.known))
	for _, k := range w.known {
		numbers = append(numbers, k.number)
	}
	slices.Sort(numbers)
	oldest := numbers[len(numbers)-w.most]
	maps.DeleteFunc(w.known, func(_ any, k known) bool { return k.number < oldest })
}

// closeWindow closes the open window if a time is after it, and drops flows that are too old to be sent again.
func (w *windows) closeWindow(now time.Time) {
	if w.start.IsZero() || now.Before(w.start.Add(windowLength)) {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(w.open)) {
		w.recent = append(w.recent, w.open[key])
	}
	w.unsent += len(w.open)
	clear(w.open)
	w.start, w.closed = time.Time{}, w.start.Add(windowLength)
	oldest := now.Add(-keepFor).Unix()
	gone := 0
	for gone < len(w.recent) && (w.recent[gone].EndTime <= oldest || len(w.recent)-gone > mostKept) {
		gone++
	}
	w.recent = slices.Delete(w.recent, 0, gone)
	if over := w.unsent - len(w.recent); over > 0 {
		w.lost += uint64(over)
		w.unsent = len(w.recent)
	}
}

// addObservation adds an observation to the open window, which it opens.
func (w *windows) addObservation(f *flows.Flow, by flows.Counts) {
	key, ok := keyOf(f)
	if !ok {
		return
	}
	if w.start.IsZero() {
		w.start = f.Last.Truncate(windowLength)
		if w.start.Before(w.closed) { // Goldmane takes a second flow of a window for a repetition
			w.start = w.closed
		}
	}
	id, err := proto.MarshalOptions{Deterministic: true}.Marshal(key)
	if err != nil { // a text of an object is not UTF-8: Goldmane would refuse it
		w.lost++
		return
	}
	g := w.open[string(id)]
	if g == nil {
		g = &goldmane.Flow{
			Key: key, StartTime: w.start.Unix(), EndTime: w.start.Add(windowLength).Unix(),
			SourceLabels: labelsOf(f.Source.Labels), DestLabels: labelsOf(f.Destination.Labels),
		}
		w.open[string(id)] = g
	}
	g.SourceLabels, g.DestLabels = common(g.SourceLabels, labelsOf(f.Source.Labels)), common(g.DestLabels, labelsOf(f.Destination.Labels))
	if key.Reporter == goldmane.Reporter_SRC {
		g.PacketsOut += int64(by.Packets)
		g.BytesOut += int64(by.Bytes)
	} else {
		g.PacketsIn += int64(by.Packets)
		g.BytesIn += int64(by.Bytes)
	}
	if !isRepeated(f) {
		g.NumConnectionsStarted += int64(by.Connections)
	}
}

// isRepeated reports whether sessions of access lists have the same connections: NAT changed the source alone.
func isRepeated(f *flows.Flow) bool {
	t := f.Translation
	return f.SeenBy == agentflows.ByNAT && f.Direction != "" && t.Dialled.Addr() == f.Destination.Address && t.Dialled.Port() == f.Port
}

// common returns the labels that both have.
func common(a, b []string) []string {
	return slices.DeleteFunc(a, func(label string) bool { return !slices.Contains(b, label) })
}

// next returns the next flow to send; nil: none.
func (w *windows) next() *goldmane.Flow {
	if w.unsent == 0 {
		return nil
	}
	return w.recent[len(w.recent)-w.unsent]
}

// sent notes that the next flow was sent.
func (w *windows) sent() { w.unsent-- }

// again makes all kept flows unsent, for a new connection.
func (w *windows) again() { w.unsent = len(w.recent) }
