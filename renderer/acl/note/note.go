// Package note turns what cannot be rendered into notes on the objects that say it.
//
// Invariant: a part of the renderer has the notes of its last evaluation, and only those that changed are sent.
package note

import (
	"fmt"
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Kinds of objects in notes: the objects that Felix's messages name. A reader with the Kubernetes objects may translate them.
const (
	KindPolicy       model.Kind = "FelixPolicy"      // Name is "<tier>|<name>"
	KindProfile      model.Kind = "FelixProfile"     // Name is the profile's
	KindWorkload     model.Kind = "WorkloadEndpoint" // Name is the workload's
	KindHostEndpoint            = model.KindHostEndpoint
)

// Book has the notes, by the part of the renderer that makes them.
type Book struct {
	now   map[string][]model.Note
	dirty map[string]struct{}
}

// NewBook returns a book without notes.
func NewBook() *Book { return &Book{now: map[string][]model.Note{}, dirty: map[string]struct{}{}} }

// Set replaces the notes of a part.
func (n *Book) Set(who string, notes []model.Note) {
	if len(notes) == 0 && len(n.now[who]) == 0 || slices.Equal(notes, n.now[who]) {
		return
	}
	n.dirty[who] = struct{}{}
	if n.now[who] = notes; len(notes) == 0 {
		delete(n.now, who)
	}
}

// Forget removes the notes of a part.
func (n *Book) Forget(who string) { n.Set(who, nil) }

// Of returns the function that adds notes of a part about clauses, after it clears the part's old notes.
func (n *Book) Of(who string) func(c *match.Clause, format string, args ...any) {
	n.Forget(who)
	return func(c *match.Clause, format string, args ...any) {
		one := model.Note{Ref: RefOf(c.Cause), Reason: fmt.Sprintf("rule %d ", c.Cause.Rule) + fmt.Sprintf(format, args...), Refused: true}
		if !slices.Contains(n.now[who], one) {
			n.now[who] = append(n.now[who], one)
			n.dirty[who] = struct{}{}
		}
	}
}

// RefOf returns the object of a note about a rule.
func RefOf(c *dataplane.Cause) model.Ref {
	if c.Profile != "" {
		return model.Ref{Kind: KindProfile, Name: c.Profile}
	}
	return model.Ref{Kind: KindPolicy, Name: c.Tier + "|" + c.Policy}
}

// Resend marks all notes to be sent again.
func (n *Book) Resend() {
	for who := range n.now {
		n.dirty[who] = struct{}{}
	}
}

// Flush calls send for each part whose notes changed since the last call, in order of the parts' names.
func (n *Book) Flush(send func(who string, notes []model.Note)) {
	for _, who := range slices.Sorted(maps.Keys(n.dirty)) {
		send(who, n.now[who])
	}
	clear(n.dirty)
}
