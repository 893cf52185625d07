package connectivity

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/connectivity/probe"
)

const testNamespace = "the-test"

// config is that of the fake's tests.
func config(groups ...string) Config {
	return Config{
		Namespace: testNamespace, Agents: "system", Selector: "agent", Container: "agent", Groups: groups, Limit: 4 * time.Second, Start: time.Nanosecond, HostPort: 28571,
	}
}

func (f *fake) run(ctx context.Context, cfg Config) (*Report, string, error) {
	f.t.Helper()
	var text strings.Builder
	r, err := Run(ctx, cfg, f, f, func(r *Result) { r.WriteText(&text) })
	return r, text.String(), err
}

// A cluster that works passes, every group is measured in both families, and nothing is left.
func TestPasses(t *testing.T) {
	f := newFake(t)
	r, text, err := f.run(t.Context(), config())
	if err != nil || !r.Passed || r.count(Skipped) > 0 {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, want := range []string{
		"ok       agents    in sync, VPP connected                   3 nodes, VPP 25.10\n",
		"ok       pods      start                                    9 pods on 3 nodes\n",
		"ok       pods      other node, full-size packets, IPv6      12 paths\n",
		"ok       hosts     node to node, TCP, IPv4                  6 paths\n",
		"ok       services  NodePort, UDP, from nodes, IPv6          9 paths\n",
		"ok       services  externalTrafficPolicy Local, IPv4        6 paths\n",
		"ok       dns       each DNS server                          3 paths\n",
		"ok       policies  default deny, IPv4                       18 paths\n",
		"ok       policies  a revoked connection ends, IPv6          6 paths\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if len(f.namespaces) > 0 {
		t.Error("the namespace is left")
	}
}

// between breaks the paths between pods of two nodes.
func between(a, b string, change func(p *probe.Probe, o *probe.Outcome)) func(from, to string, p *probe.Probe, o *probe.Outcome) {
	return func(from, to string, p *probe.Probe, o *probe.Outcome) {
		here, there := strings.HasSuffix(from, a) && strings.HasSuffix(to, b), strings.HasSuffix(from, b) && strings.HasSuffix(to, a)
		if (here || there) && !strings.HasPrefix(to, roleHost) && !strings.HasPrefix(from, roleHost) {
			change(p, o)
		}
	}
}

func lost(_ *probe.Probe, o *probe.Outcome) {
	*o = probe.Outcome{ID: o.ID, Failed: 1, Symptom: probe.Silence, Error: "timeout"}
}

// Each pattern of failures has its cause.
func TestCauses(t *testing.T) {
	for name, c := range map[string]struct {
		fault  func(f *fake)
		groups []string
		check  string
		want   string
	}{
		"small MTU": {func(f *fake) {
			f.broken = between("node-1", "node-3", func(p *probe.Probe, o *probe.Outcome) {
				if p.Kind == probe.MTU {
					*o = probe.Outcome{ID: o.ID, Failed: 1, Symptom: probe.Silence, Error: "timeout", MTU: 1450, Passes: 1350}
				}
			})
		}, []string{GroupPods}, "other node, full-size packets, IPv4", "large packets are lost between node-1 and node-3, small ones arrive: pods have an MTU of 1450 bytes, and packets of up to 1350 pass: " +
			"with the 50 bytes of VXLAN the links between the nodes carry 1400 bytes, and --link-mtu is 1500."},
		"tunnel": {func(f *fake) { f.broken = between("node-1", "node-2", lost) }, []string{GroupPods, GroupHosts}, "other node, UDP, IPv6", "something drops VXLAN (UDP port 4789) between 192.168.16.1 and 192.168.16.2"},
		"missing route": {func(f *fake) {
			f.broken = between("node-1", "node-2", lost)
			f.differences = map[string][]string{"node-2": {"create config/vpp/v2/route/x"}}
		}, []string{GroupPods, GroupHosts}, "other node, TCP, IPv4", "VPP or the kernel of node-2 is not as its agent wants it, another program has changed it: create config/vpp/v2/route/x (kubectl contiv plan --node node-2"},
		"pod": {func(f *fake) {
			f.broken = func(from, to string, p *probe.Probe, o *probe.Outcome) {
				if from == "pod-node-2" || to == "pod-node-2" {
					lost(p, o)
				}
			}
		}, []string{GroupPods, GroupHosts}, "other node, TCP, IPv4", "pod-node-2 reaches nobody, nobody reaches it, and other pods of node-2 work"},
		"host link": {func(f *fake) {
			f.broken = func(from, to string, p *probe.Probe, o *probe.Outcome) {
				if from == "host-node-2" && !strings.HasPrefix(to, roleHost) {
					lost(p, o)
				}
			}
		}, []string{GroupPods, GroupHosts}, "node to pods, TCP, IPv4", "processes of node-2 reach no pod, and pods reach each other: the host link is down"},
		"into a node": {func(f *fake) {
			f.broken = func(_, to string, p *probe.Probe, o *probe.Outcome) {
				if to == "host-node-2" {
					lost(p, o)
				}
			}
		}, []string{GroupHosts}, "pods to node, UDP, IPv4", "pods do not reach node-2 at its own address, and node-2 reaches pods: a firewall"},
		"endpoint": {func(f *fake) {
			f.stale = "10.1.9.9"
			f.broken = service(f, clusterIP, func(p *probe.Probe, o *probe.Outcome) {
				if p.Times > 1 {
					o.Failed, o.Symptom, o.Error = 3, probe.Silence, "timeout"
				}
			})
		}, []string{GroupServices}, "ClusterIP, TCP, from pods, IPv4", "Service cluster-ip has an endpoint that does not exist: EndpointSlice /cluster-ip-abc has the endpoint 10.1.9.9"},
		"translation": {func(f *fake) { f.broken = service(f, affinity, lost) }, []string{GroupServices}, "session affinity, IPv4", "VPP of node-1 does not translate the Service's address"},
		"affinity": {func(f *fake) {
			f.broken = service(f, affinity, func(_ *probe.Probe, o *probe.Outcome) { o.Answers[0].Server = "pod-node-3" })
		}, []string{GroupServices}, "session affinity, IPv6", "the connections are answered, but not as the Service asks"},
		"node port": {func(f *fake) { f.broken = service(f, nodePort, lost) }, []string{GroupServices}, "NodePort, TCP, from nodes, IPv4", "a firewall drops the port before VPP gets the packets"},
		"masquerade": {func(f *fake) {
			f.broken = service(f, nodePortLocal, func(_ *probe.Probe, o *probe.Outcome) { o.Answers[0].Client = "192.0.2.1" })
		}, []string{GroupServices}, "externalTrafficPolicy Local, IPv4", "another program translates the client's address at node-1"},
		"policy": {func(f *fake) {
			f.broken = func(_, to string, p *probe.Probe, o *probe.Outcome) {
				if to == "dns" {
					lost(p, o)
				}
			}
			f.traces = func(q Question) string {
				if q.To == "service:kube-system/kube-dns:53" {
					return "denied: NetworkPolicy kube-system/deny"
				}
				return ""
			}
		}, []string{GroupDNS}, "kubernetes.default", "as the cluster is configured, the packet does not pass: denied: NetworkPolicy kube-system/deny"},
		"DNS": {func(f *fake) {
			f.broken = func(_, to string, p *probe.Probe, o *probe.Outcome) {
				if to == "dns" {
					lost(p, o)
				}
			}
		}, []string{GroupDNS}, "each DNS server", "no DNS server answers"},
		"no agent":   {func(f *fake) { f.waiting = map[string]string{"node-2": ""} }, nil, "in sync, VPP connected", "node-2 has no agent: the DaemonSet's nodeSelector or tolerations exclude it"},
		"crash loop": {func(f *fake) { f.waiting = map[string]string{"node-2": "CrashLoopBackOff"} }, nil, "in sync, VPP connected", "the agent of node-2 is down: pods there keep their network"},
		"silence":    {func(f *fake) { f.trouble["node-3"] = nil }, nil, "in sync, VPP connected", "the agent of node-3 is down"},
		"VPP": {func(f *fake) {
			f.trouble["node-3"] = &status.Status{Problems: []status.Problem{{Object: "VPP", State: "FAILED", Text: "not connected"}}}
		}, nil, "in sync, VPP connected", "VPP of node-3 does not run, or hangs"},
		"sandbox":      {func(f *fake) { f.late = map[string]string{"pod-node-2": "no address is free"} }, []string{GroupPods}, "start", "the CNI plugin or its agent refuses pods on node-2"},
		"not enforced": {func(f *fake) { f.unenforced = true }, []string{GroupPolicies}, "default deny, IPv4", "policies are not enforced at peer-node-1"},
		"reclassify":   {func(f *fake) { f.noReclassif = true }, []string{GroupPolicies}, "a revoked connection ends, IPv4", "acl-plugin { reclassify sessions 1 }"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			c.fault(f)
			cfg := config(c.groups...)
			if cfg.Limit = time.Second; c.groups == nil {
				cfg.Groups = []string{GroupAgents}
			}
			r, text, err := f.run(t.Context(), cfg)
			if err != nil || r.Passed {
				t.Fatalf("passed: %t, %v", r.Passed, err)
			}
			for _, res := range r.Results {
				for _, p := range res.Failures {
					if p.From == "" || p.Reason == "" || p.To != "" && (p.Kind == "" || p.Address == "") {
						t.Errorf("%s: a failure lacks a field: %+v", res.Check, p)
					}
				}
				if res.Check == c.check && res.State == Failed && len(res.Failures) > 0 && strings.Contains(strings.Join(res.Causes, "\n"), c.want) {
					return
				}
			}
			t.Errorf("no cause %q of %q in\n%s", c.want, c.check, text)
		})
	}
}

