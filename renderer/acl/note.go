package acl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Kinds of objects in notes: the objects that Felix's messages name. A reader with the Kubernetes objects may translate them.
const (
	KindPolicy       model.Kind = "FelixPolicy"      // Name is "<tier>|<name>"
	KindProfile      model.Kind = "FelixProfile"     // Name is the profile's
	KindWorkload     model.Kind = "WorkloadEndpoint" // Name is the workload's
	KindHostEndpoint            = model.KindHostEndpoint
)

// notebook has the notes, by their part of the renderer.
type notebook struct {
	now   map[string][]model.Note
	dirty map[string]struct{}
}

func newNotebook() notebook {
	return notebook{now: map[string][]model.Note{}, dirty: map[string]struct{}{}}
}

// set replaces the notes of a part.
func (n *notebook) set(who string, notes []model.Note) {
	if len(notes) == 0 && len(n.now[who]) == 0 || slices.Equal(notes, n.now[who]) {
		return
	}
	n.dirty[who] = struct{}{}
	if n.now[who] = notes; len(notes) == 0 {
		delete(n.now, who)
	}
}

func (n *notebook) forget(who string) { n.set(who, nil) }

// of returns the function that adds notes of a segment for its expander, after it clears the segment's old notes.
func (n *notebook) of(seg *segment) func(c *match.Clause, format string, args ...any) {
	n.forget(seg.role)
	return func(c *match.Clause, format string, args ...any) {
		note := model.Note{Ref: refOf(c.Cause), Reason: fmt.Sprintf("rule %d ", c.Cause.Rule) + fmt.Sprintf(format, args...), Refused: true}
		if !slices.Contains(n.now[seg.role], note) {
			n.now[seg.role] = append(n.now[seg.role], note)
			n.dirty[seg.role] = struct{}{}
		}
	}
}

// refOf returns the object of a note about a rule.
func refOf(c *dataplane.Cause) model.Ref {
	if c.Profile != "" {
		return model.Ref{Kind: KindProfile, Name: c.Profile}
	}
	return model.Ref{Kind: KindPolicy, Name: c.Tier + "|" + c.Policy}
}

// resend marks all notes to be sent again.
func (n *notebook) resend() {
	for who := range n.now {
		n.dirty[who] = struct{}{}
	}
}

// flush sends changed notes to the sink.
func (r *Renderer) flush() {
	for _, who := range slices.Sorted(maps.Keys(r.notes.dirty)) {
		r.sink.Set(Owner+"note/"+strings.ReplaceAll(who, "\x00", "|"), nil, r.notes.now[who])
	}
	clear(r.notes.dirty)
}

// noteRules notes the unreadable parts of changed policies and profiles.
func (r *Renderer) noteRules() {
	note := func(who string, ref model.Ref, problems []string) {
		var notes []model.Note
		for _, p := range problems {
			notes = append(notes, model.Note{Ref: ref, Reason: p, Refused: true})
		}
		r.notes.set(who, notes)
	}
	r.book.EachChanged(func(id policy.ID, problems []string) {
		note("policy\x00"+id.Tier+"\x00"+id.Name, refOf(&dataplane.Cause{Tier: id.Tier, Policy: id.Name}), problems)
	}, func(name string, problems []string) {
		note("profile\x00"+name, refOf(&dataplane.Cause{Profile: name}), problems)
	})
}
