package policy

import (
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
)

// TestKubernetesWords: the words are those of kubectl describe; a rule that needs others has none.
func TestKubernetesWords(t *testing.T) {
	pods := func(terms, namespaces string) model.Peer {
		return model.Peer{Selector: "x", OriginalSelector: onlyPods + terms, OriginalNamespaceSelector: namespaces}
	}
	tcp := model.RuleProtocol{Name: "tcp"}
	for _, tc := range []struct {
		rule   model.Rule
		egress bool
		want   string
		none   bool
	}{
		{model.Rule{}, false, "", false},
		{model.Rule{Source: pods("", "")}, false, "From PodSelector <none>", false},
		{model.Rule{Source: pods(" && app == 'web' && tier not in { 'a', 'b' } && ! has(old) && has(new)", anyNamespace)}, false, "From PodSelector app=web,tier notin (a,b),!old,new, NamespaceSelector <none>", false},
		{model.Rule{Source: pods("", "pcns.stage in { 'prod' } && ! has(pcns.x)")}, false, "From PodSelector <none>, NamespaceSelector stage in (prod),!x", false},
		{model.Rule{Protocol: tcp}, false, "To Port <any>/TCP", false},
		{
			model.Rule{Protocol: tcp, Destination: model.Peer{
				Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, NotNets: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Ports: []model.PortMatch{{First: 80, Last: 90}, {Name: "dns"}},
			}}, true, "To IPBlock 10.0.0.0/8 Except 10.1.0.0/16; To Port 80-90/TCP, dns/TCP", false,
		},
		{model.Rule{Source: model.Peer{Selector: "app == 'x'"}}, false, "", true},
		{model.Rule{Source: pods(" && app contains 'x'", "")}, false, "", true},
		{model.Rule{Source: pods("", "stage == 'prod'")}, false, "", true},
		{model.Rule{ICMP: &model.ICMPMatch{Type: 8}}, false, "", true},
	} {
		if got, ok := kubernetesWords(&tc.rule, tc.egress); got != tc.want || ok == tc.none {
			t.Errorf("%s: %q, %v, want %q", tc.rule.String(), got, ok, tc.want)
		}
	}
	if isKubernetes(model.KindCalicoNetworkPolicy) || !isKubernetes(model.KindBaselinePolicy) {
		t.Error("a policy of Calico's has no words of Kubernetes, one of Kubernetes has")
	}
}
