package proof

import (
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// objects are the objects that the processors of an agent have. They are those of the sources, not copies.
type objects map[model.Ref]model.Object

// Changed records a change that the processors get, and returns the object before it. A refused object counts with the parts that fail closed,
// if it has any. A nil Prover keeps nothing.
func (p *Prover) Changed(ch event.Change) (was model.Object) {
	if p == nil {
		return nil
	}
	was = p.loop[ch.Ref]
	if ch.Object == nil {
		delete(p.loop, ch.Ref)
	} else {
		p.loop[ch.Ref] = ch.Object
	}
	return was
}

// Objects returns the objects, in any order.
func (p *Prover) Objects() []model.Object { return slices.Collect(maps.Values(p.loop)) }
