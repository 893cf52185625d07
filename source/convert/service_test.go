package convert

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

var plain = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// read decodes an object from YAML.
func read[T runtime.Object](t *testing.T, text string, into T) T {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return into
}

func readService(t *testing.T, spec string) *corev1.Service {
	return read(t, "metadata: {name: web}\n"+spec, &corev1.Service{})
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestServiceDefaults(t *testing.T) {
	got, err := Object(readService(t, `spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &model.Service{
		ID:           model.ServiceID{Namespace: "default", Name: "web"},
		ClusterIPs:   []netip.Addr{ip("10.96.0.1")},
		Ports:        []model.ServicePort{{Protocol: model.TCP, Port: 80}},
		Selectorless: true,
	}
	if d := cmp.Diff(model.Object(want), got, plain); d != "" {
		t.Error(d)
	}
}

func TestServiceWhole(t *testing.T) {
	got, err := Object(read(t, `
metadata:
  name: web
  namespace: shop
  labels: {service.kubernetes.io/service-proxy-name: other, x: y}
  annotations: {contiv-agent.io/weight: "2", else: ignored}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.1
  clusterIPs: [10.96.0.1, "fd00::1"]
  ipFamilies: [IPv4, IPv6]
  selector: {app: web}
  externalIPs: [203.0.113.9, 203.0.113.7, 203.0.113.9]
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  trafficDistribution: PreferSameZone
  publishNotReadyAddresses: true
  healthCheckNodePort: 31000
  sessionAffinity: ClientIP
  loadBalancerSourceRanges: ["198.51.100.77/24 ", 10.0.0.0/8, 198.51.100.0/24]
  ports:
  - {name: dns, port: 53, protocol: UDP, nodePort: 30053, targetPort: 5353}
  - {name: dns-tcp, port: 53, protocol: TCP, nodePort: 30053, targetPort: dns}
  - {name: assoc, port: 132, protocol: SCTP}
status:
  loadBalancer:
    ingress:
    - {ip: 203.0.113.80}
    - {ip: 203.0.113.80, ipMode: VIP}
    - {ip: 203.0.113.81, ipMode: Proxy}
    - {hostname: lb.example.com}
`, &corev1.Service{}))
	if err != nil {
		t.Fatal(err)
	}
	want := &model.Service{
		ID: model.ServiceID{Namespace: "shop", Name: "web"}, Type: model.LoadBalancer,
		ClusterIPs:  []netip.Addr{ip("10.96.0.1"), ip("fd00::1")},
		ExternalIPs: []netip.Addr{ip("203.0.113.7"), ip("203.0.113.9")},
		LoadBalancerIPs: []model.LoadBalancerIP{
			{Addr: ip("203.0.113.80")}, {Addr: ip("203.0.113.81"), Proxy: true},
		},
		LoadBalancerSourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("198.51.100.0/24")},
		Ports: []model.ServicePort{
			{Name: "dns", Protocol: model.UDP, Port: 53, NodePort: 30053},
			{Name: "dns-tcp", Protocol: model.TCP, Port: 53, NodePort: 30053},
			{Name: "assoc", Protocol: model.SCTP, Port: 132},
		},
		ExternalTrafficPolicy: model.PolicyLocal, InternalTrafficPolicy: model.PolicyLocal,
		SessionAffinityTimeout: 3 * time.Hour, PublishNotReadyAddresses: true, HealthCheckNodePort: 31000,
		TrafficDistribution: "PreferSameZone", ProxyName: "other",
		Annotations: map[string]string{"contiv-agent.io/weight": "2"},
	}
	if d := cmp.Diff(model.Object(want), got, plain); d != "" {
		t.Error(d)
	}
}

// For every rule that a service can break, the error names that field and no other.
func TestServiceRefused(t *testing.T) {
	const ports = "ports: [{port: 80}]"
	for _, c := range []struct{ spec, want string }{
		{`spec: {type: Magic, ports: [{port: 80}]}`, `spec.type: must be ClusterIP, NodePort, LoadBalancer or ExternalName ("Magic")`},
		{`spec: {}`, `spec.ports: must have at least one port`},
		{`spec: {ports: [{port: 0}]}`, `spec.ports[0].port: must be 1 to 65535 (0)`},
		{`spec: {ports: [{port: -1}]}`, `spec.ports[0].port: must be 1 to 65535 (-1)`},
		{`spec: {ports: [{port: 65536}]}`, `spec.ports[0].port: must be 1 to 65535 (65536)`},
		{`spec: {ports: [{port: 80, protocol: tcp}]}`, `spec.ports[0].protocol: must be TCP, UDP or SCTP ("tcp")`},
		{`spec: {ports: [{port: 80, protocol: ICMP}]}`, `spec.ports[0].protocol: must be TCP, UDP or SCTP ("ICMP")`},
		{`spec: {ports: [{port: 80, name: A}]}`, `spec.ports[0].name: ` + check.WantLabel + ` ("A")`},
		{`spec: {ports: [{port: 80, name: a}, {port: 81}]}`, `spec.ports[1].name: is missing: it is required when there are several ports`},
		{`spec: {ports: [{port: 80, name: a}, {port: 81, name: a}]}`, `spec.ports[1].name: must be unique within the service ("a")`},
		{`spec: {ports: [{port: 80, name: a}, {port: 80, name: b}]}`, `spec.ports[1].port: must be unique per protocol within the service ("TCP 80")`},
		{`spec: {ports: [{port: 80, targetPort: 70000}]}`, `spec.ports[0].targetPort: must be 1 to 65535 (70000)`},
		{`spec: {ports: [{port: 80, targetPort: "80"}]}`, `spec.ports[0].targetPort: must be a port number, or a port name: at most 15 lower-case letters, digits and '-', one of them a letter ("80")`},
		{`spec: {ports: [{port: 80, nodePort: 30080}]}`, `spec.ports[0].nodePort: must not be set unless the type is NodePort or LoadBalancer (30080)`},
		{`spec: {type: NodePort, ports: [{port: 80, nodePort: 70000}]}`, `spec.ports[0].nodePort: must be 1 to 65535 (70000)`},
		{
			`spec: {type: NodePort, ports: [{port: 80, name: a, nodePort: 30080}, {port: 81, name: b, nodePort: 30080}]}`,
			`spec.ports[1].nodePort: must be unique per protocol within the service ("TCP 30080")`,
		},
		{`spec: {clusterIP: 10.96.0.256, ` + ports + `}`, `spec.clusterIP: must be an IPv4 or IPv6 address in its plain form ("10.96.0.256")`},
		{`spec: {clusterIP: 10.96.000.1, ` + ports + `}`, `spec.clusterIP: must be an IPv4 or IPv6 address in its plain form ("10.96.000.1")`},
		{`spec: {clusterIP: "::ffff:10.96.0.1", ` + ports + `}`, `spec.clusterIP: must be an IPv4 or IPv6 address in its plain form ("::ffff:10.96.0.1")`},
		{`spec: {clusterIP: "fe80::1%eth0", ` + ports + `}`, `spec.clusterIP: must be an IPv4 or IPv6 address in its plain form ("fe80::1%eth0")`},
		{`spec: {clusterIP: 127.0.0.1, ` + ports + `}`, `spec.clusterIP: must not be a loopback address ("127.0.0.1")`},
		{`spec: {clusterIP: 10.96.0.2, clusterIPs: [10.96.0.1], ` + ports + `}`, `spec.clusterIP: must be the first of spec.clusterIPs ("10.96.0.2")`},
		{`spec: {clusterIPs: [10.96.0.1, 10.96.0.2], ` + ports + `}`, `spec.clusterIPs: must have one entry per address family`},
		{`spec: {clusterIPs: [10.96.0.1, "fd00::1", 10.96.0.3], ` + ports + `}`, `spec.clusterIPs: must have at most two entries (3)`},
		{`spec: {clusterIPs: [10.96.0.1, nonsense], ` + ports + `}`, `spec.clusterIPs[1]: must be an IPv4 or IPv6 address in its plain form ("nonsense")`},
		{`spec: {clusterIPs: [None, 10.96.0.1], ` + ports + `}`, `spec.clusterIPs: must have no address beside None`},
		{`spec: {type: NodePort, clusterIP: None, ` + ports + `}`, `spec.clusterIP: must not be None unless the type is ClusterIP`},
		{`spec: {clusterIPs: [10.96.0.1], ipFamilies: [IPv6], ` + ports + `}`, `spec.clusterIPs[0]: must be of family IPv6 as spec.ipFamilies says ("10.96.0.1")`},
		{`spec: {ipFamilies: [IPv5], ` + ports + `}`, `spec.ipFamilies[0]: must be IPv4 or IPv6 ("IPv5")`},
		{`spec: {externalIPs: [224.0.0.1], ` + ports + `}`, `spec.externalIPs[0]: must not be a multicast address ("224.0.0.1")`},
		{`spec: {externalIPs: [0.0.0.0], ` + ports + `}`, `spec.externalIPs[0]: must not be the unspecified address ("0.0.0.0")`},
		{`spec: {externalIPs: [255.255.255.255], ` + ports + `}`, `spec.externalIPs[0]: must not be the broadcast address ("255.255.255.255")`},
		{`spec: {externalIPs: [169.254.0.1], ` + ports + `}`, `spec.externalIPs[0]: must not be a link-local address ("169.254.0.1")`},
		{`spec: {externalTrafficPolicy: local, ` + ports + `}`, `spec.externalTrafficPolicy: must be Cluster or Local ("local")`},
		{`spec: {internalTrafficPolicy: Node, ` + ports + `}`, `spec.internalTrafficPolicy: must be Cluster or Local ("Node")`},
		{`spec: {trafficDistribution: Near, ` + ports + `}`, `spec.trafficDistribution: must be PreferSameZone, PreferSameNode or PreferClose ("Near")`},
		{`spec: {sessionAffinity: Cookie, ` + ports + `}`, `spec.sessionAffinity: must be None or ClientIP ("Cookie")`},
		{
			`spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}, ` + ports + `}`,
			`spec.sessionAffinityConfig.clientIP.timeoutSeconds: must be 1 to 86400 (0)`,
		},
		{
			`spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}, ` + ports + `}`,
			`spec.sessionAffinityConfig.clientIP.timeoutSeconds: must be 1 to 86400 (86401)`,
		},
		{`spec: {loadBalancerSourceRanges: [10.0.0.0/8], ` + ports + `}`, `spec.loadBalancerSourceRanges: must not be set unless the type is LoadBalancer`},
		{
			`spec: {type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0], ` + ports + `}`,
			`spec.loadBalancerSourceRanges[0]: must be an IPv4 or IPv6 range such as 10.1.0.0/16 ("10.0.0.0")`,
		},
		{`{spec: {` + ports + `}, status: {loadBalancer: {ingress: [{ip: 203.0.113.80}]}}}`, `status.loadBalancer.ingress: must not be set unless the type is LoadBalancer`},
		{
			`{spec: {type: LoadBalancer, ` + ports + `}, status: {loadBalancer: {ingress: [{ip: x}]}}}`,
			`status.loadBalancer.ingress[0].ip: must be an IPv4 or IPv6 address in its plain form ("x")`,
		},
		{
			`{spec: {type: LoadBalancer, ` + ports + `}, status: {loadBalancer: {ingress: [{ip: 0.0.0.0}]}}}`,
			`status.loadBalancer.ingress[0].ip: must not be the unspecified address ("0.0.0.0")`,
		},
		{
			`{spec: {type: LoadBalancer, ` + ports + `}, status: {loadBalancer: {ingress: [{ip: 203.0.113.80, ipMode: Magic}]}}}`,
			`status.loadBalancer.ingress[0].ipMode: must be VIP or Proxy ("Magic")`,
		},
		{`spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 65536, ` + ports + `}`, `spec.healthCheckNodePort: must be 1 to 65535 (65536)`},
		{`spec: {type: ExternalName}`, `spec.externalName: is missing: it is required when the type is ExternalName`},
		{`spec: {type: ExternalName, externalName: "not a name"}`, `spec.externalName: ` + check.WantSubdomain + ` ("not a name")`},
	} {
		text := c.spec
		if strings.HasPrefix(text, "{spec") { // a mapping with both spec and status
			text = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
			text = strings.Replace(text, ", status:", "\nstatus:", 1)
		}
		got, err := Object(readService(t, text))
		if want := "Service default/web: " + c.want; err == nil || err.Error() != want {
			t.Errorf("%s\n  got  %v\n  want %s", c.spec, err, want)
		}
		if got != nil {
			t.Errorf("%s: converted all the same", c.spec)
		}
	}
}

// Values that the API server accepts or that have no effect do not cause a refusal.
func TestServiceAccepted(t *testing.T) {
	service := func(t *testing.T, spec string) *model.Service {
		t.Helper()
		o, err := Object(readService(t, spec))
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		return o.(*model.Service)
	}
	if s := service(t, `spec: {clusterIP: None}`); !s.Headless || s.ClusterIPs != nil {
		t.Errorf("headless without ports: %+v", s)
	}
	if s := service(t, `spec: {clusterIPs: [None], ports: [{port: 80}]}`); !s.Headless || s.ClusterIPs != nil {
		t.Errorf("headless by list: %+v", s)
	}
	if s := service(t, `spec: {type: ExternalName, externalName: a.example.com., clusterIP: 10.96.0.1}`); s.Type != model.ExternalName || s.ClusterIPs != nil {
		t.Errorf("ExternalName that was a ClusterIP: %+v", s)
	}
	if s := service(t, `spec: {ports: [{port: 80}]}`); s.Headless || s.ClusterIPs != nil {
		t.Errorf("not allocated yet: %+v", s)
	}
	if s := service(t, `spec: {healthCheckNodePort: 31000, externalTrafficPolicy: Local, ports: [{port: 80}]}`); s.HealthCheckNodePort != 0 {
		t.Errorf("health check port without load balancer: %+v", s)
	}
	if s := service(t, `spec: {sessionAffinity: None, sessionAffinityConfig: {clientIP: {timeoutSeconds: 99999}}, ports: [{port: 80}]}`); s.SessionAffinityTimeout != 0 {
		t.Errorf("no affinity: %+v", s)
	}
	if s := service(t, `spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86400}}, ports: [{port: 80}]}`); s.SessionAffinityTimeout != 24*time.Hour {
		t.Errorf("longest affinity: %+v", s)
	}
	if s := service(t, `spec: {ports: [{port: 1, name: a}, {port: 65535, name: b}, {port: 1, name: c, protocol: UDP}]}`); len(s.Ports) != 3 {
		t.Errorf("extreme ports: %+v", s)
	}
	if s := service(t, `spec: {ports: [{port: 80, name: 1-or-more-than-fifteen-letters}]}`); s.Ports[0].Name != "1-or-more-than-fifteen-letters" {
		t.Errorf("long port name: %+v", s)
	}
}

// One error has all problems of an object; long lists and long values are cut.
func TestErrorJoinsProblems(t *testing.T) {
	_, err := Object(readService(t, `spec: {type: X, ports: [{port: 0, protocol: Z}]}`))
	want := `Service default/web: spec.type: must be ClusterIP, NodePort, LoadBalancer or ExternalName ("X"); ` +
		`spec.ports[0].protocol: must be TCP, UDP or SCTP ("Z"); spec.ports[0].port: must be 1 to 65535 (0)`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	var e *check.Error
	if !errors.As(err, &e) || e.Ref.String() != "Service default/web" || len(e.Problems) != 3 {
		t.Errorf("error carries %+v", e)
	}

	many := readService(t, `spec: {ports: [{port: 80}]}`)
	for range 20 {
		many.Spec.ExternalIPs = append(many.Spec.ExternalIPs, strings.Repeat("ä", 100))
	}
	_, err = Object(many)
	if err == nil || !strings.HasSuffix(err.Error(), `"ääääääääääää"…, 200 characters); and 12 more problems`) {
		t.Errorf("got %v", err)
	}
}
