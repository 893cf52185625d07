package typha

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// kv parses "key value"; no value means a delete.
func kv(line string) wire.KV {
	key, value, _ := strings.Cut(line, " ")
	return wire.KV{Key: key, Value: []byte(value)}
}

// text formats a change as one line: what is left of the object, and the error.
func text(c event.Change) string {
	out := "- " + c.Ref.String()
	switch o := c.Object.(type) {
	case nil:
		if c.Err != nil {
			out = "! " + c.Ref.String()
		}
	case *model.Pod:
		out = fmt.Sprintf("%s on %s %v %v sa=%s ports %v finished=%v", c.Ref, o.NodeName, o.IPs, o.Labels, o.ServiceAccount, o.Ports, o.Finished)
	case *model.Namespace:
		out = fmt.Sprintf("%s %v", c.Ref, o.Labels)
	case *model.ServiceAccount:
		out = fmt.Sprintf("%s %v", c.Ref, o.Labels)
	case *model.Profile:
		out = fmt.Sprintf("%s %v %v", c.Ref, o.Labels, o.Rules)
	case *model.Policy:
		out = fmt.Sprintf("%s tier %s order %v in=%v out=%v %s", c.Ref, o.Tier, o.Order.Value, o.Ingress, o.Egress, o.Selector)
		if a := o.StagedAction(); a != "" {
			out += " " + string(a)
		}
		for _, r := range append(o.InboundRules, o.OutboundRules...) {
			out += fmt.Sprintf(" [%s: %s]", r.Origin, r.Action)
		}
	case *model.Node:
		out = fmt.Sprintf("%s %v %v %v %v", c.Ref, o.Labels, o.InternalIPs, o.ExternalIPs, o.PodCIDRs)
	case *model.Service:
		out = fmt.Sprintf("%s %v %v", c.Ref, o.ClusterIPs, o.Ports)
	case *model.EndpointSlice:
		out = fmt.Sprintf("%s of %s: %d endpoints", c.Ref, o.Service, len(o.Endpoints))
	case *model.ServiceCIDR:
		out = fmt.Sprintf("%s %v", c.Ref, o.CIDRs)
	case *model.Tier:
		out = fmt.Sprintf("%s %v %s", c.Ref, o.Order.Value, o.DefaultAction)
	case *model.NetworkSet:
		out = fmt.Sprintf("%s %v %v", c.Ref, o.Nets, o.Labels)
	case *model.HostEndpoint:
		out = fmt.Sprintf("%s on %s %q", c.Ref, o.ID.Node, o.Interface)
	}
	if c.Object != nil && c.Object.Ref() != c.Ref {
		out += " but is " + c.Object.Ref().String()
	}
	if c.Err != nil {
		out += ": " + c.Err.Error()
	}
	return out
}

const (
	podKey   = "/calico/v1/host/n1/workload/k8s/prod%2fweb-0/endpoint/eth0"
	podKey2  = "/calico/v1/host/n2/workload/k8s/prod%2fweb-0/endpoint/eth0"
	podValue = `{"state":"active","name":"cali1","active_instance_id":"","mac":null,"profile_ids":["kns.prod","ksa.prod.web"],"ipv4_nets":["10.65.0.2/32"],"ipv6_nets":["fd00::2/128"],"labels":{"app":"web","projectcalico.org/namespace":"prod","projectcalico.org/orchestrator":"k8s","projectcalico.org/serviceaccount":"web"},"ports":[{"name":"http","protocol":"tcp","port":8080}]}`
	podLine  = `Pod prod/web-0 on n1 [10.65.0.2 fd00::2] map[app:web] sa=web ports [{http TCP 8080}] finished=false`
	nodeKey  = "/calico/resources/v3/projectcalico.org/nodes/n1"
	nodeText = `{"metadata":{"name":"n1","labels":{"zone":"a"}},"spec":{"addresses":[{"address":"10.0.0.1/24","type":"CalicoNodeIP"},{"address":"10.0.0.1","type":"InternalIP"},{"address":"203.0.113.1","type":"ExternalIP"}]},"status":{"podCIDRs":["10.1.0.0/24"]}}`
	block    = `/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26 {"cidr":"10.65.0.0/26","affinity":"host:%s","allocations":[],"unallocated":[],"attributes":[]}`
	policies = "/calico/v1/policy/tier/default/policy/"
)

