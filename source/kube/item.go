package kube

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/contiv-agent/contiv-agent/datastore"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

// item is what an informer stores for an object: its name and version, and what became of it in conversion.
type item struct {
	metav1.ObjectMeta // name, namespace, version only: what informers ask for
	ref               model.Ref
	object            model.Object // nil if it means nothing to a data plane, or if refused; a refused policy has both
	err               error        // why it was refused
	keys              []datastore.KV
	id                *Identity // nil unless asked for
}

// transform makes a cache.TransformFunc from API objects to items; items pass unchanged, as informers demand.
func transform(keys, identified bool) cache.TransformFunc {
	return func(obj any) (any, error) {
		out, err := newItem(obj, keys)
		if it, ok := out.(*item); ok && identified && it.id == nil {
			if o, ok := obj.(runtime.Object); ok {
				it.id = identify(o)
			}
		}
		return out, err
	}
}

func newItem(obj any, keys bool) (any, error) {
	switch o := obj.(type) {
	case *item, cache.DeletedFinalStateUnknown:
		return o, nil
	case runtime.Object:
		meta, isMeta := obj.(metav1.Object)
		if !isMeta {
			break
		}
		ref, known := convert.Ref(o)
		if !known {
			gvk, ok := o.GetObjectKind().GroupVersionKind(), false
			if ref, ok = datastore.Extra(gvk.Group, gvk.Version, gvk.Kind, meta.GetName()); !ok || !keys {
				break
			}
		}
		it := &item{ref: ref}
		it.Name, it.Namespace, it.ResourceVersion = meta.GetName(), meta.GetNamespace(), meta.GetResourceVersion()
		if known {
			it.object, it.err = convert.Object(o)
		}
		if keys {
			it.encode(o)
		}
		return it, nil
	}
	return nil, fmt.Errorf("kube: %T is not an object this source asks for", obj)
}

// encode writes the object as the datastore has it. What cannot be written is refused, and may serve this agent all the same.
func (it *item) encode(raw runtime.Object) {
	var err error
	it.keys, err = datastore.Encode(raw, it.object, it.err != nil && !convert.Unsupported(it.err))
	if it.err == nil && !errors.Is(err, datastore.ErrNotEncoded) {
		it.err = err
	}
}

// absent tells that there is nothing to be known of the object: it is not there, or means nothing.
func (it *item) absent() bool {
	return it == nil || (it.object == nil && it.err == nil && len(it.keys) == 0)
}

// same tells that two versions of an object mean the same.
func same(a, b *item) bool {
	switch {
	case a.absent() || b.absent():
		return a.absent() && b.absent()
	case (a.err == nil) != (b.err == nil), a.err != nil && a.err.Error() != b.err.Error():
		return false
	}
	return model.Equal(a.object, b.object) && datastore.Equal(a.keys, b.keys)
}

// change is the step to an object's new version.
func (it *item) change(ref model.Ref) event.Change {
	c := event.Change{Ref: ref, Origin: "API server"}
	if !it.absent() {
		c.Object, c.Err = it.object, it.err
		if len(it.keys) > 0 {
			c.Keys = it.keys
		}
	}
	return c
}

// batch collects steps until they are emitted: many steps of one object are one, and steps there and back are none.
type batch struct {
	order []model.Ref
	steps map[model.Ref]step
}

type step struct{ before, after *item }

func (b *batch) add(ref model.Ref, before, after *item) {
	s, known := b.steps[ref]
	if !known {
		s.before = before
		b.order = append(b.order, ref)
	}
	s.after = after
	if b.steps == nil {
		b.steps = map[model.Ref]step{}
	}
	b.steps[ref] = s
}

// take empties the batch and returns what is left of it, in the order in which objects first changed.
func (b *batch) take() []event.Change {
	var out []event.Change
	for _, ref := range b.order {
		if s := b.steps[ref]; !same(s.before, s.after) {
			out = append(out, s.after.change(ref))
		}
	}
	b.order, b.steps = nil, nil
	return out
}
