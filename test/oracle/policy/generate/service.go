package generate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// maxServices is how many a cluster grows to by StepServices.
const maxServices = 4

// StepServices changes a Service, or its endpoints, and returns the changes: it adds or removes one, draws its endpoints
// anew, or changes its port.
func (w *World) StepServices() []Change {
	before := maps.Clone(w.objects)
	services := objectsOf[*corev1.Service](w)
	switch n := w.rng.IntN(4); {
	case n == 0 && len(services) < maxServices || len(services) == 0:
		w.addService()
	case n == 1: // the last one: the next gets its name, and an address nobody has
		s := services[len(services)-1]
		for _, e := range w.slicesOf(s) {
			delete(w.objects, policy.KeyOf(e))
		}
		delete(w.objects, policy.KeyOf(s))
	case n == 2:
		edit(w, pick(w, services...), func(s *corev1.Service) { s.Spec.Ports[0].Port += 10 })
	default:
		s := pick(w, services...)
		for _, e := range w.slicesOf(s) {
			w.putObject(w.slice(s, e.AddressType, *e.Ports[0].Protocol, *e.Ports[0].Port))
		}
	}
	return w.since(before)
}

// slicesOf are the slices of a service.
func (w *World) slicesOf(s *corev1.Service) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(objectsOf[*discoveryv1.EndpointSlice](w), func(e *discoveryv1.EndpointSlice) bool {
		return e.Namespace != s.Namespace || e.Labels[discoveryv1.LabelServiceName] != s.Name
	})
}

// since returns the differences to earlier objects, in the order in which an API server sends them.
func (w *World) since(before map[policy.Key]policy.Object) []Change {
	var out []Change
	for key := range before {
		if _, still := w.objects[key]; !still {
			out = append(out, Change{Key: key})
		}
	}
	slices.SortFunc(out, func(a, b Change) int { return policy.CompareKeys(a.Key, b.Key) })
	for _, o := range w.Objects() {
		if before[policy.KeyOf(o)] != o {
			out = append(out, Change{policy.KeyOf(o), o})
		}
	}
	return out
}

// Since returns the changes that lead from some objects to others, in the order in which an API server sends them.
func Since(before, after []policy.Object) []Change {
	had := make(map[policy.Key]policy.Object, len(before))
	for _, o := range before {
		had[policy.KeyOf(o)] = o
	}
	w := &World{objects: make(map[policy.Key]policy.Object, len(after))}
	for _, o := range after {
		w.objects[policy.KeyOf(o)] = o
	}
	return w.since(had)
}
