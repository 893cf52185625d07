package generate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// Step changes one object, or a few, and returns the changes, in the order in which an API server sends them.
func (w *World) Step() []Change {
	before := maps.Clone(w.objects)
	for range 1 + w.rng.IntN(2) {
		w.step()
	}
	return w.since(before)
}

func (w *World) step() {
	switch w.rng.IntN(12) {
	case 0:
		if len(objectsOf[*corev1.Pod](w)) < maxPods {
			w.addPod()
		}
	case 1:
		if pods := objectsOf[*corev1.Pod](w); len(pods) > 2 {
			w.removePod(pick(w, pods...))
		}
	case 2:
		w.finish()
	case 3:
		if pods := objectsOf[*corev1.Pod](w); len(pods) > 0 {
			edit(w, pick(w, pods...), func(p *corev1.Pod) { p.Labels = w.labels() })
		}
	case 4:
		ns := pick(w, objectsOf[*corev1.Namespace](w)...)
		edit(w, ns, func(n *corev1.Namespace) {
			name, had := n.Labels[corev1.LabelMetadataName]
			n.Labels = w.labels()
			if had {
				n.Labels[corev1.LabelMetadataName] = name
			}
		})
	case 5:
		if accounts := objectsOf[*corev1.ServiceAccount](w); len(accounts) > 0 {
			edit(w, pick(w, accounts...), func(a *corev1.ServiceAccount) { a.Labels = w.labels() })
		}
	case 6:
		edit(w, pick(w, objectsOf[*corev1.Node](w)...), func(n *corev1.Node) { n.Labels = w.labels() })
	case 7:
		w.stepCalicoPlace()
	case 8, 9:
		if policies := w.policies(); len(policies) > 0 {
			w.again(pick(w, policies...))
		}
	case 10:
		if policies := w.policies(); len(policies) > 0 {
			delete(w.objects, policy.KeyOf(pick(w, policies...)))
		}
	default:
		if len(w.policies()) < maxPolicies {
			w.addPolicy()
		}
	}
}

// policies are the objects with rules.
func (w *World) policies() []policy.Object {
	var out []policy.Object
	for _, o := range w.Objects() {
		switch o.(type) {
		case *networkingv1.NetworkPolicy, *policy.AdminNetworkPolicy, *policy.BaselineAdminNetworkPolicy, *policy.ClusterNetworkPolicy, *policy.CalicoPolicy:
			out = append(out, o)
		}
	}
	return out
}

// removePod removes it; its addresses are free, and gone from the slices.
func (w *World) removePod(p *corev1.Pod) {
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		w.giveBack(p)
		w.unserve(p)
	}
	delete(w.objects, policy.KeyOf(p))
}

// finish ends a pod: it stays, without its addresses counting.
func (w *World) finish() {
	for _, p := range objectsOf[*corev1.Pod](w) {
		if p.Status.Phase == corev1.PodRunning && !p.Spec.HostNetwork {
			w.giveBack(p)
			w.unserve(p)
			edit(w, p, func(p *corev1.Pod) { p.Status.Phase = pick(w, corev1.PodSucceeded, corev1.PodFailed) })
			return
		}
	}
}

func (w *World) unserve(p *corev1.Pod) {
	for _, s := range objectsOf[*discoveryv1.EndpointSlice](w) {
		if slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.TargetRef.Name == p.Name && s.Namespace == p.Namespace }) {
			edit(w, s, func(s *discoveryv1.EndpointSlice) {
				s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.TargetRef.Name == p.Name })
			})
		}
	}
}

// stepCalicoPlace changes a tier, a network set, a profile or a host endpoint.
func (w *World) stepCalicoPlace() {
	if hosts := objectsOf[*policy.CalicoHostEndpoint](w); len(hosts) > 0 && w.chance(3) {
		if w.chance(2) {
			edit(w, pick(w, objectsOf[*policy.CalicoProfile](w)...), func(p *policy.CalicoProfile) { w.profileSpec(p) })
			return
		}
		edit(w, pick(w, hosts...), func(h *policy.CalicoHostEndpoint) { h.Labels = w.labels() })
		return
	}
	if tiers := objectsOf[*policy.CalicoTier](w); len(tiers) > 0 && w.chance(2) {
		edit(w, pick(w, tiers...), func(t *policy.CalicoTier) { t.Spec.DefaultAction = pick(w, "", "Deny", "Pass") })
		return
	}
	if sets := objectsOf[*policy.CalicoNetworkSet](w); len(sets) > 0 {
		edit(w, pick(w, sets...), func(n *policy.CalicoNetworkSet) {
			switch w.rng.IntN(3) {
			case 0:
				n.Labels = w.labels()
			case 1:
				n.Spec.Nets = append(n.Spec.Nets, w.network().String())
			default:
				n.Spec.Nets = n.Spec.Nets[:len(n.Spec.Nets)/2]
			}
		})
	}
}
