package convert

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

func TestEndpointSlice(t *testing.T) {
	got, err := Object(read(t, `
metadata:
  name: web-1
  namespace: shop
  labels: {kubernetes.io/service-name: web}
  annotations: {endpoints.kubernetes.io/last-change-trigger-time: "2026-01-31T12:00:00+01:00"}
addressType: IPv4
ports:
- {name: web, port: 8080}
- {name: udp, port: 53, protocol: UDP}
- {name: none}
- {name: zero, port: 0}
- {port: 81}
endpoints:
- addresses: [10.1.1.3, 10.1.1.99]
  conditions: {ready: false, serving: true, terminating: true}
  zone: zone-a
- addresses: [10.1.1.2]
  nodeName: node-1
  targetRef: {kind: Pod, name: web-0}
  hints: {forZones: [{name: b}, {name: a}, {name: b}], forNodes: [{name: node-1}]}
- addresses: [10.1.1.4]
  conditions: {ready: false}
  targetRef: {kind: Node, name: "n"}
`, &discoveryv1.EndpointSlice{}))
	if err != nil {
		t.Fatal(err)
	}
	want := &model.EndpointSlice{
		ID: model.SliceID{Namespace: "shop", Name: "web-1"}, Service: model.ServiceID{Namespace: "shop", Name: "web"},
		Ports: []model.EndpointPort{
			{Protocol: model.TCP, Port: 81}, {Name: "udp", Protocol: model.UDP, Port: 53}, {Name: "web", Protocol: model.TCP, Port: 8080},
		},
		Endpoints: []model.Endpoint{
			{
				Addr: ip("10.1.1.2"), Ready: true, Serving: true, NodeName: "node-1", Pod: model.PodID{Namespace: "shop", Name: "web-0"},
				ForZones: []string{"a", "b"}, ForNodes: []string{"node-1"},
			},
			{Addr: ip("10.1.1.3"), Serving: true, Terminating: true, Zone: "zone-a"},
			{Addr: ip("10.1.1.4"), Serving: true},
		},
		TriggerTime: time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC),
	}
	if d := cmp.Diff(model.Object(want), got, plain); d != "" {
		t.Error(d)
	}
}

func TestEndpointSliceOfNames(t *testing.T) {
	o, err := Object(read(t, `{metadata: {name: X}, addressType: FQDN, endpoints: [{addresses: [a.example.com]}]}`, &discoveryv1.EndpointSlice{}))
	if o != nil || err != nil {
		t.Errorf("got %v, %v; want nothing", o, err)
	}
}

