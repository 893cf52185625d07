package trace

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/trace/hops"
)

// signalling allows associations to the pods of web on two ports of SCTP, and from locked to one of them.
const signalling = `
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: signalling, namespace: prod}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: client}}}]
    ports: [{port: 9000, endPort: 9003, protocol: SCTP}]
  - ports: [{port: 36412, protocol: SCTP}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: asks, namespace: prod}
spec:
  podSelector: {matchLabels: {app: other}}
  policyTypes: [Egress]
  egress:
  - to: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 36412, protocol: SCTP}, {port: 9001, protocol: SCTP}]
`

// The answer about SCTP depends on the port, and names the policy whose rule decides about the INIT.
func TestSCTPAnswers(t *testing.T) {
	for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		t.Run(string(renderer), func(t *testing.T) {
			c := cluster(t, Config{Agent: agent.Config{Services: config.ServedBy(renderer)}}, guarded+signalling)
			const (
				first    = "allowed by NetworkPolicy prod/signalling ingress rule 1"
				second   = "allowed by NetworkPolicy prod/signalling ingress rule 2"
				asks     = "allowed by NetworkPolicy prod/asks egress rule 1"
				isolated = "denied: NetworkPolicy prod/signalling, prod/web isolate prod/web-1 for ingress and no rule allows it"
				stays    = "denied: NetworkPolicy prod/asks isolates prod/other for egress and no rule allows it"
			)
			for _, tc := range []struct {
				from, to string
				verdict  Verdict
				reason   string
			}{
				{"pod:prod/client", "pod:prod/web-1:9000", Delivered, first},
				{"pod:prod/client", "pod:prod/web-1:9003", Delivered, first},
				{"pod:prod/client", "[fd00:1::2]:9003", Delivered, first},
				{"pod:prod/client", "pod:prod/web-1:9004", Dropped, isolated},
				{"pod:prod/client", "[fd00:1::2]:9004", Dropped, isolated},
				{"pod:prod/client", "pod:prod/web-1:36412", Delivered, second},
				{"pod:prod/client", "pod:prod/web-1:80", Dropped, isolated},
				{"pod:prod/other", "pod:prod/web-1:36412", Delivered, asks + ", " + second},
				{"pod:prod/other", "pod:prod/web-1:9001", Dropped, isolated},
				{"pod:prod/other", "pod:prod/web-1:9002", Dropped, stays},
				{"pod:prod/other", "[fd00:1::2]:36412", Delivered, asks + ", " + second},
				{"pod:prod/other", "[fd00:2::2]:9001", Dropped, strings.Replace(isolated, "web-1", "web-2", 1)},
				{"pod:prod/other", "[fd00:1::2]:9002", Dropped, stays},
				{"pod:prod/other", "pod:prod/client:36412", Dropped, stays},
				{"pod:prod/client", "pod:prod/other:36412", Delivered, "delivered, and the reply arrives"},
			} {
				if renderer == agent.RendererNAT44 && !strings.HasPrefix(tc.to, "[") {
					continue // it replaces the addresses of SCTP clients by the node's
				}
				a := c.Answer(Question{tc.from, tc.to, "SCTP"})
				if a.Verdict != tc.verdict || !strings.Contains(a.Reason, tc.reason) || a.Error != "" {
					t.Errorf("%s -> %s: %s %s %s\nwant %s %s", tc.from, tc.to, a.Verdict, a.Reason, a.Error, tc.verdict, tc.reason)
					for _, o := range a.Outcomes {
						t.Log(strings.Join(o.Hops, "\n"))
					}
				}
			}
		})
	}
}

// An open association continues, and does not permit another one on another port of the same pods.
func TestSCTPConnection(t *testing.T) {
	c := cluster(t, Config{Agent: agent.Config{Services: config.ServedBy(agent.RendererCNAT)}}, guarded+signalling)
	k, _, err := c.Connect(Question{"pod:prod/client", "pod:prod/web-2:9000", "SCTP"}, 5000, "")
	if err != nil {
		t.Fatal(err)
	}
	if o, err := k.Send(); err != nil || o.Verdict != Delivered {
		t.Errorf("DATA: %+v, %v", o, err)
	}
	for from, to := range map[string]string{"pod:prod/client": "pod:prod/web-2:9004", "pod:prod/other": "pod:prod/web-2:9000"} {
		if a := c.Answer(Question{from, to, "SCTP"}); a.Verdict != Dropped {
			t.Errorf("%s -> %s: %s %s", from, to, a.Verdict, a.Reason)
		}
	}
	if o, err := k.Send(); err != nil || o.Verdict != Delivered {
		t.Errorf("DATA after that: %+v, %v", o, err)
	}
}

// gates returns Calico policies for the server's ingress and the client's egress on one SCTP port, in addition to the given
// denials. With closed, policies also deny the opposite directions, except one port of SCTP with other pods.
func gates(closed bool, deniedIn, deniedOut string) string {
	const head = "---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: default.%s}\nspec: {selector: app == '%s', types: [%s], %s: [%s{action: Allow, protocol: SCTP, %sdestination: {ports: [3868]}}]}\n"
	text := fmt.Sprintf(head, "in", "server", "Ingress", "ingress", deniedIn, "") + fmt.Sprintf(head, "out", "client", "Egress", "egress", deniedOut, "")
	if closed {
		text += fmt.Sprintf(head, "no-out", "server", "Egress", "egress", "{action: Deny, destination: {selector: app == 'client'}}, ", "") +
			fmt.Sprintf(head, "no-in", "client", "Ingress", "ingress", "{action: Deny, source: {selector: app == 'server'}}, ", "")
	}
	return text
}

