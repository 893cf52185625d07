package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/proof"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/service"
)

// Differences are problems of the Services, and of the Node for all else. Many share one.
func TestDifferences(t *testing.T) {
	var list []service.Status
	var many, each []string
	for i := range mostDifferences + 1 {
		list = append(list, service.Status{ID: model.ServiceID{Namespace: "default", Name: fmt.Sprintf("s%02d", i)}})
		many, each = append(many, list[i].ID.String()), append(each, "Service "+list[i].ID.String()+" VPPDiffers")
	}
	for name, c := range map[string]struct {
		last *proof.Summary
		want []string
	}{
		"no proof yet": {nil, nil},
		"equal":        {&proof.Summary{Repeats: true}, nil},
		"on request":   {&proof.Summary{Differing: many[:1]}, nil},
		"a Service and a pod": {
			&proof.Summary{Repeats: true, Differing: []string{"default/s03", "default/web, ingress", "nat44 mapping 10.96.0.1:80/TCP"}},
			[]string{"Service default/s03 VPPDiffers packets to the Service", "Node node-1 VPPDiffers passes or drops"},
		},
		"a pod alone":                   {&proof.Summary{Repeats: true, Differing: []string{"default/web, ingress"}}, []string{"Node node-1 VPPDiffers passes or drops"}},
		"as many as have an Event each": {&proof.Summary{Repeats: true, Differing: many[:mostDifferences]}, each[:mostDifferences]},
		"too many":                      {&proof.Summary{Repeats: true, Differing: many}, []string{"Node node-1 VPPDiffers more than 20 Services"}},
	} {
		p := &Picture{Reader: &Reader{Node: "node-1", Services: true}, services: func() []service.Status { return list }}
		got := p.differences(c.last)
		if !slices.EqualFunc(got, c.want, func(p event.Problem, want string) bool {
			about, text, _ := strings.Cut(want, " VPPDiffers")
			return p.Ref.String() == about && p.Reason == event.VPPDiffers && strings.Contains(p.Text, strings.TrimSpace(text))
		}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
