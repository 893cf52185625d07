package trace

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/trace/hops"
)

// talkers returns a client, a server on its node and one on another node, and a Service for each.
func talkers(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/talkers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rulesOf returns a NetworkPolicy for one direction of pods. who is the app at the other end that the policy allows, "" for
// none.
func rulesOf(name, app, direction, who, more string) string {
	rules := ""
	if who != "" {
		peer := map[string]string{"Ingress": "from", "Egress": "to"}[direction]
		rules = fmt.Sprintf("\n  %s:\n  - %s: [{podSelector: {matchLabels: {app: %s}}}%s]", strings.ToLower(direction), peer, who, more)
	}
	return fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: prod}\nspec:\n  podSelector: {matchLabels: {app: %s}}\n  policyTypes: [%s]%s\n", name, app, direction, rules)
}

// allowing returns the policies that a flow of the client needs; with closed nothing else is allowed.
func allowing(closed bool) string {
	text := rulesOf("in", "server", "Ingress", "client", "") + rulesOf("out", "client", "Egress", "server", "")
	if closed {
		text += rulesOf("no-out", "server", "Egress", "", "") + rulesOf("no-in", "client", "Ingress", "", "")
	}
	return text
}

// talk is an open flow between the client and a server.
type talk struct {
	t       *testing.T
	c       *Cluster
	from    place
	request sim.Packet
	server  place
	answer  sim.Packet
	hops    string // hops of the last packet
}

// flow describes a talk.
type flow struct {
	renderer   agent.ServiceRenderer
	server, to string
	proto      model.Protocol
	vip, six   bool
	from       string // "": the client
}

func (f flow) String() string {
	return fmt.Sprintf("%s/%s/%s/%s/vip=%v", f.renderer, f.proto, f.server, f.to, f.vip)
}

// eachFlow calls f for flows of all kinds.
func eachFlow(f func(flow)) {
	for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		for i, server := range []string{"near", "far"} {
			for _, six := range []bool{false, true} {
				pod, vip := fmt.Sprintf("10.1.%d.3", i+1), fmt.Sprintf("10.96.0.%d", i+1)
				if six {
					pod, vip = fmt.Sprintf("[fd00:1:%d::3]", i+1), fmt.Sprintf("[fd00:96::%d]", i+1)
				}
				f(flow{renderer, server, strings.Trim(pod, "[]"), model.ICMP, false, six, ""})
				for _, k := range []struct {
					proto        model.Protocol
					port, behind int
				}{{model.TCP, 80, 8080}, {model.UDP, 53, 5353}, {model.TCP, 81, 40000}, {model.UDP, 54, 41000}} {
					f(flow{renderer, server, fmt.Sprintf("%s:%d", pod, k.behind), k.proto, false, six, ""})
					if !six || renderer == agent.RendererCNAT {
						f(flow{renderer, server, fmt.Sprintf("%s:%d", vip, k.port), k.proto, true, six, ""})
					}
				}
			}
		}
	}
}

// newTalk opens a flow from a separate port: NAT would treat a direct flow from the port of a Service's flow as that one.
func newTalk(t *testing.T, c *Cluster, f flow, port uint16) *talk {
	t.Helper()
	sender := f.from
	if sender == "" {
		sender = "pod:prod/client"
	}
	from, p, err := c.resolve(Question{From: sender, To: f.to, Protocol: f.proto.String()})
	if err != nil {
		t.Fatal(err)
	}
	if p.HasPorts() {
		p.SrcPort = port
	}
	k := &talk{t: t, c: c, from: from, request: p}
	k.must("open", k.client(p.Opening()) && k.back(k.answer))
	k.round("established")
	return k
}

func (k *talk) must(what string, ok bool) {
	k.t.Helper()
	if !ok {
		k.t.Fatalf("%s: does not get through\n%s", what, k.hops)
	}
}

// client sends a packet of the client, which the server will answer.
func (k *talk) client(p sim.Packet) bool {
	j := k.c.travel(k.from, p, nil)
	k.hops = strings.Join(hops.Lines(j.hops), "\n")
	if j.lost != "" {
		return false
	}
	k.server, k.answer = j.end, j.packet.Reply()
	return true
}

// back sends a packet of the server.
func (k *talk) back(p sim.Packet) bool {
	j := k.c.travel(k.server, p, nil)
	k.hops = strings.Join(hops.Lines(j.hops), "\n")
	return j.lost == "" && j.end.sameParty(k.from) && j.packet.Src == k.request.Dst && j.packet.SrcPort == k.request.DstPort
}

func (k *talk) asks() bool   { return k.client(k.request.GoingOn()) }
func (k *talk) pushes() bool { return k.back(k.answer.GoingOn()) }

// round is a request, the answer and, except for echoes, more packets of the server.
func (k *talk) round(what string) {
	k.t.Helper()
	k.must(what+": the client", k.asks())
	for range 2 {
		k.must(what+": the server", k.pushes())
	}
}

