package encode

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// fromYAML returns an object as a dynamic client has it.
func fromYAML(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func keysOf(t *testing.T, raw runtime.Object, converted model.Object, refused bool) (out []string) {
	t.Helper()
	result := convert.Result{Object: converted}
	if refused {
		result.Err = &check.Error{Problems: []check.Problem{{Field: "spec", Why: "is wrong"}}}
	}
	list, err := Object(raw, result)
	for _, kv := range list {
		out = append(out, kv.Key+" "+string(kv.Value))
	}
	if err != nil {
		out = append(out, "! "+err.Error())
	}
	return out
}

// Encode writes what Calico v3.31 writes for each kind of object; tests in interop compare with Calico itself, on random
// objects.
func TestEncode(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"pod", `{apiVersion: v1, kind: Pod, metadata: {name: web-0.a, namespace: prod, labels: {app: web, pcns.x: forged}, generateName: web-},
			spec: {nodeName: n1, serviceAccountName: web, containers: [{ports: [{name: http, containerPort: 8080}, {containerPort: 9}]}]},
			status: {podIPs: [{ip: 10.65.0.2}, {ip: "fd00::2"}]}}`, []string{
			`/calico/v1/host/n1/workload/k8s/prod%2fweb-0.a/endpoint/eth0 {"state":"active","name":"calif6228d3c8e4","active_instance_id":"","mac":null,"profile_ids":["kns.prod","ksa.prod.web"],"ipv4_nets":["10.65.0.2/32"],"ipv6_nets":["fd00::2/128"],"labels":{"app":"web","projectcalico.org/namespace":"prod","projectcalico.org/orchestrator":"k8s","projectcalico.org/serviceaccount":"web"},"ports":[{"name":"http","protocol":"tcp","port":8080}],"generate_name":"web-"}`,
		}},
		{"pod of the host's network", `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: n1, hostNetwork: true}, status: {podIP: 10.0.0.1}}`, nil},
		{"pod that is nowhere yet", `{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {podIP: 10.65.0.1}}`, nil},
		{"pod without an address", `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: n1}}`, nil},
		{"pod that finished", `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: n1}, status: {phase: Succeeded, podIP: 10.65.0.1}}`, nil},
		{"pod with a bad annotation", `{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {cni.projectcalico.org/allowedSourcePrefixes: "[\"x\"]"}}, spec: {nodeName: n1}, status: {podIP: 10.65.0.1}}`, []string{
			`! Pod default/a: metadata.annotations[cni.projectcalico.org/allowedSourcePrefixes]: must be an address or a range ("x")`,
		}},
		{"service account", `{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, labels: {a: b}, uid: 0f0e0d0c-0b0a-4908-8706-050403020100}}`, []string{
			`/calico/v1/policy/profile/ksa.default.web/labels {"pcsa.a":"b","pcsa.projectcalico.org/name":"web"}`,
			`/calico/v1/policy/profile/ksa.default.web/rules {}`,
			`/calico/resources/v3/projectcalico.org/profiles/ksa.default.web {"kind":"Profile","apiVersion":"projectcalico.org/v3","metadata":{"name":"ksa.default.web","uid":"f070b030-d050-4910-8760-a020c0408000","creationTimestamp":null},"spec":{"labelsToApply":{"pcsa.a":"b","pcsa.projectcalico.org/name":"web"}}}`,
		}},
		{"node", `{apiVersion: v1, kind: Node, metadata: {name: n1, annotations: {projectcalico.org/IPv4Address: 10.0.0.1/24, projectcalico.org/IPv4VXLANTunnelAddr: 10.65.0.1}}, spec: {podCIDR: 10.65.0.0/24}}`, []string{
			`/calico/v1/host/n1/bird_ip 10.0.0.1`,
			`/calico/v1/host/n1/config/IPv4VXLANTunnelAddr 10.65.0.1`,
			`/calico/resources/v3/projectcalico.org/nodes/n1 {"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"n1","creationTimestamp":null,"annotations":{"projectcalico.org/kube-labels":"null"}},"spec":{"bgp":{"ipv4Address":"10.0.0.1/24"},"ipv4VXLANTunnelAddr":"10.65.0.1","orchRefs":[{"nodeName":"n1","orchestrator":"k8s"}],"addresses":[{"address":"10.0.0.1/24","type":"CalicoNodeIP"}]},"status":{"podCIDRs":["10.65.0.0/24"]}}`,
		}},
		{"global policy", `{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: sec.deny-all}, spec: {selector: app == 'web', namespaceSelector: team == 'a', ingress: [{action: Pass}]}}`, []string{
			`/calico/v1/policy/tier/sec/policy/sec.deny-all {"inbound_rules":[{"action":"next-tier"}],"selector":"(app == 'web') \u0026\u0026 pcns.team == \"a\""}`,
		}},
		{"policy of the default tier", `{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: web}, spec: {egress: [{action: Allow, protocol: TCP, destination: {ports: [80, "90:91"], nets: [10.0.0.1]}}]}}`, []string{
			`/calico/v1/policy/tier/default/policy/default%2fdefault.web {"namespace":"default","outbound_rules":[{"action":"allow","protocol":"tcp","dst_nets":["10.0.0.1/32"],"dst_ports":[80,"90:91"]}],"selector":"projectcalico.org/namespace == 'default'"}`,
		}},
		{"policy as it is stored", `{apiVersion: crd.projectcalico.org/v1, kind: GlobalNetworkPolicy, metadata: {name: plain}, spec: {}}`, []string{
			`/calico/v1/policy/tier/default/policy/plain {"selector":""}`,
		}},
		{"policy that stands for another's removal", `{apiVersion: projectcalico.org/v3, kind: StagedNetworkPolicy, metadata: {name: web}, spec: {stagedAction: Delete}}`, nil},
		{"policy that stands for a NetworkPolicy", `{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: knp.default.web}, spec: {}}`, nil},
		{"profile that stands for a namespace", `{apiVersion: projectcalico.org/v3, kind: Profile, metadata: {name: kns.prod}, spec: {}}`, nil},
		{"tier", `{apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: sec}, spec: {order: 10, defaultAction: Pass}}`, []string{`/calico/v1/policy/tier/sec/metadata {"order":10,"defaultAction":"Pass"}`}},
		{"network set", `{apiVersion: projectcalico.org/v3, kind: NetworkSet, metadata: {name: ext, namespace: prod}, spec: {nets: [10.0.0.1, bad, 10.1.1.1/16]}}`, []string{
			`/calico/v1/netset/prod%2fext {"nets":["10.0.0.1/32","10.1.0.0/16"],"labels":{"projectcalico.org/namespace":"prod"},"profile_ids":["kns.prod"]}`,
		}},
		{"host endpoint", `{apiVersion: projectcalico.org/v3, kind: HostEndpoint, metadata: {name: n1-eth0}, spec: {node: n1, interfaceName: eth0, expectedIPs: [10.0.0.1, "fd00::1"]}}`, []string{
			`/calico/v1/host/n1/endpoint/n1-eth0 {"name":"eth0","expected_ipv4_addrs":["10.0.0.1"],"expected_ipv6_addrs":["fd00::1"],"labels":null}`,
		}},
		{"range of cluster IPs", `{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: kubernetes}, spec: {cidrs: [10.96.0.0/16]}}`, []string{`/contiv/v1/servicecidrs/kubernetes {"cidrs":["10.96.0.0/16"]}`}},
		{"something else", `{apiVersion: v1, kind: Secret, metadata: {name: x}}`, []string{`! /v1, Kind=Secret: the datastore has no keys for this kind`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, keysOf(t, fromYAML(t, c.in), nil, false)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// A policy that an annotation stages is enforced by no reader.
func TestEncodeStaged(t *testing.T) {
	for kind, want := range map[model.PolicyKind]string{
		model.KindNetworkPolicy:       `/calico/v1/policy/tier/default/policy/prod%2fstaged:knp.default.web {"namespace":"prod","selector":"has(x)","types":["ingress"],"staged_action":"Set"}`,
		model.KindCalicoNetworkPolicy: `/calico/v1/policy/tier/default/policy/prod%2fstaged:web {"namespace":"prod","selector":"has(x)","types":["ingress"],"staged_action":"Set"}`,
		model.KindGlobalNetworkPolicy: `/calico/v1/policy/tier/default/policy/staged:web {"selector":"has(x)","types":["ingress"],"staged_action":"Set"}`,
		model.KindAdminNetworkPolicy:  "",
	} {
		p := &model.Policy{ID: model.PolicyID{Kind: kind, Name: "web"}, Staged: model.StagedSet, Tier: model.TierDefault, Selector: "has(x)", Ingress: true}
		if info, _ := kind.Info(); info.Namespaced {
			p.ID.Namespace, p.Namespace = "prod", "prod"
		}
		raw := fromYAML(t, `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: prod}, spec: {}}`)
		for _, refused := range []bool{false, true} {
			if got := strings.Join(keysOf(t, raw, p, refused), "; "); got != want {
				t.Errorf("%s, refused %v: %s\nwant %s", kind, refused, got, want)
			}
		}
	}
}

// A policy that was refused or that Calico cannot convert is written in the form that fails closed.
func TestEncodeFailsClosed(t *testing.T) {
	closed := &model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "prod", Name: "web"}, Tier: model.TierDefault, Namespace: "prod",
		Order: model.OrderKubernetes(), Selector: "has(x)", Ingress: true,
		InboundRules: []model.Rule{{Action: model.ActionDeny, Protocol: model.RuleProtocol{Number: 6}, Source: model.Peer{Ports: []model.PortMatch{{First: 1, Last: 9}}}}},
	}
	web := `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: prod}, spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: bad}}]}]}}`
	if d := cmp.Diff([]string{
		`/calico/v1/policy/tier/default/policy/prod%2fknp.default.web {"namespace":"prod","order":1000,"inbound_rules":[{"action":"deny","protocol":6,"src_ports":["1:9"]}],"selector":"has(x)","types":["ingress"]}`,
	}, keysOf(t, fromYAML(t, web), closed, true)); d != "" {
		t.Error(d)
	}
	if got := keysOf(t, fromYAML(t, web), nil, false); len(got) != 1 || !strings.HasPrefix(got[0], "! ") {
		t.Errorf("a rule that cannot be read: %q", got)
	}
	cluster := &model.Policy{ID: model.PolicyID{Kind: model.KindClusterNetworkPolicy, Name: "x"}, Tier: model.TierKubeAdmin, Selector: "all()", Egress: true}
	for _, text := range []string{
		`{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: x}, spec: {}}`,
		`{apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy, metadata: {name: x}, spec: {subject: {namespaces: {}}, ingress: [{action: Allow, ports: [{namedPort: http}], from: [{namespaces: {}}]}]}}`,
	} {
		want := []string{`/calico/v1/policy/tier/kube-admin/policy/kcnp.kube-admin.x {"selector":"all()","types":["egress"]}`}
		if d := cmp.Diff(want, keysOf(t, fromYAML(t, text), cluster, false)); d != "" {
			t.Error(d)
		}
		if _, err := Object(fromYAML(t, text), convert.Result{}); !errors.Is(err, errPolicyBeyond) {
			t.Errorf("without a model: %v", err)
		}
	}
	tier := `{apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: sec}, spec: {order: x}}`
	if d := cmp.Diff([]string{`/calico/v1/policy/tier/sec/metadata {"order":-1,"defaultAction":"Deny"}`},
		keysOf(t, fromYAML(t, tier), &model.Tier{Name: "sec", Order: model.OrderOf(-1), DefaultAction: model.TierDeny}, true)); d != "" {
		t.Error(d)
	}
	host := fromYAML(t, `{apiVersion: projectcalico.org/v3, kind: HostEndpoint, metadata: {name: h}, spec: {node: 1}}`)
	if got := keysOf(t, host, &model.HostEndpoint{ID: model.HostEndpointID{Name: "h"}}, true); len(got) != 1 || !strings.Contains(got[0], "spec.node: is missing") {
		t.Errorf("%q", got)
	}
}

// An encoded policy can be decoded, and then equals the model's policy.
func TestModelPolicyIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &model.Policy{
			ID:   model.PolicyID{Kind: model.KindClusterNetworkPolicy, Name: rapid.SampledFrom([]string{"x", "a.b"}).Draw(t, "name")},
			Tier: model.TierKubeAdmin, Order: model.OrderOf(float64(rapid.IntRange(-5, 1000).Draw(t, "order"))), Selector: "all()",
			Ingress: rapid.Bool().Draw(t, "ingress"), Egress: rapid.Bool().Draw(t, "egress"), Everywhere: rapid.Bool().Draw(t, "everywhere"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "rules") {
			r := model.Rule{Action: rapid.SampledFrom([]model.Action{model.ActionAllow, model.ActionPass}).Draw(t, "action")}
			r.Protocol = rapid.SampledFrom([]model.RuleProtocol{{}, {Name: "tcp"}, {Number: 47}}).Draw(t, "protocol")
			r.Destination.Ports = rapid.SampledFrom([][]model.PortMatch{nil, {{First: 80, Last: 80}}, {{Name: "http"}, {First: 1, Last: 9}}}).Draw(t, "ports")
			r.Source.Selector = rapid.SampledFrom([]string{"", "has(a)"}).Draw(t, "selector")
			if rapid.Bool().Draw(t, "icmp") {
				r.ICMP = &model.ICMPMatch{Type: 8, Code: 1, HasCode: rapid.Bool().Draw(t, "code")}
				if !r.ICMP.HasCode {
					r.ICMP.Code = 0
				}
			}
			p.InboundRules = append(p.InboundRules, r)
		}
		kv, err := encodeModelPolicy(p)
		if err != nil {
			t.Fatal(err)
		}
		u, err := datastore.Decode(kv.Key, kv.Value)
		if err != nil {
			t.Fatal(err)
		}
		have := u.Value.(*model.Policy)
		if id := u.Key.Object(); id != p.ID {
			t.Fatalf("%s is of %s, want %s", kv.Key, id, p.ID)
		}
		have.ID = p.ID
		if d := cmp.Diff(p, have); d != "" {
			t.Fatal(d)
		}
		back, ok := datastore.Tiered(datastore.Modern(kv))
		if !ok || back.Key != kv.Key || string(back.Value) != string(kv.Value) {
			t.Fatalf("by way of the other dialect %s %s became %s %s", kv.Key, kv.Value, back.Key, back.Value)
		}
	})
}

