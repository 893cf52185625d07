package generate

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// uplinkName is the interface host endpoints are on.
const uplinkName = "uplink"

// addHosts makes profiles, and host endpoints on some nodes.
func (w *World) addHosts() {
	for _, name := range []string{"profile-a", "profile-b"} {
		p := &policy.CalicoProfile{TypeMeta: policy.TypeOf(policy.GroupCalico, "Profile"), ObjectMeta: policy.Meta("", name, nil)}
		w.profileSpec(p)
		w.putObject(p)
	}
	for _, n := range objectsOf[*corev1.Node](w) {
		if w.chance(3) {
			continue
		}
		h := &policy.CalicoHostEndpoint{TypeMeta: policy.TypeOf(policy.GroupCalico, "HostEndpoint"), ObjectMeta: policy.Meta("", n.Name+"-uplink", w.labels())}
		h.Spec.Node, h.Spec.InterfaceName = n.Name, uplinkName
		for _, a := range some(w, 1+w.rng.IntN(2), n.Status.Addresses...) {
			h.Spec.ExpectedIPs = append(h.Spec.ExpectedIPs, a.Address)
		}
		h.Spec.Profiles = some(w, w.rng.IntN(3), "profile-a", "profile-a", "profile-b", "profile-b", "missing")
		if len(h.Spec.Profiles) == 2 && h.Spec.Profiles[0] == h.Spec.Profiles[1] {
			h.Spec.Profiles = h.Spec.Profiles[:1]
		}
		w.putObject(h)
	}
}

// profileSpec draws rules and labels anew. Profiles do not pass.
func (w *World) profileSpec(p *policy.CalicoProfile) {
	p.Spec.Ingress, p.Spec.Egress, p.Spec.LabelsToApply = nil, nil, nil
	for range w.rng.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, w.profileRule(true))
	}
	for range w.rng.IntN(3) {
		p.Spec.Egress = append(p.Spec.Egress, w.profileRule(false))
	}
	if w.chance(2) {
		p.Spec.LabelsToApply = w.labels()
	}
}

func (w *World) profileRule(ingress bool) policy.CalicoRule {
	for {
		if r := w.calicoRule(ingress); r.Action != "Pass" {
			return r
		}
	}
}