// The source passes on a Service's UID. A new UID under the same name is a change even if the rest is equal.
func TestServiceKeepsUID(t *testing.T) {
	tr := newTranslator()
	const key = "/calico/resources/v3/projectcalico.org/kubernetesservice/prod/web"
	for _, step := range []struct{ value, want string }{
		{`{"metadata":{"name":"web","namespace":"prod","uid":"u1"},"spec":{"clusterIP":"10.96.0.10","ports":[{"port":80}]}}`, "u1"},
		{`{"metadata":{"name":"web","namespace":"prod","uid":"u1"},"spec":{"clusterIP":"10.96.0.10","ports":[{"port":80}]}}`, "no change"},
		{`{"metadata":{"name":"web","namespace":"prod","uid":"u2"},"spec":{"clusterIP":"10.96.0.10","ports":[{"port":80}]}}`, "u2"},
		{`{"metadata":{"name":"web","namespace":"prod","uid":"u2"},"spec":{"clusterIP":"10.96.0.300","ports":[{"port":80}]}}`, "u2"},
		{"", ""},
	} {
		got := "no change"
		for _, c := range tr.objectChanges([]wire.KV{kv(key + " " + step.value)}) {
			got = c.UID
		}
		if got != step.want {
			t.Errorf("%s: %q, want %q", step.value, got, step.want)
		}
	}
}

