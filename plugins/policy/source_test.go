package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// Annotations allow sources; one that cannot be read allows nothing, and the pod's note names it.
func TestAllowedSources(t *testing.T) {
	for _, c := range []struct{ check, list, want, problem string }{
		{"", "", "[]", ""},
		{"true", "", "[]", ""},
		{"false", "", "[0.0.0.0/0 ::/0]", ""},
		{"off", "", "[]", `metadata.annotations[contiv-agent.io/source-check]: "off" is neither "true" nor "false"`},
		{"", `["10.9.3.1/16", "172.16.0.1", "fd00::/8"]`, "[10.9.0.0/16 172.16.0.1/32 fd00::/8]", ""},
		{"", `["10.9.0.0/16", "10.9.0.0/33"]`, "[]", `metadata.annotations[cni.projectcalico.org/allowedSourcePrefixes]: [1]: "10.9.0.0/33" is not a prefix`},
		{"", `10.9.0.0/16`, "[]", `metadata.annotations[cni.projectcalico.org/allowedSourcePrefixes]: not a JSON list of prefixes`},
		{"no", `["::ffff:10.9.0.0/112"]`, "[]", `[0]: "::ffff:10.9.0.0/112" is not a prefix`},
	} {
		pod := &model.Pod{
			ID: model.PodID{Namespace: "shop", Name: "web"}, NodeName: "node-1", IPs: []netip.Addr{netip.MustParseAddr("10.1.1.2")},
			Annotations: map[string]string{model.AnnotationSourceCheck: c.check, model.AnnotationAllowedSources: c.list},
		}
		got, problem := allowedSources(pod)
		if fmt.Sprint(got) != c.want || !strings.Contains(problem, c.problem) || (problem == "") != (c.problem == "") {
			t.Errorf("%q, %q: %v, %q", c.check, c.list, got, problem)
		}
		p, _ := newCollector()
		p.Apply(event.Change{Ref: pod.Ref(), Object: pod})
		if notes := p.Notes(); len(notes) > 0 != (problem != "") || len(notes) > 0 && (notes[0].Ref != pod.Ref() || !notes[0].Refused) {
			t.Errorf("%q, %q: notes %v", c.check, c.list, notes)
		}
		if w := workload(pod); fmt.Sprint(w.AllowSpoofedSources) != c.want {
			t.Errorf("%q, %q: the endpoint allows %v", c.check, c.list, w.AllowSpoofedSources)
		}
	}
}
