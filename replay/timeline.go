package replay

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
	"github.com/contiv-agent/contiv-agent/recorder/record"
	"github.com/contiv-agent/contiv-agent/recorder/segment"
)

// Timeline is what a journal says, as steps that follow each other without a gap: a restart of the agent is the difference that it made.
type Timeline struct {
	Node     string
	Version  string            // of the program that recorded last
	Settings map[string]string // the flags of that agent
	Remarks  []string          // about the whole journal
	Steps    []Step            // the first is the first sync, or the state at the beginning
}

// Step is one record, or several that belong together.
type Step struct {
	Record uint64 // number; 0: damaged
	At     time.Time
	Text   string // what happened, in one line
	Moves  []Move // none: only Text
}

// Move is one changed object, or the changed values of one source. It has both sides, so that it can be undone.
type Move struct {
	Was, Is event.Change             // of an object
	Source  string                   // of values; "": the move is of an object
	Values  map[string]proto.Message // afterwards; nil: the key is removed
	Before  map[string]proto.Message // before
	Merge   map[string]event.Merge   // by key, afterwards
	Unmerge map[string]event.Merge   // by key, before
}

// isPresent reports whether a change puts something.
func isPresent(ch *event.Change) bool { return ch.Object != nil || ch.Err != nil }

// String is "NetworkPolicy prod/web is added".
func (m *Move) String() string {
	if m.Source != "" {
		return fmt.Sprintf("%d values of %s", len(m.Values), m.Source)
	}
	what := "is changed"
	switch was, is := isPresent(&m.Was), isPresent(&m.Is); {
	case !is:
		what = "is removed"
	case m.Is.Err != nil:
		what = "is refused: " + m.Is.Err.Error()
	case !was:
		what = "is added"
	}
	return m.Is.Ref.String() + " " + what
}

// entry is a value of another program.
type entry struct {
	message proto.Message
	merge   event.Merge
}

// world is the state that the records so far describe.
type world struct {
	objects   map[model.Ref]event.Change
	externals map[string]map[string]entry // source → key
}

func newWorld() *world {
	return &world{objects: map[model.Ref]event.Change{}, externals: map[string]map[string]entry{}}
}

// applyEvent changes the state.
func (w *world) applyEvent(ev event.Event) {
	switch ev := ev.(type) {
	case *event.Update:
		for _, ch := range ev.Changes {
			if isPresent(&ch) {
				w.objects[ch.Ref] = ch
			} else {
				delete(w.objects, ch.Ref)
			}
		}
	case *event.External:
		values := w.externals[ev.Source]
		if values == nil || ev.Resync {
			values = map[string]entry{}
			w.externals[ev.Source] = values
		}
		for key, m := range ev.Values {
			if values[key] = (entry{m, ev.Merge[key]}); m == nil {
				delete(values, key)
			}
		}
	}
}

