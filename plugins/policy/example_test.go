package policy_test

import (
	"fmt"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// printer is a driver that prints its input. It programs a single rule: the end of tier default.
type printer struct{}

func (printer) OnUpdate(m *felix.ToDataplane) {
	switch m := m.Payload.(type) {
	case *felix.ToDataplane_ActivePolicyUpdate:
		fmt.Println("policy", m.ActivePolicyUpdate.Id.Name, "with", len(m.ActivePolicyUpdate.Policy.InboundRules), "ingress rules")
	case *felix.ToDataplane_WorkloadEndpointUpdate:
		fmt.Println("endpoint", m.WorkloadEndpointUpdate.Id.WorkloadId, m.WorkloadEndpointUpdate.Endpoint.Ipv4Nets)
	}
}
func (printer) SetNode(n dataplane.Node) { fmt.Println("interfaces", n.Interfaces) }
func (printer) Apply() bool              { fmt.Println("apply"); return false }
func (printer) Resync()                  {}

func (printer) Cause(string, bool, int, int) (dataplane.Cause, bool) {
	return dataplane.Cause{Kind: dataplane.CauseEndOfTier, Tier: model.TierDefault, Endpoint: "prod/web-0", Denied: true}, true
}

func ExampleProcessor() {
	p := policy.New(policy.Config{NodeName: "node-1"}, printer{})
	for _, obj := range []model.Object{
		&model.Pod{
			ID: model.PodID{Namespace: "prod", Name: "web-0"}, NodeName: "node-1", Labels: map[string]string{"app": "web"},
			IPs: []netip.Addr{netip.MustParseAddr("10.1.1.2")},
		},
		&model.Policy{
			ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "prod", Name: "web"}, Tier: model.TierDefault,
			Namespace: "prod", Selector: "app == 'web'", Ingress: true,
		},
	} {
		p.Apply(event.Change{Ref: obj.Ref(), Object: obj})
	}
	p.Located(&event.Located{Pods: map[netip.Addr]string{netip.MustParseAddr("10.1.1.2"): "tap1"}})
	_ = p.Flush()
	reason, _ := p.Explain("tap1", true, 0, -1)
	fmt.Println(reason)
	// Output:
	// policy prod/knp.default.web with 0 ingress rules
	// endpoint prod/web-0 [10.1.1.2/32]
	// interfaces map[10.1.1.2:tap1]
	// apply
	// denied: NetworkPolicy prod/web isolates prod/web-0 for ingress and no rule allows it
}