// A table returns deletes, moves of a key to another object, and base keys that return when an object is removed.
func TestTable(t *testing.T) {
	kv := func(key, value string) calico.KV { return calico.KV{Key: key, Value: []byte(value)} }
	table := NewTable([]calico.KV{kv("tier", "builtin")})
	pod, tier := model.Ref{Kind: model.KindPod, Name: "a"}, model.Ref{Kind: model.KindTier, Name: "t"}
	for _, c := range []struct {
		ref  model.Ref
		list []calico.KV
		want string
	}{
		{pod, []calico.KV{kv("n1/a", "1"), kv("x", "1")}, "n1/a=1 x=1"},
		{pod, []calico.KV{kv("n2/a", "2"), kv("x", "1")}, "n1/a= n2/a=2 x=1"},
		{tier, []calico.KV{kv("tier", "own")}, "tier=own"},
		{tier, nil, "tier=builtin"},
		{tier, nil, ""},
		{pod, nil, "n2/a= x="},
	} {
		var got []string
		for _, kv := range table.Apply(c.ref, c.list) {
			got = append(got, kv.Key+"="+string(kv.Value))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s %v: %q, want %q", c.ref, c.list, s, c.want)
		}
	}
	if len(table.keys) > 0 {
		t.Errorf("left behind: %v", table.keys)
	}
}