func talking(t *testing.T, renderer agent.ServiceRenderer, closed bool) *Cluster {
	t.Helper()
	c := NewCluster(Config{Agent: agent.Config{Services: config.ServedBy(renderer)}})
	t.Cleanup(c.Close)
	change(t, c, objects(t, talkers(t)+allowing(closed))...)
	return c
}

func change(t *testing.T, c *Cluster, changes ...event.Change) {
	t.Helper()
	if err := c.Apply(context.Background(), changes); err != nil {
		t.Fatal(err)
	}
}

// No request of a flow whose rule is revoked passes, whichever side sends first and however often. If nothing else allows
// the server's packets, they end with the next request.
func TestRevokedFlowsEnd(t *testing.T) {
	for _, revoked := range []string{"in", "out"} {
		for _, closed := range []bool{false, true} {
			for _, serverFirst := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/closed=%v/server-first=%v", revoked, closed, serverFirst), func(t *testing.T) {
					t.Parallel()
					left := 0
					eachCluster(t, closed, func(t *testing.T, c *Cluster, talks map[flow]*talk) {
						policy := rulesOf("in", "server", "Ingress", "", "")
						if revoked == "out" {
							policy = rulesOf("out", "client", "Egress", "", "")
						}
						change(t, c, objects(t, policy)...)
						for f, k := range talks {
							left += k.ends(f, revoked, closed, serverFirst)
						}
					})
					if left > 4 { // on the other node, by Services, of both protocols and kinds of ports
						t.Errorf("%d flows whose server's packets still reach the client", left)
					}
				})
			}
		}
	}
}

// ends tries to continue a flow. It returns 1 if the server's packets still arrive through a Service that nat44 translates:
// another list evaluates the client's egress to it, so that its own session stays.
func (k *talk) ends(f flow, revoked string, closed, serverFirst bool) (left int) {
	for range 5 {
		if serverFirst {
			k.pushes()
		}
		if k.asks() {
			k.t.Errorf("%v: a request passes\n%s", f, k.hops)
			return 0
		}
		if !serverFirst && k.pushes() {
			left = 1
		}
	}
	if f.vip && f.renderer == agent.RendererNAT44 && f.server == "far" && revoked == "out" {
		return left
	}
	if closed && left > 0 {
		k.t.Errorf("%v: a packet of the server passes\n%s", f, k.hops)
	}
	return 0
}

// An allowed flow continues after lists changed for other reasons, after agents restarted and after VPPs restarted,
// whichever side sends first. After a restart of VPP the client must send first.
func TestAllowedFlowsContinue(t *testing.T) {
	eachCluster(t, true, func(t *testing.T, c *Cluster, talks map[flow]*talk) {
		every := func(what string, clientFirst bool) {
			t.Helper()
			for f, k := range talks {
				if !clientFirst && !k.pushes() {
					t.Errorf("%v, %s: a packet of the server is lost\n%s", f, what, k.hops)
				}
				if !k.asks() || !k.pushes() {
					t.Errorf("%v, %s: ends\n%s", f, what, k.hops)
				}
			}
		}
		more := ", {podSelector: {matchLabels: {app: other}}}"
		other := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: other, namespace: prod, labels: {app: other}}\nspec: {nodeName: node-1, containers: [{name: c}]}\n" +
			"status: {phase: Running, podIP: 10.1.1.9, podIPs: [{ip: 10.1.1.9}, {ip: \"fd00:1:1::9\"}]}\n"
		change(t, c, objects(t, other+rulesOf("in", "server", "Ingress", "client", more)+rulesOf("out", "client", "Egress", "server", more))...)
		every("rules changed", false)
		change(t, c, objects(t, rulesOf("in-2", "server", "Ingress", "other", "")+rulesOf("out-2", "client", "Egress", "other", ""))...)
		every("policies were added", false)
		change(t, c, event.Change{Ref: model.Ref{Kind: model.Kind(model.KindNetworkPolicy), Namespace: "prod", Name: "in-2"}}, event.Change{Ref: model.Ref{Kind: model.Kind(model.KindNetworkPolicy), Namespace: "prod", Name: "out-2"}})
		every("policies were removed", true)
		for _, node := range c.Nodes() {
			if err := c.RestartAgent(context.Background(), node); err != nil {
				t.Fatal(err)
			}
		}
		every("agents restarted", false)
		for _, node := range c.Nodes() {
			if err := c.RestartVPP(context.Background(), node); err != nil {
				t.Fatal(err)
			}
		}
		for f, k := range talks {
			if f.vip { // the translation is gone, and no SYN makes a new one
				if f.proto != model.UDP {
					delete(talks, f)
				}
				k.asks()
			}
		}
		every("VPPs restarted", true)
	})
}

