package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Annotations allow sources. An invalid annotation allows nothing, and the pod's note names it.
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

// Where nat44 serves and the node's own traffic looks like NAT's, the Node's note names the flags.
func TestNodeWithoutHostLink(t *testing.T) {
	node := []netip.Addr{netip.MustParseAddr("192.168.16.1")}
	for _, c := range []struct {
		view  dataplane.View
		link  []netip.Addr
		trust bool
		want  bool
	}{
		{dataplane.PreDNAT, nil, false, true},
		{dataplane.PreDNAT, []netip.Addr{netip.MustParseAddr("fd00::2")}, false, true},
		{dataplane.PreDNAT, []netip.Addr{netip.MustParseAddr("169.254.1.2")}, false, false},
		{dataplane.PreDNAT, nil, true, false},
		{dataplane.PostDNAT, nil, false, false},
	} {
		p, d := newCollector()
		p.cfg.View4, p.cfg.TrustNodeAddresses = c.view, c.trust
		if err := p.Translations().(renderer.NodeRenderer).UpdateNode(renderer.NodeState{Name: "node-1", IPs: node, HostIPs: c.link}); err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		notes := p.Notes()
		if got := len(notes) == 1 && notes[0].Refused && notes[0].Ref.Kind == model.KindNode && strings.Contains(notes[0].Reason, "--host-address"); got != c.want || !c.want && len(notes) > 0 {
			t.Errorf("%+v: notes %v", c, notes)
		}
		if got := slices.Contains(d.node.HostAddrs, node[0]); got != c.trust {
			t.Errorf("%+v: the driver lets in %v", c, d.node.HostAddrs)
		}
	}
}