// Every built-in key and value can be decoded.
func TestBuiltinIsRead(t *testing.T) {
	for _, kv := range Builtin() {
		if _, err := datastore.Decode(kv.Key, kv.Value); err != nil {
			t.Error(err)
		}
	}
}

// FuzzEncode checks the encoder against the decoder: the keys of any pod decode to that pod.
func FuzzEncode(f *testing.F) {
	f.Add("web-0", "prod", "n1", "10.65.0.2", "app", "web", `["1.2.3.4"]`)
	f.Fuzz(func(t *testing.T, name, ns, node, ip, label, value, floating string) {
		o := &corev1.Pod{}
		o.Name, o.Namespace, o.Spec.NodeName, o.Status.PodIP = name, ns, node, ip
		o.Labels, o.Annotations = map[string]string{label: value}, map[string]string{annotationFloating: floating}
		list, err := Object(o, convert.Result{})
		if err != nil || len(list) == 0 || name == "" || ns == "" || strings.ContainsAny(name+ns+node, "/%") {
			return
		}
		u, err := datastore.Decode(list[0].Key, list[0].Value)
		if err != nil {
			t.Fatalf("%s %s: %v", list[0].Key, list[0].Value, err)
		}
		if w := u.Value.(*model.WorkloadEndpoint); u.Key.Workload != ns+"/"+name || w.ID.Node != node {
			t.Errorf("%s: %+v", list[0].Key, w)
		}
	})
}

// BenchmarkEncode encodes a pod in the form an informer has.
func BenchmarkEncode(b *testing.B) {
	u := fromYAML(b, `{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: prod, labels: {app: web}}, spec: {nodeName: n1, serviceAccountName: web}, status: {podIP: 10.65.0.2}}`)
	o, err := typed(u, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if list, err := Object(o, convert.Result{}); err != nil || len(list) != 1 {
			b.Fatal(list, err)
		}
	}
}