// eachCluster calls f for a cluster with each renderer and established flows of all kinds.
func eachCluster(t *testing.T, closed bool, f func(*testing.T, *Cluster, map[flow]*talk)) {
	t.Helper()
	clusters, talks := map[agent.ServiceRenderer]*Cluster{}, map[agent.ServiceRenderer]map[flow]*talk{}
	eachFlow(func(f flow) {
		if clusters[f.renderer] == nil {
			clusters[f.renderer], talks[f.renderer] = talking(t, f.renderer, closed), map[flow]*talk{}
		}
		talks[f.renderer][f] = newTalk(t, clusters[f.renderer], f, 50000+uint16(len(talks[f.renderer])))
	})
	for _, name := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		f(t, clusters[name], talks[name])
	}
}

// An additional pod that two policies allow changes two access lists in place, with each renderer: permits without a session
// let more pass, because all rules agree which packets make a session.
func TestMembersAreWrittenInPlace(t *testing.T) {
	for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		c := talking(t, renderer, true)
		change(t, c, objects(t, rulesOf("in-2", "server", "Ingress", "extra", "")+rulesOf("in-3", "server", "Ingress", "extra", ", {namespaceSelector: {}, podSelector: {matchLabels: {app: extra}}}")+
			rulesOf("out-2", "client", "Egress", "extra", ""))...)
		extra := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: prod, labels: {app: extra}}\nspec: {nodeName: node-2, containers: [{name: c}]}\n" +
			"status: {phase: Running, podIP: 10.1.2.%d, podIPs: [{ip: 10.1.2.%d}, {ip: \"fd00:1:2::%d\"}]}\n"
		change(t, c, objects(t, fmt.Sprintf(extra, "first", 8, 8, 8))...)
		more := objects(t, fmt.Sprintf(extra, "extra", 9, 9, 9))
		for _, step := range []struct {
			what    string
			changes []event.Change
		}{{"a pod more", more}, {"a pod less", []event.Change{{Ref: more[0].Ref}}}} {
			c.Sim("node-1").ClearLog()
			change(t, c, step.changes...)
			names := map[string]int{}
			for _, rec := range c.Sim("node-1").Log() {
				if strings.HasPrefix(rec.Name, "acl_") {
					names[rec.Name]++
				}
			}
			if names["acl_add_replace"] < 2 || len(names) != 1 {
				t.Errorf("%s: %s: %v", renderer, step.what, names)
			}
		}
	}
}

// A host endpoint's flows end when its rules are revoked, and continue when other rules change. A flow to which NAT gave the
// node's address continues, whatever its port.
func TestFlowsOfHostEndpoints(t *testing.T) {
	rules := func(in, out string) string {
		return fmt.Sprintf("---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: default.host}\nspec: {selector: host == 'yes', types: [Ingress, Egress], ingress: [%s], egress: [%s]}\n", in, out)
	}
	const (
		serve = "{action: Allow, protocol: TCP, destination: {ports: [8443]}}"
		dial  = "{action: Allow, protocol: TCP, destination: {ports: [443]}}, {action: Allow, protocol: UDP, destination: {ports: [5353]}}"
		more  = ", {action: Allow, protocol: TCP, destination: {ports: [444]}}"
	)
	for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		for _, serverFirst := range []bool{false, true} {
			c := talking(t, renderer, false)
			host := "---\napiVersion: projectcalico.org/v3\nkind: HostEndpoint\nmetadata: {name: node-1-uplink, labels: {host: \"yes\"}}\n" +
				"spec: {node: node-1, interfaceName: uplink, expectedIPs: [192.168.16.1]}\n"
			change(t, c, event.Change{Ref: model.Ref{Kind: model.Kind(model.KindNetworkPolicy), Namespace: "prod", Name: "out"}})
			change(t, c, objects(t, host+rules(serve, dial))...)
			var judged, passedOn []*talk
			port := uint16(50000)
			open := func(from, to string, proto model.Protocol) *talk {
				port++
				return newTalk(t, c, flow{renderer: renderer, from: from, to: to, proto: proto}, port)
			}
			judged = append(judged, open("external:198.51.100.7@node-1", "192.168.16.1:8443", model.TCP),
				open("node:node-1", "198.51.100.9:443", model.TCP), open("node:node-1", "198.51.100.9:5353", model.UDP))
			for range 8 {
				passedOn = append(passedOn, open("", "198.51.100.9:5353", model.UDP), open("", "198.51.100.9:443", model.TCP))
			}
			change(t, c, objects(t, rules(serve+more, dial+more))...)
			for _, k := range append(judged, passedOn...) {
				k.round("rules changed")
			}
			change(t, c, objects(t, rules("", ""))...)
			for _, k := range judged {
				k.ends(flow{from: k.from.String(), to: k.request.Dst.String(), proto: k.request.Proto}, "host", false, serverFirst)
			}
			for _, k := range passedOn {
				k.round("the host's rules revoked")
			}
		}
	}
}
