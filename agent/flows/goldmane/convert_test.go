package goldmane

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/proto/calico/goldmane"
)

func podPeer(name, address string, labels ...string) flows.Peer {
	p := flows.Peer{Kind: flows.Pod, Namespace: "prod", Name: name, Node: "node-1", Address: netip.MustParseAddr(address), Labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		p.Labels[labels[i]] = labels[i+1]
	}
	return p
}

// Pods have the name that their controller generated for all of them, as Felix shows it.
func TestPodsOfAWorkloadShareAName(t *testing.T) {
	for _, c := range []struct {
		name   string
		labels []string
		want   string
	}{
		{"web", nil, "web"},
		{"web-0", nil, "web-0"}, // no controller made it
		{"web-0", []string{"statefulset.kubernetes.io/pod-name", "web-0"}, "web-*"},
		{"client-7d9f8b6c5-x2x4z", []string{"pod-template-hash", "7d9f8b6c5"}, "client-7d9f8b6c5-*"},
		{"client-7d9f8b6c5-x2x4z", []string{"pod-template-hash", "other"}, "client-7d9f8b6c5-x2x4z"},
		{"proxy-x2x4z", []string{"controller-revision-hash", "5f"}, "proxy-*"},
		{"dump-x2x4z", []string{"batch.kubernetes.io/job-name", "dump"}, "dump-*"},
		{"dump-3-x2x4z", []string{"batch.kubernetes.io/job-name", "dump", "batch.kubernetes.io/job-completion-index", "3"}, "dump-3-*"},
	} {
		p := podPeer(c.name, "10.1.1.2", c.labels...)
		if got := podsLike(&p); got != c.want {
			t.Errorf("%s %v: %s, want %s", c.name, c.labels, got, c.want)
		}
	}
}