func TestInvalidObjectIsRefused(t *testing.T) {
	eps := func(n int) string { return strings.Repeat("{addresses: [10.1.1.1]}, ", n) }
	for _, c := range []struct {
		kind runtime.Object
		text string
		want string
	}{
		{&discoveryv1.EndpointSlice{}, `{metadata: {name: s}}`, `EndpointSlice default/s: addressType: must be IPv4, IPv6 or FQDN ("")`},
		{
			&discoveryv1.EndpointSlice{}, `{metadata: {name: s}, addressType: IPv4, endpoints: [{addresses: ["fd00::1"]}]}`,
			`EndpointSlice default/s: endpoints[0].addresses[0]: must be of the slice's addressType ("fd00::1")`,
		},
		{
			&discoveryv1.EndpointSlice{}, `{metadata: {name: s}, addressType: IPv6, endpoints: [{addresses: [10.1.1.1]}]}`,
			`EndpointSlice default/s: endpoints[0].addresses[0]: must be of the slice's addressType ("10.1.1.1")`,
		},
		{
			&discoveryv1.EndpointSlice{}, `{metadata: {name: s}, addressType: IPv4, endpoints: [{addresses: []}]}`,
			`EndpointSlice default/s: endpoints[0].addresses: must have 1 to 100 entries (0)`,
		},
		{
			&discoveryv1.EndpointSlice{}, `{metadata: {name: s}, addressType: IPv4, endpoints: [{addresses: [10.1.1.1, 10.1.1.01]}]}`,
			`EndpointSlice default/s: endpoints[0].addresses[1]: must be an IPv4 or IPv6 address in its plain form ("10.1.1.01")`,
		},
		{
			&discoveryv1.EndpointSlice{}, `{metadata: {name: s}, addressType: IPv4, endpoints: [{addresses: [10.1.1.1], nodeName: "N"}]}`,
			`EndpointSlice default/s: endpoints[0].nodeName: ` + check.WantSubdomain + ` ("N")`,
		},
		{
			&discoveryv1.EndpointSlice{}, `{metadata: {name: s}, addressType: IPv4, endpoints: [` + eps(1001) + `]}`,
			`EndpointSlice default/s: endpoints: must have at most 1000 entries (1001)`,
		},
		{
			&discoveryv1.EndpointSlice{}, `{metadata: {name: s}, addressType: IPv4, endpoints: [{addresses: [10.1.1.1], hints: {forZones: [{name: ""}]}}]}`,
			`EndpointSlice default/s: endpoints[0].hints.forZones: must not name an empty zone or node`,
		},
		{
			&discoveryv1.EndpointSlice{}, `{metadata: {name: s}, addressType: IPv4, ports: [{name: a, port: 1}, {name: a, port: 2}]}`,
			`EndpointSlice default/s: ports[1].name: must be unique within the slice ("a")`,
		},
		{
			&discoveryv1.EndpointSlice{}, `{metadata: {name: s}, addressType: IPv4, ports: [{port: 65536}]}`,
			`EndpointSlice default/s: ports[0].port: must be 1 to 65535 (65536)`,
		},
		{
			&discoveryv1.EndpointSlice{}, `{metadata: {name: s}, addressType: IPv4, ports: [{port: 1, protocol: X}]}`,
			`EndpointSlice default/s: ports[0].protocol: must be TCP, UDP or SCTP ("X")`,
		},
		{&corev1.Pod{}, `{metadata: {name: p}, status: {podIPs: [{ip: 10.1.1.1}, {ip: 10.1.1.2}]}}`, `Pod default/p: status.podIPs: must have one entry per address family`},
		{&corev1.Pod{}, `{metadata: {name: p}, status: {podIP: 10.1.1.9, podIPs: [{ip: 10.1.1.1}]}}`, `Pod default/p: status.podIP: must be the first of status.podIPs ("10.1.1.9")`},
		{&corev1.Pod{}, `{metadata: {name: p}, status: {podIP: 10.1.1}}`, `Pod default/p: status.podIP: must be an IPv4 or IPv6 address in its plain form ("10.1.1")`},
		{&corev1.Pod{}, `{metadata: {name: p}, spec: {nodeName: "N"}}`, `Pod default/p: spec.nodeName: ` + check.WantSubdomain + ` ("N")`},
		{
			&corev1.Pod{}, `{metadata: {name: p}, spec: {containers: [{name: c, ports: [{containerPort: 0}]}]}}`,
			`Pod default/p: spec.containers[0].ports[0].containerPort: must be 1 to 65535 (0)`,
		},
		{&corev1.Pod{}, `{metadata: {name: p, namespace: "N"}}`, `Pod N/p: metadata.namespace: ` + check.WantLabel + ` ("N")`},
		{&corev1.Pod{}, `{metadata: {name: p, labels: {a b: c}}}`, `Pod default/p: metadata.labels[a b]: its key must be a qualified name: [DNS name/]at most 63 letters, digits, '-', '_' and '.'`},
		{
			&corev1.Pod{}, `{metadata: {name: p, labels: {a: "b c"}}}`,
			`Pod default/p: metadata.labels[a]: must be at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends ("b c")`,
		},
		{&corev1.Node{}, `{metadata: {name: "n"}, spec: {podCIDRs: [10.1.1.0]}}`, `Node n: spec.podCIDRs[0]: must be an IPv4 or IPv6 range such as 10.1.0.0/16 ("10.1.1.0")`},
		{&corev1.Node{}, `{metadata: {name: "n"}, spec: {podCIDR: x}}`, `Node n: spec.podCIDR: must be an IPv4 or IPv6 range such as 10.1.0.0/16 ("x")`},
		{&corev1.Node{}, `{metadata: {name: "n"}, spec: {podCIDR: 10.1.2.0/24, podCIDRs: [10.1.1.0/24]}}`, `Node n: spec.podCIDR: must be the first of spec.podCIDRs ("10.1.2.0/24")`},
		{&corev1.Node{}, `{metadata: {name: "n"}, spec: {podCIDRs: [10.1.1.0/24, 10.1.2.0/24]}}`, `Node n: spec.podCIDRs: must have one entry per address family`},
		{&corev1.Node{}, `{metadata: {name: "n"}, status: {addresses: [{type: InternalIP, address: x}]}}`, `Node n: status.addresses[0].address: must be an IPv4 or IPv6 address in its plain form ("x")`},
		{&corev1.Namespace{}, `{metadata: {name: a.b}}`, `Namespace a.b: metadata.name: ` + check.WantLabel + ` ("a.b")`},
		{&corev1.Namespace{}, `{metadata: {generateName: a}}`, `Namespace : metadata.name: is missing`},
		{&networkingv1.ServiceCIDR{}, `{metadata: {name: c}}`, `ServiceCIDR c: spec.cidrs: must have at least one range`},
		{&networkingv1.ServiceCIDR{}, `{metadata: {name: c}, spec: {cidrs: [10.0.0.0/16, 10.1.0.0/16]}}`, `ServiceCIDR c: spec.cidrs: must have one entry per address family`},
	} {
		got, err := Object(read(t, c.text, c.kind))
		if err == nil || err.Error() != c.want {
			t.Errorf("%.200s\n  got  %v\n  want %s", c.text, err, c.want)
		}
		if got != nil {
			t.Errorf("%.200s: converted all the same", c.text)
		}
	}
}

