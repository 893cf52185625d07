package agent

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/counters"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vpp/stats"
)

// simCounters is the stats segment of a simulated VPP. Every packet has 100 bytes.
type simCounters struct {
	vpp    *sim.VPP
	during func() // called while counters are read; nil: not called
	err    error
}

func (s *simCounters) ACLMatches(_ context.Context, acls []uint32) (map[uint32][]stats.Counter, error) {
	if s.during != nil {
		s.during()
	}
	out := map[uint32][]stats.Counter{}
	for _, i := range acls {
		for _, n := range s.vpp.ACLMatches(i) {
			out[i] = append(out[i], stats.Counter{Packets: n, Bytes: 100 * n})
		}
	}
	return out, s.err
}

const countedPolicies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress:
  - {from: [{ipBlock: {cidr: 10.2.0.0/16, except: [10.2.9.0/24]}}, {ipBlock: {cidr: 10.4.0.0/16}}], ports: [{port: 80}]}
  - {from: [{podSelector: {matchLabels: {app: none}}}]}
  egress:
  - {to: [{ipBlock: {cidr: 10.3.0.0/16}}]}
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: guard}
spec:
  priority: 5
  subject: {namespaces: {}}
  egress:
  - {action: Pass, to: [{networks: [10.3.0.0/24]}]}
  - {action: Deny, to: [{networks: [10.3.0.0/16]}]}
`

// startCounting returns an agent with rule counters on a simulated VPP, with policies.
func startCounting(t *testing.T) (*world, *simCounters) {
	t.Helper()
	w := start(t, nil)
	w.wait("first sync", firstSync)
	w.settled() // until interfaces are known a policy changes nothing
	w.write("policies.yaml", countedPolicies)
	w.wait("policies", func(c *event.Committed) bool { return strings.Contains(c.Cause, "networkpolicy/") })
	w.settled()
	_ = w.stop()
	counters := &simCounters{vpp: w.vpp}
	w.committed = make(chan *event.Committed, 100)
	w.run(func(c *Config) { c.Policies.Counters = counters }) // goes to the policies in one step
	w.wait("first sync", firstSync)
	w.settled()
	return w, counters
}

// knock sends n packets that begin flows to or from the pod.
func (w *world) knock(from, to string, n int) {
	w.t.Helper()
	for port := range n {
		src, dst := netip.AddrPortFrom(netip.MustParseAddr(from), uint16(1000+port)), netip.MustParseAddrPort(to)
		in := "uplink"
		if from == "10.1.1.2" {
			in = "pod-default/web"
		}
		for range 2 { // the second packet belongs to the flow, if one exists
			w.vpp.Send(in, packet.NewTCP(src, dst))
		}
	}
}

// hits returns the counts of all rules, "NetworkPolicy default/web ingress rule 1" → packets.
func hits(t *testing.T, d *policy.Description) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	for _, tiers := range [][]policy.Tier{d.Ingress, d.Egress} {
		for _, tier := range tiers {
			for _, p := range tier.Policies {
				for _, r := range p.Rules {
					if r.Hits == nil {
						continue
					}
					if r.Hits.Bytes != 100*r.Hits.Packets {
						t.Errorf("%s %s: %d bytes", p.Object, r.Name, r.Hits.Bytes)
					}
					out[p.Object+" "+r.Name] += r.Hits.Packets // each peer is a separate rule
				}
			}
		}
	}
	return out
}

func TestRulesAreCounted(t *testing.T) {
	w, _ := startCounting(t)
	w.knock("10.2.0.7", "10.1.1.2:80", 3)
	w.knock("10.4.0.7", "10.1.1.2:80", 2)
	w.knock("10.2.9.7", "10.1.1.2:80", 5) // excepted: the end of the tier
	w.knock("10.1.1.2", "10.3.0.1:53", 4) // passed on to the second tier's rule
	w.knock("10.1.1.2", "10.3.7.1:53", 6) // denied, each packet separately
	d, err := control.FetchPolicy(t.Context(), w.agent.cfg.Listen.Status, web)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{
		"NetworkPolicy default/web ingress rule 1": 10, // also at the input of the uplink: the pod is closed in both directions
		"NetworkPolicy default/web egress rule 1":  8,  // also at the output
		"AdminNetworkPolicy guard egress rule 2":   12,
	}
	if diff := cmp.Diff(want, hits(t, d)); diff != "" || d.Uncounted != "" {
		t.Errorf("(-want +got):\n%s%s; log of VPP %v", diff, d.Uncounted, w.vpp.Dump())
	}
}

// Counters that cannot be read, or that belong to other lists than the current ones, are not shown; the reason is.
func TestUnreadableCountersAreNotShown(t *testing.T) {
	w, stats := startCounting(t)
	look := func() *policy.Description {
		t.Helper()
		d, err := control.FetchPolicy(t.Context(), w.agent.cfg.Listen.Status, web)
		if err != nil || len(d.Ingress) == 0 {
			t.Fatalf("%+v, %v", d, err)
		}
		return d
	}
	stats.err = errors.New("the segment is on fire")
	if d := look(); d.Uncounted != "the segment is on fire" || len(hits(t, d)) > 0 {
		t.Errorf("not counted because %q: %v", d.Uncounted, hits(t, d))
	}
	stats.err = nil
	var changed atomic.Bool
	stats.during = func() {
		if !changed.Swap(true) {
			w.write("policies.yaml", strings.ReplaceAll(countedPolicies, "10.4.0.0/16", "10.5.0.0/16"))
			w.wait("other policies", func(c *event.Committed) bool { return strings.Contains(c.Cause, "networkpolicy/") })
		}
	}
	if d := look(); d.Uncounted != counters.ErrChanging.Error() || len(hits(t, d)) > 0 {
		t.Errorf("not counted because %q: %v", d.Uncounted, hits(t, d))
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) { // until they match
		w.knock("10.5.0.7", "10.1.1.2:80", 1)
		d := look()
		if n := hits(t, d)["NetworkPolicy default/web ingress rule 1"]; n > 0 && d.Uncounted == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not counted because %q: %v", d.Uncounted, hits(t, d))
		}
	}
}

// Without Policies.Counters the agent does not switch counting on.
func TestCountingIsOffByDefault(t *testing.T) {
	w := start(t, nil)
	w.wait("first sync", firstSync)
	w.settled() // until interfaces are known a policy changes nothing
	w.write("policies.yaml", countedPolicies)
	w.wait("policies", func(c *event.Committed) bool { return strings.Contains(c.Cause, "networkpolicy/") })
	w.settled()
	w.knock("10.2.0.7", "10.1.1.2:80", 3)
	for i := range uint32(50) {
		for _, n := range w.vpp.ACLMatches(i) {
			if n > 0 {
				t.Fatalf("VPP counts: acl %d has %d", i, w.vpp.ACLMatches(i))
			}
		}
	}
	if d, err := control.FetchPolicy(t.Context(), w.agent.cfg.Listen.Status, web); err != nil || len(hits(t, d)) > 0 || d.Uncounted != "" {
		t.Errorf("%+v, %v", d, err)
	}
}