// Each flow has the key that Felix would give it.
func TestKeys(t *testing.T) {
	client, web := podPeer("client", "10.1.1.2"), podPeer("web", "10.1.2.2")
	web.Node = "node-2"
	service := flows.Peer{Kind: flows.Service, Namespace: "shop", Name: "db", Address: netip.MustParseAddr("10.96.0.1")}
	world := flows.Peer{Kind: flows.Outside, Address: netip.MustParseAddr("192.0.2.7")}
	node := flows.Peer{Kind: flows.Node, Name: "node-1", Address: netip.MustParseAddr("192.168.16.1")}
	base := flows.Flow{Node: "node-1", Source: client, Destination: web, Protocol: "TCP", Port: 80, Verdict: flows.Allowed, Direction: "egress", SeenBy: agentflows.BySessions}
	hits := func(hit *goldmane.PolicyHit) *goldmane.PolicyTrace {
		return &goldmane.PolicyTrace{EnforcedPolicies: []*goldmane.PolicyHit{hit}, PendingPolicies: []*goldmane.PolicyHit{hit}}
	}
	unknown := func(action goldmane.Action) *goldmane.PolicyTrace {
		return hits(&goldmane.PolicyHit{Kind: goldmane.PolicyKind_PROFILE, Name: "__NO_MATCH__", Action: action})
	}
	wanted := func(change func(*goldmane.FlowKey)) *goldmane.FlowKey {
		k := &goldmane.FlowKey{
			SourceName: "client", SourceNamespace: "prod", SourceType: goldmane.EndpointType_WORKLOAD_ENDPOINT,
			DestName: "web", DestNamespace: "prod", DestType: goldmane.EndpointType_WORKLOAD_ENDPOINT, DestPort: 80,
			DestServiceName: "-", DestServiceNamespace: "-", DestServicePortName: "-", Proto: "tcp",
			Reporter: goldmane.Reporter_SRC, Action: goldmane.Action_ALLOW, Policies: unknown(goldmane.Action_ALLOW),
		}
		if change != nil {
			change(k)
		}
		return k
	}
	for name, c := range map[string]struct {
		change func(*flows.Flow)
		want   *goldmane.FlowKey // nil: it is not sent
	}{
		"sender": {func(*flows.Flow) {}, wanted(nil)},
		"receiver": {
			func(f *flows.Flow) { f.Direction = "ingress" },
			wanted(func(k *goldmane.FlowKey) { k.Reporter = goldmane.Reporter_DST }),
		},
		"no policy, pod of another node": {
			func(f *flows.Flow) { f.Direction, f.Source.Node = "", "node-2" },
			wanted(func(k *goldmane.FlowKey) { k.Reporter = goldmane.Reporter_DST }),
		},
		"no policy, pod of this node": {func(f *flows.Flow) { f.Direction = "" }, wanted(nil)},
		"from outside": {
			func(f *flows.Flow) { f.Source, f.Direction, f.Protocol = world, "ingress", "ICMPv6" },
			wanted(func(k *goldmane.FlowKey) {
				k.SourceName, k.SourceNamespace, k.SourceType, k.Reporter, k.Proto = "pub", "-", goldmane.EndpointType_NETWORK, goldmane.Reporter_DST, "icmp6"
			}),
		},
		"to a node": {
			func(f *flows.Flow) { f.Destination, f.Protocol = node, "proto-47" },
			wanted(func(k *goldmane.FlowKey) {
				k.DestName, k.DestNamespace, k.DestType, k.Proto = "node-1", "-", goldmane.EndpointType_HOST_ENDPOINT, "47"
			}),
		},
		"translated": {
			func(f *flows.Flow) {
				f.Translation = &flows.Translation{Dialled: netip.MustParseAddrPort("10.96.0.1:5432"), Service: "shop/db"}
			},
			wanted(func(k *goldmane.FlowKey) {
				k.DestServiceNamespace, k.DestServiceName, k.DestServicePort = "shop", "db", 5432
			}),
		},
		"dropped by no policy": {
			func(f *flows.Flow) {
				f.Verdict, f.Direction, f.Decision = flows.Dropped, "", flows.Decision{Text: "ip4-input: ip4 ttl <= 1"}
			},
			wanted(func(k *goldmane.FlowKey) {
				k.Action, k.Policies = goldmane.Action_DENY, unknown(goldmane.Action_DENY)
			}),
		},
		"no policy would decide if staged ones were enforced": {
			func(f *flows.Flow) {
				f.Decision = flows.Decision{Profile: "kns.prod", Staged: &flows.Staged{Verdict: flows.Dropped, By: "StagedNetworkPolicy prod/web"}}
			},
			wanted(func(k *goldmane.FlowKey) {
				k.Policies = hits(&goldmane.PolicyHit{Kind: goldmane.PolicyKind_PROFILE, Name: "kns.prod", Action: goldmane.Action_ALLOW})
				k.Policies.PendingPolicies = unknown(goldmane.Action_DENY).PendingPolicies
			}),
		},
		"before NAT": {func(f *flows.Flow) { f.Destination = service }, nil},
		"dropped before NAT": {
			func(f *flows.Flow) {
				f.Destination, f.Verdict = service, flows.Dropped
				f.Decision = flows.Decision{Tier: "default", Trigger: "NetworkPolicy prod/lock"}
			},
			wanted(func(k *goldmane.FlowKey) {
				k.DestName, k.DestNamespace, k.DestType, k.Action = "pvt", "-", goldmane.EndpointType_NETWORK, goldmane.Action_DENY
				k.DestServiceNamespace, k.DestServiceName, k.DestServicePort = "shop", "db", 80
				k.Policies = hits(&goldmane.PolicyHit{
					Kind: goldmane.PolicyKind_END_OF_TIER, Tier: "default", Action: goldmane.Action_DENY, RuleIndex: -1,
					Trigger: &goldmane.PolicyHit{Kind: goldmane.PolicyKind_NETWORK_POLICY, Namespace: "prod", Name: "lock", Tier: "default"},
				})
			}),
		},
		"rule": {
			func(f *flows.Flow) {
				f.Verdict, f.Decision = flows.Dropped, flows.Decision{Policy: "AdminNetworkPolicy guard", Tier: "adminnetworkpolicy", Rule: "egress rule 3 (no-telnet)"}
			},
			wanted(func(k *goldmane.FlowKey) {
				k.Action = goldmane.Action_DENY
				k.Policies = hits(&goldmane.PolicyHit{
					Kind: goldmane.PolicyKind_ADMIN_NETWORK_POLICY, Name: "guard", Tier: "adminnetworkpolicy", Action: goldmane.Action_DENY, RuleIndex: 2,
				})
			}),
		},
		"rule of a policy whose name has its tier": {
			func(f *flows.Flow) {
				f.Decision = flows.Decision{Policy: "CalicoNetworkPolicy prod/ops.web", Tier: "ops", Rule: "egress rule 1"}
			},
			wanted(func(k *goldmane.FlowKey) {
				k.Policies = hits(&goldmane.PolicyHit{Kind: goldmane.PolicyKind_CALICO_NETWORK_POLICY, Namespace: "prod", Name: "web", Tier: "ops", Action: goldmane.Action_ALLOW})
			}),
		},
		"staged policy would deny": {
			func(f *flows.Flow) {
				f.Decision = flows.Decision{Profile: "kns.prod", Staged: &flows.Staged{
					Verdict: flows.Dropped, By: "StagedKubernetesNetworkPolicy prod/web", Policy: "NetworkPolicy prod/web", Tier: "default", Rule: "egress rule 2",
				}}
			},
			wanted(func(k *goldmane.FlowKey) {
				k.Policies.EnforcedPolicies = hits(&goldmane.PolicyHit{Kind: goldmane.PolicyKind_PROFILE, Name: "kns.prod", Action: goldmane.Action_ALLOW}).EnforcedPolicies
				k.Policies.PendingPolicies = hits(&goldmane.PolicyHit{
					Kind: goldmane.PolicyKind_STAGED_KUBERNETES_NETWORK_POLICY, Namespace: "prod", Name: "web", Tier: "default", Action: goldmane.Action_DENY, RuleIndex: 1,
				}).PendingPolicies
			}),
		},
		"tier of a staged policy would end": {
			func(f *flows.Flow) {
				f.Decision.Staged = &flows.Staged{Verdict: flows.Dropped, By: "StagedGlobalNetworkPolicy ops.lock", Policy: "GlobalNetworkPolicy ops.lock", Tier: "ops"}
			},
			wanted(func(k *goldmane.FlowKey) {
				k.Policies.PendingPolicies = hits(&goldmane.PolicyHit{
					Kind: goldmane.PolicyKind_END_OF_TIER, Tier: "ops", Action: goldmane.Action_DENY, RuleIndex: -1,
					Trigger: &goldmane.PolicyHit{Kind: goldmane.PolicyKind_STAGED_GLOBAL_NETWORK_POLICY, Name: "lock", Tier: "ops"},
				}).PendingPolicies
			}),
		},
		"profile": {
			func(f *flows.Flow) { f.Decision = flows.Decision{Profile: "kns.prod"} },
			wanted(func(k *goldmane.FlowKey) {
				k.Policies = hits(&goldmane.PolicyHit{Kind: goldmane.PolicyKind_PROFILE, Name: "kns.prod", Action: goldmane.Action_ALLOW})
			}),
		},
	} {
		f := base
		c.change(&f)
		got, ok := keyOf(&f)
		if ok != (c.want != nil) || !proto.Equal(got, c.want) && ok {
			t.Errorf("%s: %v\n%s", name, ok, cmp.Diff(c.want.String(), got.String()))
		}
	}
}

func TestPrivateNetworks(t *testing.T) {
	for address, want := range map[string]bool{
		"10.0.0.1": true, "172.16.0.1": true, "172.32.0.1": false, "192.168.1.1": true, "192.0.2.1": false, "::ffff:10.0.0.1": true, "fd00::1": false,
	} {
		if isPrivate(netip.MustParseAddr(address)) != want {
			t.Errorf("%s: %v", address, !want)
		}
	}
}
