package acl

import (
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/host"
	"github.com/contiv-agent/contiv-agent/renderer/acl/interim"
	"github.com/contiv-agent/contiv-agent/renderer/acl/note"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Kinds of objects in notes: the objects that Felix's messages name. A reader with the Kubernetes objects may translate them.
const (
	KindPolicy       = note.KindPolicy   // Name is "<tier>|<name>"
	KindProfile      = note.KindProfile  // Name is the profile's
	KindWorkload     = note.KindWorkload // Name is the workload's
	KindHostEndpoint = note.KindHostEndpoint
)

// HostNotEnforced is the reason in the note on a host endpoint of which no part is enforced.
const HostNotEnforced = host.NotEnforced

// Owner is the prefix of the renderer's owners at the sink: see interim.Owner; "acl/note/<object>" has notes.
const Owner = interim.Owner

// flush sends changed notes to the sink.
func (r *Renderer) flush() {
	r.pods.Notes.Flush(func(who string, notes []model.Note) {
		r.sink.Set(Owner+"note/"+strings.ReplaceAll(who, "\x00", "|"), nil, notes)
	})
}

// noteRules notes the unreadable parts of changed policies and profiles.
func (r *Renderer) noteRules() {
	set := func(who string, ref model.Ref, problems []string) {
		var notes []model.Note
		for _, p := range problems {
			notes = append(notes, model.Note{Ref: ref, Reason: p, Refused: true})
		}
		r.pods.Notes.Set(who, notes)
	}
	r.pods.Book.EachChanged(func(id policy.ID, problems []string) {
		set("policy\x00"+id.Tier+"\x00"+id.Name, note.RefOf(&dataplane.Cause{Tier: id.Tier, Policy: id.Name}), problems)
	}, func(name string, problems []string) {
		set("profile\x00"+name, note.RefOf(&dataplane.Cause{Profile: name}), problems)
	})
}