// service breaks the paths by a Service.
func service(f *fake, name string, change func(p *probe.Probe, o *probe.Outcome)) func(from, to string, p *probe.Probe, o *probe.Outcome) {
	return func(_, _ string, p *probe.Probe, o *probe.Outcome) {
		s := f.services[name]
		for _, ip := range s.Spec.ClusterIPs {
			if strings.Contains(p.To, ip+":80") || strings.Contains(p.To, "["+ip+"]:80") {
				change(p, o)
				return
			}
		}
		for _, port := range nodePortsOf(s, 4) {
			if strings.HasSuffix(p.To, ":"+strconv.Itoa(int(port.NodePort))) {
				change(p, o)
			}
		}
	}
}

// Without DNS its checks are skipped, and the test passes.
func TestNoDNSIsSkipped(t *testing.T) {
	f := newFake(t)
	f.noDNS = true
	r, text, err := f.run(t.Context(), config(GroupDNS))
	if err != nil || !r.Passed || !strings.Contains(text, "skipped  dns       kubernetes.default                       no cluster DNS found: pods ask 10.96.0.10") {
		t.Errorf("%v\n%s", err, text)
	}
}

// A test that is interrupted removes its namespace, and does not claim success.
func TestInterrupted(t *testing.T) {
	f := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.onExec = cancel
	r, _, err := f.run(ctx, config())
	if err == nil || err.Error() != "interrupted" || r.Passed || len(f.namespaces) > 0 {
		t.Errorf("%v, passed %t, namespaces %v", err, r.Passed, f.namespaces)
	}
}

