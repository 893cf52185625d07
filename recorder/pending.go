package recorder

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/recorder/record"
)

// pending merges events that found the queue full: the last version of each object counts. Its size is bounded by the number of objects.
type pending struct {
	changes   map[string]map[model.Ref]event.Change // by source
	sources   map[string]*event.SyncStatus
	externals map[string]*event.External
	located   *event.Located
	vpp       *event.VPPStatus
	merged    int
	dropped   int
}

func newPending() *pending {
	return &pending{
		changes: map[string]map[model.Ref]event.Change{}, sources: map[string]*event.SyncStatus{}, externals: map[string]*event.External{},
	}
}

func (p *pending) isEmpty() bool { return p.merged+p.dropped == 0 }

// items is the number of items that p makes.
func (p *pending) items() int { return 3 + len(p.changes) + len(p.sources) + len(p.externals) }

func (p *pending) gap() *record.Gap {
	return &record.Gap{Merged: p.merged, Dropped: p.dropped, Error: "the disk was too slow"}
}

// takeEvent merges an event; false: it has no state, and is dropped.
func (p *pending) takeEvent(ev event.Event) bool {
	switch ev := ev.(type) {
	case *event.Update:
		byRef := p.changes[ev.Source]
		if byRef == nil {
			byRef = map[model.Ref]event.Change{}
			p.changes[ev.Source] = byRef
		}
		for _, ch := range ev.Changes {
			byRef[ch.Ref] = ch
		}
	case *event.SyncStatus:
		p.sources[ev.Source] = ev
	case *event.External:
		p.externals[ev.Source] = joinedExternals(p.externals[ev.Source], ev)
	case *event.Located:
		p.located = ev
	case *event.VPPStatus:
		p.vpp = ev
	default:
		p.dropped++
		return false
	}
	p.merged++
	return true
}

// joinedExternals returns one event for two of a source; was may be nil.
func joinedExternals(was, ev *event.External) *event.External {
	if was == nil || ev.Resync {
		return ev
	}
	out := &event.External{Source: ev.Source, Resync: was.Resync, Values: maps.Clone(was.Values), Merge: maps.Clone(was.Merge)}
	if out.Values == nil {
		out.Values = map[string]proto.Message{}
	}
	if out.Merge == nil {
		out.Merge = map[string]event.Merge{}
	}
	for key, m := range ev.Values {
		if out.Values[key] = m; m == nil && out.Resync {
			delete(out.Values, key)
		}
		delete(out.Merge, key)
		if merge, ok := ev.Merge[key]; ok {
			out.Merge[key] = merge
		}
	}
	return out
}

// events returns what is pending, in a fixed order: objects before the states of their sources.
func (p *pending) events() (out []event.Event) {
	for _, source := range slices.Sorted(maps.Keys(p.changes)) {
		list := slices.Collect(maps.Values(p.changes[source]))
		slices.SortFunc(list, func(a, b event.Change) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
		out = append(out, &event.Update{Source: source, Changes: list})
	}
	for _, source := range slices.Sorted(maps.Keys(p.externals)) {
		out = append(out, p.externals[source])
	}
	for _, source := range slices.Sorted(maps.Keys(p.sources)) {
		out = append(out, p.sources[source])
	}
	if p.located != nil {
		out = append(out, p.located)
	}
	if p.vpp != nil {
		out = append(out, p.vpp)
	}
	return out
}
