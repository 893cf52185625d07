package status

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// The report has no remarks on an enforced policy, whatever their source.
func TestReportOfRemarksOnPolicies(t *testing.T) {
	id := model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "default", Name: "web"}
	ref := model.Ref{Kind: model.Kind(model.KindNetworkPolicy), Namespace: "default", Name: "web"}
	enforced := policy.Status{
		Policy: &model.Policy{ID: id, Tier: "default"}, Endpoints: []policy.Applied{{Endpoint: "default/web", Interfaces: []string{"tap1"}}},
	}
	notes := map[model.Ref][]model.Note{ref: {{Ref: ref, Reason: "a remark"}, {Ref: ref, Reason: "a refusal", Refused: true}}}
	p := &Picture{Reader: &Reader{Loop: Loop{Policies: &policy.Processor{}}}, policyList: []policy.Status{enforced}}
	var got []string
	p.policyProblems(&controller.Status{}, notes, func(of model.Ref, reason event.Reason, texts ...string) {
		got = append(got, of.String()+" "+string(reason)+" "+strings.Join(texts, ", "))
	})
	if diff := cmp.Diff([]string{"NetworkPolicy default/web NotEnforced a refusal"}, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