// The test takes no namespace that is not its own, and keeps its own if asked.
func TestNamespace(t *testing.T) {
	f := newFake(t)
	cfg := config(GroupPods)
	cfg.Keep = true
	if _, text, err := f.run(t.Context(), cfg); err != nil || len(f.namespaces) != 1 {
		t.Fatalf("%v\n%s", err, text)
	}
	cfg.Keep = false
	if _, text, err := f.run(t.Context(), cfg); err != nil || len(f.namespaces) > 0 || f.log[0] != "delete networkpolicies --all --namespace=the-test" {
		t.Errorf("%v %q\n%s", err, f.log, text)
	}
	cfg.Keep = true
	if _, _, err := f.run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	f.namespaces[0].Labels = nil
	f.log = nil
	if _, _, err := f.run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "namespace the-test exists, and is not of this test") || f.log != nil {
		t.Errorf("%v, %q", err, f.log)
	}
}

// Nodes can be chosen; an unknown one is an error.
func TestNodes(t *testing.T) {
	cfg := config(GroupPods)
	cfg.Nodes = []string{"node-2"}
	if r, text, err := newFake(t).run(t.Context(), cfg); err != nil || !r.Passed || strings.Contains(text, "other node") || !strings.Contains(text, "3 pods on 1 node\n") {
		t.Errorf("%v\n%s", err, text)
	}
	cfg.Nodes = []string{"node-9"}
	if _, _, err := newFake(t).run(t.Context(), cfg); err == nil || err.Error() != "no node is named node-9" {
		t.Error(err)
	}
}