func TestValidObjectIsAccepted(t *testing.T) {
	long := strings.Repeat("a.", 126) + "a"
	for _, c := range []struct {
		kind runtime.Object
		text string
		want model.Object
	}{
		{&corev1.Pod{}, `
metadata: {name: ` + long + `, labels: {a: b}, annotations: {a: b, contiv-agent.io/source-check: "false", cni.projectcalico.org/allowedSourcePrefixes: "[]"}}
spec:
  nodeName: node-1
  hostNetwork: true
  serviceAccountName: sa
  containers:
  - {name: a, ports: [{containerPort: 80, name: http}, {containerPort: 81}]}
  - {name: b, ports: [{containerPort: 82, name: http}, {containerPort: 53, name: dns, protocol: UDP}]}
  initContainers:
  - {name: once, ports: [{containerPort: 90, name: once}]}
  - {name: sidecar, restartPolicy: Always, ports: [{containerPort: 91, name: side}]}
status: {phase: Succeeded, podIPs: [{ip: 10.1.1.1}, {ip: "fd00::1"}]}
`, &model.Pod{
			ID: model.PodID{Namespace: "default", Name: long}, Labels: map[string]string{"a": "b"}, NodeName: "node-1", HostNetwork: true,
			Finished: true, ServiceAccount: "sa", IPs: []netip.Addr{ip("10.1.1.1"), ip("fd00::1")},
			Annotations: map[string]string{model.AnnotationSourceCheck: "false", model.AnnotationAllowedSources: "[]"},
			Ports: []model.NamedPort{
				{Name: "http", Protocol: model.TCP, Port: 80}, {Name: "dns", Protocol: model.UDP, Port: 53}, {Name: "side", Protocol: model.TCP, Port: 91},
			},
			ContainerPorts: []model.ContainerPort{
				{Protocol: model.TCP, Port: 80},
				{Protocol: model.TCP, Port: 81},
				{Protocol: model.TCP, Port: 82},
				{Protocol: model.TCP, Port: 91},
				{Protocol: model.UDP, Port: 53},
			},
		}},
		{
			&corev1.Pod{}, `{metadata: {name: p}, status: {phase: Pending, podIP: 10.1.1.1}}`,
			&model.Pod{ID: model.PodID{Namespace: "default", Name: "p"}, IPs: []netip.Addr{ip("10.1.1.1")}},
		},
		{&corev1.Node{}, `
metadata: {name: "n", labels: {topology.kubernetes.io/zone: z}}
spec: {podCIDR: 10.1.1.7/24}
status:
  addresses:
  - {type: Hostname, address: n}
  - {type: ExternalIP, address: 203.0.113.1}
  - {type: InternalIP, address: 192.168.16.2}
  - {type: InternalIP, address: 127.0.0.1}
  - {type: InternalIP, address: 192.168.16.1}
`, &model.Node{
			Name: "n", Labels: map[string]string{"topology.kubernetes.io/zone": "z"}, Zone: "z",
			InternalIPs: []netip.Addr{ip("192.168.16.2"), ip("192.168.16.1")}, ExternalIPs: []netip.Addr{ip("203.0.113.1")},
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")},
		}},
		{
			&corev1.Node{}, `{metadata: {name: "n"}, spec: {taints: [{key: other, effect: NoSchedule}, {key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}}`,
			&model.Node{Name: "n", Leaving: true},
		},
		{&corev1.Node{}, `{metadata: {name: "n", deletionTimestamp: "2026-01-01T00:00:00Z"}}`, &model.Node{Name: "n", Leaving: true}},
		{&corev1.Node{}, `{metadata: {name: "n"}, spec: {unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]}}`, &model.Node{Name: "n"}},
		{&corev1.Namespace{}, `{metadata: {name: "n", labels: {a: b}}}`, &model.Namespace{Name: "n", Labels: map[string]string{"a": "b"}}},
		{
			&networkingv1.ServiceCIDR{}, `{metadata: {name: c}, spec: {cidrs: [10.96.0.0/16, "fd00::/112"]}}`,
			&model.ServiceCIDR{Name: "c", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00::/112")}},
		},
		{
			&discoveryv1.EndpointSlice{}, `{metadata: {name: s, annotations: {endpoints.kubernetes.io/last-change-trigger-time: soon}}, addressType: IPv6}`,
			&model.EndpointSlice{ID: model.SliceID{Namespace: "default", Name: "s"}, IPv6: true},
		},
	} {
		got, err := Object(read(t, c.text, c.kind))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if d := cmp.Diff(c.want, got, plain); d != "" {
			t.Errorf("%s:\n%s", c.text, d)
		}
		if ref, ok := Ref(c.kind); !ok || ref != got.Ref() {
			t.Errorf("Ref gives %v, the object %v", ref, got.Ref())
		}
	}
}

func TestThousandEndpoints(t *testing.T) {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	s.Name = "big"
	for i := range 1000 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)}})
	}
	o, err := Object(s)
	if err != nil || len(o.(*model.EndpointSlice).Endpoints) != 1000 {
		t.Errorf("a full slice: %v", err)
	}
}

func TestUnknownKind(t *testing.T) {
	if _, err := Object(&corev1.Secret{}); !errors.Is(err, ErrUnknownKind) {
		t.Errorf("Secret: %v", err)
	}
	if _, ok := Ref(&corev1.Secret{}); ok {
		t.Error("Secret has a Ref")
	}
}
