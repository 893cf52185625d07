package kube

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore/encode"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

// item is what an informer stores for an object: its name and version, and the result of its conversion.
type item struct {
	metav1.ObjectMeta // name, namespace, version only: what informers ask for
	ref               model.Ref
	object            model.Object // nil if the object does not matter to a data plane, or is refused; a refused policy has object and err
	err               error        // why the object is refused
	keys              []calico.KV
	id                *Identity // nil without Config.Identities
}

// transform returns a cache.TransformFunc from API objects to items. It returns items unchanged, as informers require.
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
			if ref, ok = encode.Extra(gvk.Group, gvk.Version, gvk.Kind, meta.GetName()); !ok || !keys {
				break
			}
		}
		it := &item{ref: ref}
		it.Name, it.Namespace, it.ResourceVersion = meta.GetName(), meta.GetNamespace(), meta.GetResourceVersion()
		var result convert.Result
		if known {
			result = convert.Read(o)
			it.object, it.err = result.Object, result.Err
		}
		if keys {
			it.encodeKeys(o, result)
		}
		return it, nil
	}
	return nil, fmt.Errorf("kube: %T is not an object this source asks for", obj)
}

// encodeKeys adds the object as Calico's datastore stores it. An object that cannot be encoded gets an error, and its converted
// form may still serve this agent.
func (it *item) encodeKeys(raw runtime.Object, result convert.Result) {
	var err error
	it.keys, err = encode.Object(raw, result)
	if it.err == nil && !errors.Is(err, encode.ErrNotEncoded) {
		it.err = err
	}
}

// absent reports whether nothing is known of the object: it does not exist, or does not matter to a data plane.
func (it *item) absent() bool {
	return it == nil || (it.object == nil && it.err == nil && len(it.keys) == 0)
}

// sameItem reports whether two versions of an object convert to the same value.
func sameItem(a, b *item) bool {
	switch {
	case a.absent() || b.absent():
		return a.absent() && b.absent()
	case (a.err == nil) != (b.err == nil), a.err != nil && a.err.Error() != b.err.Error():
		return false
	}
	return model.Equal(a.object, b.object) && encode.Equal(a.keys, b.keys)
}

// changeOf returns the event for an object's new version.
func (it *item) changeOf(ref model.Ref) event.Change {
	c := event.Change{Ref: ref, Origin: "API server"}
	if !it.absent() {
		c.Object, c.Err, c.Keys = it.object, it.err, it.keys
	}
	return c
}

// batch collects changes until they are emitted. Several changes of one object become one; changes that cancel out become
// none.
type batch struct {
	order []model.Ref
	steps map[model.Ref]step
}

type step struct{ before, after *item }

func (b *batch) addChange(ref model.Ref, before, after *item) {
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

// takeChanges empties the batch and returns its changes, in the order in which objects first changed.
func (b *batch) takeChanges() []event.Change {
	var out []event.Change
	for _, ref := range b.order {
		if s := b.steps[ref]; !sameItem(s.before, s.after) {
			out = append(out, s.after.changeOf(ref))
		}
	}
	b.order, b.steps = nil, nil
	return out
}