func TestTranslate(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []string
		want []string
	}{
		{"a pod", []string{podKey + " " + podValue, podKey}, []string{podLine, "- Pod prod/web-0"}},
		{
			"a pod that moves: the new endpoint comes before the old one goes",
			[]string{podKey + " " + podValue, podKey2 + " " + podValue, podKey},
			[]string{podLine, strings.Replace(podLine, "n1", "n2", 1)},
		},
		{
			"a pod that moves, and does not",
			[]string{podKey + " " + podValue, podKey2 + " " + podValue, podKey2},
			[]string{podLine, strings.Replace(podLine, "n1", "n2", 1), podLine},
		},
		{"the same again", []string{podKey + " " + podValue, podKey + " " + podValue}, []string{podLine}},
		{
			"a pod that does not parse is gone, and said so",
			[]string{podKey + " " + podValue, podKey + ` {"name":"x","ipv4_nets":["10.65.0.300/32"]}`},
			[]string{podLine, `! Pod prod/web-0: ` + podKey + `: ipv4_nets[0]: "10.65.0.300/32" is not a network`},
		},
		{
			"an endpoint of something else",
			[]string{"/calico/v1/host/n1/workload/openstack/vm/endpoint/eth0 " + podValue},
			[]string{"! WorkloadEndpoint n1/workload/openstack/vm/endpoint/eth0: /calico/v1/host/n1/workload/openstack/vm/endpoint/eth0: is not the only endpoint of a Kubernetes Pod: ignored"},
		},
		{
			"a namespace",
			[]string{
				`/calico/v1/policy/profile/kns.prod/labels {"pcns.projectcalico.org/name":"prod","pcns.team":"a"}`,
				`/calico/v1/policy/profile/kns.prod/rules {"inbound_rules":[{"action":"allow"}],"outbound_rules":[{"action":"allow"}]}`,
				`/calico/resources/v3/projectcalico.org/profiles/kns.prod {}`, `/calico/v1/policy/profile/kns.prod/labels`,
			},
			[]string{"Namespace prod map[team:a]", "- Namespace prod"},
		},
		{
			"a service account with a dot",
			[]string{`/calico/v1/policy/profile/ksa.prod.web.x/labels {"pcsa.projectcalico.org/name":"web.x","pcsa.role":"b"}`},
			[]string{"ServiceAccount prod/web.x map[role:b]"},
		},
		{
			"a profile of Calico's own",
			[]string{`/calico/v1/policy/profile/mine/labels {"a":"b"}`, `/calico/v1/policy/profile/mine/rules {}`, `/calico/v1/policy/profile/mine/labels`, `/calico/v1/policy/profile/mine/rules`},
			[]string{"Profile mine map[a:b] <nil>", "Profile mine map[a:b] &{[] []}", "Profile mine map[] &{[] []}", "- Profile mine"},
		},
		{"the profile that is always there", []string{`/calico/v1/policy/profile/projectcalico-default-allow/rules {}`}, nil},
		{
			"a NetworkPolicy of Kubernetes",
			[]string{policies + `prod%2fknp.default.web {"namespace":"prod","order":1000,"inbound_rules":[{"action":"allow"},{"action":"allow"}],"selector":"all()","types":["ingress"]}`, policies + "prod%2fknp.default.web"},
			[]string{"NetworkPolicy prod/web tier default order 1000 in=true out=false all() [ingress rule 1: allow] [ingress rule 2: allow]", "- NetworkPolicy prod/web"},
		},
		{
			"the same as later servers say it",
			[]string{`/calico/v1/policy/KubernetesNetworkPolicy/prod/web {"tier":"default","order":1000,"outbound_rules":[{"action":"deny"}],"selector":"all()","types":["egress"]}`},
			[]string{"NetworkPolicy prod/web tier default order 1000 in=false out=true all() [egress rule 1: deny]"},
		},
		{
			"an AdminNetworkPolicy, and one of Calico's",
			[]string{
				`/calico/v1/policy/tier/adminnetworkpolicy/policy/kanp.adminnetworkpolicy.x {"order":5,"selector":"all()","types":["ingress"]}`,
				`/calico/v1/policy/tier/sec/policy/sec.deny {"selector":"all()","types":["ingress"]}`,
				`/calico/v1/policy/tier/sec/policy/prod%2fstaged:sec.deny {"selector":"all()","types":["ingress"]}`,
				`/calico/v1/policy/tier/default/policy/prod%2fstaged:knp.default.web {"selector":"all()","types":["ingress"],"staged_action":"Learn"}`,
				`/calico/v1/policy/tier/sec/policy/sec.enforced {"selector":"all()","types":["ingress"],"staged_action":"Ignore"}`,
			},
			[]string{
				"AdminNetworkPolicy x tier adminnetworkpolicy order 5 in=true out=false all()",
				"GlobalNetworkPolicy sec.deny tier sec order 0 in=true out=false all()",
				"StagedNetworkPolicy prod/sec.deny tier sec order 0 in=true out=false all() Set",
				"StagedKubernetesNetworkPolicy prod/web tier default order 0 in=true out=false all() Learn",
				"GlobalNetworkPolicy sec.enforced tier sec order 0 in=true out=false all()",
			},
		},
		{
			"a policy that does not parse",
			[]string{policies + `prod%2fknp.default.web {"inbound_rules":[{"action":"allow","src_nets":["x"]}]}`},
			[]string{`! NetworkPolicy prod/web: ` + policies + `prod%2fknp.default.web: inbound_rules[0].src_nets[0]: "x" is not a network`},
		},
		{
			"policies whose selectors are none",
			[]string{
				policies + `prod%2fknp.default.web {"selector":"((("}`,
				policies + `prod%2fknp.default.web {"selector":"all()","outbound_rules":[{},{"!dst_selector":"a ="}]}`,
			},
			[]string{
				`! NetworkPolicy prod/web: ` + policies + `prod%2fknp.default.web: selector: is not a valid selector: expected a label key, has(), all(), global(), ! or ( at offset 3 of "((("`,
				`! NetworkPolicy prod/web: ` + policies + `prod%2fknp.default.web: outbound_rules[1].!dst_selector: is not a valid selector: expected an operator behind label key "a" at offset 2 of "a ="`,
			},
		},
		{
			"a tier, sets, a host endpoint that moves",
			[]string{
				`/calico/v1/policy/tier/sec/metadata {"order":10,"defaultAction":"Pass"}`,
				`/calico/v1/netset/prod%2fext {"nets":["1.2.3.0/24"],"labels":{"a":"b"},"profile_ids":["kns.prod"]}`,
				`/calico/v1/netset/ext {"nets":["1.2.3.0/24"],"labels":null}`,
				`/calico/v1/host/n1/endpoint/h {"name":"eth0","labels":null}`, `/calico/v1/host/n2/endpoint/h {"name":"eth0","labels":null}`, `/calico/v1/host/n1/endpoint/h`,
			},
			[]string{
				"Tier sec 10 Pass", "NetworkSet prod/ext [1.2.3.0/24] map[a:b]", "GlobalNetworkSet ext [1.2.3.0/24] map[]",
				`HostEndpoint h on n1 "eth0"`, `HostEndpoint h on n2 "eth0"`,
			},
		},
		{
			"a node and its blocks of addresses, in any order",
			[]string{
				fmt.Sprintf(block, "n1"), nodeKey + " " + nodeText, fmt.Sprintf(block, "n2"), fmt.Sprintf(block, "n1"), strings.Fields(block)[0], nodeKey,
			},
			[]string{
				"Node n1 map[zone:a] [10.0.0.1] [203.0.113.1] [10.1.0.0/24 10.65.0.0/26]", "Node n1 map[zone:a] [10.0.0.1] [203.0.113.1] [10.1.0.0/24]",
				"Node n1 map[zone:a] [10.0.0.1] [203.0.113.1] [10.1.0.0/24 10.65.0.0/26]", "Node n1 map[zone:a] [10.0.0.1] [203.0.113.1] [10.1.0.0/24]", "- Node n1",
			},
		},
		{
			"a node that only BGP knows",
			[]string{nodeKey + ` {"spec":{"bgp":{"ipv4Address":"10.0.0.7/24"}}}`},
			[]string{"Node n1 map[] [10.0.0.7] [] []"},
		},
		{
			"a Service and its slice",
			[]string{
				`/calico/resources/v3/projectcalico.org/kubernetesservice/prod/web {"metadata":{"name":"web","namespace":"prod"},"spec":{"clusterIP":"10.96.0.1","clusterIPs":["10.96.0.1"],"ports":[{"port":80}]}}`,
				`/calico/resources/v3/projectcalico.org/kubernetesendpointslices/prod/web-1 {"metadata":{"name":"web-1","namespace":"prod","labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4","endpoints":[{"addresses":["10.65.0.2"]}],"ports":[]}`,
				`/calico/resources/v3/projectcalico.org/kubernetesservice/prod/web {"metadata":{"name":"web","namespace":"prod"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":0}]}}`,
				`/calico/resources/v3/projectcalico.org/kubernetesservice/prod/web`,
			},
			[]string{
				"Service prod/web [10.96.0.1] [{ TCP 80 0}]", "EndpointSlice prod/web-1 of prod/web: 1 endpoints",
				"! Service prod/web: /calico/resources/v3/projectcalico.org/kubernetesservice/prod/web: Service prod/web: spec.ports[0].port: must be 1 to 65535 (0)",
				"- Service prod/web",
			},
		},
		{
			"ranges of cluster IPs",
			[]string{
				`/contiv/v1/servicecidrs/kubernetes {"cidrs":["10.96.0.0/16"]}`, `/contiv/v1/servicecidrs/kubernetes`,
				`/calico/resources/v3/projectcalico.org/bgpconfigurations/default {"spec":{"serviceClusterIPs":[{"cidr":"10.96.0.0/12"}]}}`,
				`/calico/resources/v3/projectcalico.org/bgpconfigurations/default {"spec":{}}`,
			},
			[]string{
				"ServiceCIDR kubernetes [10.96.0.0/16]", "- ServiceCIDR kubernetes",
				"ServiceCIDR bgpconfiguration:default [10.96.0.0/12]", "- ServiceCIDR bgpconfiguration:default",
			},
		},
		{"what nothing depends on", []string{"/calico/v1/Ready true", "/calico/v1/config/X y", "/a/key/of/tomorrow {}", podKey, policies + "gone"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTranslator()
			var got []string
			for _, line := range c.in {
				for _, ch := range tr.objectChanges([]wire.KV{kv(line)}) {
					got = append(got, text(ch))
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// The final objects depend on the final keys only, not on the order of changes.
func TestTranslatePathIndependence(t *testing.T) {
	vocabulary := []string{
		podKey + " " + podValue, podKey + " " + strings.Replace(podValue, "web", "db", 1), podKey, podKey + " broken",
		`/calico/v1/policy/profile/kns.prod/labels {"pcns.team":"a"}`, `/calico/v1/policy/profile/kns.prod/labels`,
		`/calico/v1/policy/profile/mine/labels {"a":"b"}`, `/calico/v1/policy/profile/mine/labels`,
		`/calico/v1/policy/profile/mine/rules {}`, `/calico/v1/policy/profile/mine/rules`,
		nodeKey + " " + nodeText, nodeKey, nodeKey + " {", fmt.Sprintf(block, "n1"), fmt.Sprintf(block, "n2"), strings.Fields(block)[0],
		policies + `prod%2fknp.default.web {"selector":"all()"}`, policies + `prod%2fknp.default.web`,
	}
	world := func(into map[model.Ref]string, changes []event.Change) {
		for _, c := range changes {
			if c.Object == nil && c.Err == nil {
				delete(into, c.Ref)
			} else {
				into[c.Ref] = text(c)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		end, tr, have := map[string]wire.KV{}, newTranslator(), map[model.Ref]string{}
		for _, line := range rapid.SliceOfN(rapid.SampledFrom(vocabulary), 1, 30).Draw(t, "lines") {
			k := kv(line)
			end[k.Key] = k
			world(have, tr.objectChanges([]wire.KV{k}))
		}
		want := map[model.Ref]string{}
		var list []wire.KV
		for _, key := range slices.Sorted(maps.Keys(end)) {
			list = append(list, end[key])
		}
		world(want, newTranslator().objectChanges(list))
		if d := cmp.Diff(want, have); d != "" {
			t.Fatalf("-at once +step by step:\n%s", d)
		}
	})
}

// No value makes the translator panic, and a deleted key leaves nothing behind.
func FuzzTranslate(f *testing.F) {
	for _, line := range []string{podKey + " " + podValue, nodeKey + " " + nodeText, fmt.Sprintf(block, "n1"), policies + `x {"inbound_rules":[{}]}`} {
		k := kv(line)
		f.Add(k.Key, k.Value)
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		tr := newTranslator()
		tr.objectChanges([]wire.KV{{Key: key, Value: value}})
		tr.objectChanges([]wire.KV{{Key: key}})
		if len(tr.objects)+len(tr.profiles)+len(tr.nodes)+len(tr.blocks) > 0 {
			t.Errorf("%s leaves something behind: %+v", key, tr)
		}
	})
}