// An association ends with its client's next packet when a policy denies the client's address, or the server's, at all
// ports, even if a later rule permits a port to all. If policies allow the server to begin associations with the client, the
// server's packets make a new session, and the association continues (ADR 11).
func TestRevokedAssociationsEnd(t *testing.T) {
	const deniesClient, deniesServer = "{action: Deny, source: {selector: app == 'client'}}, ", "{action: Deny, destination: {selector: app == 'server'}}, "
	for _, revoked := range []string{"in", "out"} {
		for _, closed := range []bool{false, true} {
			for _, serverFirst := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/closed=%v/server-first=%v", revoked, closed, serverFirst), func(t *testing.T) {
					for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
						c := NewCluster(Config{Agent: agent.Config{Services: config.ServedBy(renderer)}})
						t.Cleanup(c.Close)
						change(t, c, objects(t, talkers(t)+gates(closed, "", ""))...)
						var talks []*talk
						for i, to := range []string{"[fd00:1:1::3]:3868", "[fd00:1:2::3]:3868", "10.1.1.3:3868", "10.1.2.3:3868"} {
							if renderer == agent.RendererNAT44 && i > 1 {
								continue // it replaces the addresses of SCTP clients by the node's
							}
							talks = append(talks, newTalk(t, c, flow{renderer: renderer, to: to, proto: model.SCTP}, 50000+uint16(i)))
						}
						if revoked == "in" {
							change(t, c, objects(t, gates(closed, deniesClient, ""))...)
						} else {
							change(t, c, objects(t, gates(closed, "", deniesServer))...)
						}
						for _, k := range talks {
							k.associationEnds(closed, serverFirst)
						}
					}
				})
			}
		}
	}
}

func (k *talk) associationEnds(closed, serverFirst bool) {
	for i := range 3 {
		if serverFirst {
			k.pushes()
		}
		if asked := k.asks(); asked != (!closed && serverFirst && i > 0) {
			k.t.Errorf("%s -> %s: request passes: %v\n%s", k.request.Src, k.request.Dst, asked, k.hops)
		}
		if !serverFirst && k.pushes() && closed {
			k.t.Errorf("%s -> %s: what the server sends gets through\n%s", k.request.Src, k.request.Dst, k.hops)
		}
		if !closed && !serverFirst {
			return // the server's packet made a session
		}
	}
}

// A session outlives the filter for the ports of its addresses. An INIT of the receiver reaches the sender by the session, although policies deny it. The
// answer ends the session, so that no association begins, and the next INIT does not pass (ADR 11).
func TestSessionOutlivesFilter(t *testing.T) {
	const policy = "---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: default.allows}\nspec: {selector: app == '%s', types: [%s], %s: [{action: Allow%s}]}\n"
	for _, tc := range []struct{ app, restricted, denied, to string }{
		{"server", "Ingress", "Egress", "[fd00:1:1::3]:3868"},
		{"server", "Ingress", "Egress", "[fd00:1:2::3]:3868"},
		{"client", "Egress", "Ingress", "[fd00:1:1::3]:3868"},
		{"client", "Egress", "Ingress", "[fd00:1:2::3]:3868"},
	} {
		allows := func(ports string) string {
			return fmt.Sprintf(policy, tc.app, tc.restricted, strings.ToLower(tc.restricted), ports)
		}
		c := NewCluster(Config{})
		t.Cleanup(c.Close)
		change(t, c, objects(t, talkers(t)+allows(", protocol: SCTP, destination: {ports: [3868]}")+rulesOf("closed", tc.app, tc.denied, "", ""))...)
		k := newTalk(t, c, flow{renderer: agent.RendererNAT44, to: tc.to, proto: model.SCTP}, 50000)
		reaches := func(from, to place, p sim.Packet) bool {
			j := c.travel(from, p, nil)
			k.hops = strings.Join(hops.Lines(j.hops), "\n")
			return j.lost == "" && j.end.sameParty(to)
		}
		first := k.answer.Opening()
		first.SrcPort, first.DstPort = 40000, 8080
		if reaches(k.server, k.from, first) {
			t.Errorf("%v: an INIT of the receiver passes the filter\n%s", tc, k.hops)
		}
		change(t, c, objects(t, allows(""))...)
		for i := range 3 {
			first.DstPort++
			if passes := reaches(k.server, k.from, first); passes != (i == 0) {
				t.Errorf("%v: INIT %d of the receiver passes: %v\n%s", tc, i, passes, k.hops)
			}
			if reaches(k.from, k.server, first.Reply()) {
				t.Errorf("%v: the answer to INIT %d passes\n%s", tc, i, k.hops)
			}
		}
	}
}

// TestSCTPWithoutAnAddress: NAT44 drops SCTP for which it has no address to give (nat44_ed_in2out_slowpath_unknown_proto, VPP 24.06 to 26.06), also between pods of one node and without
// policies.
func TestSCTPWithoutAnAddress(t *testing.T) {
	cfg := Config{Agent: agent.Config{Services: config.ServedBy(agent.RendererNAT44)}}
	cfg.Agent.Services.Renderer.NAT44.DisableSNAT = true
	c := cluster(t, cfg, guarded)
	for _, protocol := range []string{"TCP", "SCTP"} {
		a := c.Answer(Question{From: "pod:prod/client", To: "pod:prod/other:9000", Protocol: protocol})
		t.Logf("%s: %s, %s %s", protocol, a.Verdict, a.Reason, a.Error)
		if want := map[string]Verdict{"TCP": Delivered, "SCTP": Dropped}[protocol]; a.Verdict != want {
			t.Errorf("%s: %s, want %s", protocol, a.Verdict, want)
		}
	}
}