// movesTo returns what differs in another state, in a fixed order. Only named objects and sources are compared; nil: all.
func (w *world) movesTo(other *world) (out []Move) {
	refs := slices.Collect(maps.Keys(other.objects))
	for ref := range w.objects {
		if _, both := other.objects[ref]; !both {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, model.Ref.Compare)
	for _, ref := range refs {
		if m, differs := objectMove(ref, w.objects[ref], other.objects[ref]); differs {
			out = append(out, m)
		}
	}
	sources := maps.Clone(other.externals)
	if sources == nil {
		sources = map[string]map[string]entry{}
	}
	for source := range w.externals {
		sources[source] = other.externals[source]
	}
	for _, source := range slices.Sorted(maps.Keys(sources)) {
		if m, differs := valuesMove(source, w.externals[source], other.externals[source]); differs {
			out = append(out, m)
		}
	}
	return out
}

func objectMove(ref model.Ref, was, is event.Change) (Move, bool) {
	was.Ref, is.Ref = ref, ref
	same := model.Equal(was.Object, is.Object) && errorText(was.Err) == errorText(is.Err)
	return Move{Was: was, Is: is}, !same
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func valuesMove(source string, was, is map[string]entry) (Move, bool) {
	m := Move{
		Source: source, Values: map[string]proto.Message{}, Before: map[string]proto.Message{},
		Merge: map[string]event.Merge{}, Unmerge: map[string]event.Merge{},
	}
	keys := maps.Clone(was)
	if keys == nil {
		keys = map[string]entry{}
	}
	maps.Copy(keys, is)
	for key := range keys {
		a, b := was[key], is[key]
		if kv.Equal(a.message, b.message) && a.merge.String() == b.merge.String() {
			continue
		}
		m.Values[key], m.Before[key] = b.message, a.message
		m.Merge[key], m.Unmerge[key] = b.merge, a.merge
	}
	return m, len(m.Values) > 0
}

// loader builds a Timeline from items.
type loader struct {
	Timeline
	now     *world          // as played so far
	next    *world          // as recorded; differs from now while a state is incomplete
	waits   map[string]bool // sources that are not in sync yet since the agent started; nil: the state is complete
	kept    int             // lines of the state that follow
	began   bool
	sources []string
	skipped map[string]bool
}

// errNoRecord means that a journal has no usable record.
var errNoRecord = errors.New("the journal has no record that can be read")

// Load reads a journal: a file, or a folder of them.
func Load(path string) (*Timeline, error) {
	l := loader{now: newWorld(), next: newWorld(), skipped: map[string]bool{}}
	if err := segment.Read(path, func(it *segment.Item) error { l.takeItem(it); return nil }); err != nil {
		return nil, err
	}
	l.endJournal()
	if len(l.Steps) == 0 {
		return nil, fmt.Errorf("%s: %w", path, errNoRecord)
	}
	for _, name := range slices.Sorted(maps.Keys(l.skipped)) {
		l.remark("values of " + name + " are not played: they belong to the node's interfaces, which the simulated VPP has under other names")
	}
	return &l.Timeline, nil
}

// endJournal ends the journal, perhaps in an incomplete state. An agent that starts again changes nothing in VPP until it knows all objects, and the state at the
// beginning of a file is that of the files before it: then the played state stays.
func (l *loader) endJournal() {
	switch incomplete := l.waits != nil || l.kept > 0; {
	case incomplete && !l.began:
		l.remark("the journal ends before the agent knew all objects")
		l.reach(0, time.Time{}, "the objects that were known at the end")
	case l.waits != nil:
		l.remark("the journal ends before the agent knew all objects again: until then it changes nothing in VPP")
	}
}

func (l *loader) remark(text string) { l.Remarks = append(l.Remarks, text) }

func (l *loader) takeItem(it *segment.Item) {
	if it.Problem != "" {
		l.Steps = append(l.Steps, Step{Text: it.Problem})
		l.remark(it.Problem)
	}
	switch {
	case it.Number == 0: // damaged
	case it.Header != nil:
		l.takeHeader(it)
		return
	case it.Gap != nil:
		l.Steps = append(l.Steps, Step{Record: it.Number, At: it.At, Text: gapText(it.Gap)})
	case it.Outcome != nil:
		l.Steps = append(l.Steps, Step{Record: it.Number, At: it.At, Text: outcomeText(it.Outcome)})
	default:
		l.takeEvent(it)
	}
	if l.kept > 0 {
		if l.kept--; l.kept == 0 && l.waits == nil {
			l.reachState(it)
		}
	}
}

// takeHeader begins a file. Its state replaces what the records before it said.
func (l *loader) takeHeader(it *segment.Item) {
	h := it.Header
	if l.Node != "" && l.Node != h.Node {
		l.remark(fmt.Sprintf("records of node %s follow those of node %s", h.Node, l.Node))
	}
	if l.Node != "" && h.Begins && !maps.Equal(l.Settings, h.Settings) {
		l.remark(fmt.Sprintf("record %d: the agent started with other flags; all records are played with those of the last start", it.Number))
	}
	l.Node, l.Version, l.Settings, l.sources = h.Node, h.Version, h.Settings, h.Sources
	l.next, l.kept = newWorld(), h.Kept
	if !h.Synced {
		l.waits = map[string]bool{}
		for _, name := range h.Sources {
			l.waits[name] = true
		}
	} else {
		l.waits = nil
	}
	if h.Begins {
		l.Steps = append(l.Steps, Step{Record: it.Number, At: it.At, Text: "the agent of node " + h.Node + " starts"})
	}
	if h.Synced && h.Kept == 0 {
		l.reachState(it)
	}
}

// reachState plays the state at the beginning of a file: everything in the first file, and nothing in others unless records are missing.
func (l *loader) reachState(it *segment.Item) {
	text := "records are missing: the state that the next file begins with"
	if !l.began {
		text = "the state that the journal begins with"
	}
	l.reach(it.Number, it.At, text)
}

// reach adds a step with everything that differs between the played and the recorded state.
func (l *loader) reach(number uint64, at time.Time, text string) {
	moves := l.now.movesTo(l.next)
	if len(moves) > 0 || !l.began {
		if len(moves) > 0 {
			text = fmt.Sprintf("%s: %d changes", text, len(moves))
		}
		l.Steps = append(l.Steps, Step{Record: number, At: at, Text: text, Moves: moves})
	}
	l.now = &world{objects: maps.Clone(l.next.objects), externals: map[string]map[string]entry{}}
	for source, values := range l.next.externals {
		l.now.externals[source] = maps.Clone(values)
	}
	l.began = true
}

func (l *loader) takeEvent(it *segment.Item) {
	if ext, ok := it.Event.(*event.External); ok && ext.Source == podnet.Name {
		l.skipped[podnet.Name] = true
		l.inSync(it, ext)
		return
	}
	for _, what := range it.Lacking {
		l.remark(fmt.Sprintf("record %d: %s", it.Number, what))
	}
	if l.kept == 0 && l.waits == nil {
		l.playEvent(it)
		return
	}
	if text := eventText(it.Event); text != "" && l.kept == 0 {
		l.Steps = append(l.Steps, Step{Record: it.Number, At: it.At, Text: text})
	}
	l.next.applyEvent(it.Event)
	l.inSync(it, it.Event)
}

// inSync ends the wait for sources when the last one is in sync.
func (l *loader) inSync(it *segment.Item, ev event.Event) {
	if l.waits == nil {
		return
	}
	switch ev := ev.(type) {
	case *event.SyncStatus:
		if ev.Status != event.InSync {
			return
		}
	case *event.External:
		if !ev.Resync {
			return
		}
	default:
		return
	}
	if delete(l.waits, record.SourceOf(ev)); len(l.waits) > 0 {
		return
	}
	l.waits = nil
	if l.kept > 1 {
		return // the rest of the state follows
	}
	text := "the agent knows all objects"
	if l.began {
		text = "the agent knows all objects again"
	}
	l.reach(it.Number, it.At, text)
}

// playEvent adds a step for an event of a complete state.
func (l *loader) playEvent(it *segment.Item) {
	l.began = true
	step := Step{Record: it.Number, At: it.At, Text: eventText(it.Event)}
	if step.Text == "" {
		step.Text = "values of " + record.SourceOf(it.Event) + " are as before"
	}
	switch ev := it.Event.(type) {
	case *event.Update:
		for i := range ev.Changes {
			ch := &ev.Changes[i]
			m, differs := objectMove(ch.Ref, l.now.objects[ch.Ref], *ch)
			step.Text = m.String()
			if !differs {
				step.Text = ch.Ref.String() + " is as before"
				continue
			}
			step.Moves = append(step.Moves, m)
		}
	case *event.External:
		was := maps.Clone(l.now.externals[ev.Source])
		l.now.applyEvent(ev)
		if m, differs := valuesMove(ev.Source, was, l.now.externals[ev.Source]); differs {
			step.Moves = append(step.Moves, m)
			step.Text = m.String()
		}
		l.next.applyEvent(ev)
		l.Steps = append(l.Steps, step)
		return
	}
	l.now.applyEvent(it.Event)
	l.next.applyEvent(it.Event)
	l.Steps = append(l.Steps, step)
}

func gapText(g *record.Gap) string {
	var parts []string
	if g.Merged > 0 {
		parts = append(parts, fmt.Sprintf("%d events are merged: the journal has the last version of each object", g.Merged))
	}
	if g.Dropped > 0 {
		parts = append(parts, fmt.Sprintf("%d records are missing", g.Dropped))
	}
	return withError(strings.Join(parts, "; "), g.Error)
}

func withError(text, err string) string {
	switch {
	case err == "":
		return text
	case text == "":
		return err
	}
	return text + ": " + err
}

func outcomeText(o *record.Outcome) string {
	text := fmt.Sprintf("recorded: txn=%d cause=%s %s add=%d mod=%d del=%d writes=%d took=%s", o.Seq, o.Cause, o.Kind, o.Add, o.Mod, o.Del, o.Writes, o.Took)
	if o.Error != "" {
		text += " err=" + o.Error
	}
	for _, m := range o.Messages {
		if m.Failed > 0 {
			text += fmt.Sprintf("; %s failed %d times: %s", m.Name, m.Failed, m.Error)
		}
	}
	for _, v := range o.Values {
		if v.Error != "" || len(v.Waits) > 0 {
			text += "; " + (&event.ValueStatus{Key: v.Key, Err: v.Error, Details: v.Waits}).Line()
		}
	}
	return text
}

func eventText(ev event.Event) string {
	switch ev := ev.(type) {
	case *event.SyncStatus:
		return withError("source "+ev.Source+" is "+ev.Status.String(), errorText(ev.Err))
	case *event.Located:
		return fmt.Sprintf("interfaces: uplink %q, overlay %q, host %q, %d pods", ev.Uplink, ev.Overlay, ev.Host, len(ev.Pods))
	case *event.VPPStatus:
		if ev.Connected {
			return fmt.Sprintf("VPP %s is connected (connection %d)", ev.Version, ev.Generation)
		}
		return withError("VPP is not connected", errorText(ev.Err))
	}
	return ""
}

// Until returns the number of steps up to a record's number or a time.
func (t *Timeline) Until(number uint64, at time.Time) int {
	for i := range t.Steps {
		s := &t.Steps[i]
		if number != 0 && s.Record > number || !at.IsZero() && s.At.After(at) {
			return i
		}
	}
	return len(t.Steps)
}
