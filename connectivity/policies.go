package connectivity

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/connectivity/probe"
)

// testPolicies applies policies, waits until they are enforced, and then revokes one under open connections.
func (t *run) testPolicies(ctx context.Context) error {
	if len(t.with(rolePeer)) == 0 || len(t.with(rolePod)) == 0 {
		return nil
	}
	admitted := t.with(rolePod)[0]
	if err := t.cluster.Apply(ctx, t.cfg.Namespace, policies(admitted.addresses)); err != nil {
		return err
	}
	p := &plan{limit: t.cfg.Limit}
	for _, family := range t.families() {
		t.guarded(p, family, admitted)
	}
	t.untilEnforced(ctx, p)
	t.explainPolicies(ctx, p)
	t.conclude(p)
	if p.okay("allow by label") {
		return t.revoke(ctx)
	}
	return nil
}

// okay reports whether all checks whose names begin so are ok.
func (p *plan) okay(name string) bool {
	return !slices.ContainsFunc(p.checks, func(c *check) bool { return len(c.Check) >= len(name) && c.Check[:len(name)] == name && c.State != OK })
}

// clientsOf returns test pods on a peer's own node and on the next one.
func (t *run) clientsOf(peer *endpoint) (out []*endpoint) {
	pods := t.with(rolePod)
	at := slices.IndexFunc(pods, func(e *endpoint) bool { return e.node == peer.node })
	for _, e := range []int{at, at + 1} {
		if e >= 0 && !slices.Contains(out, pods[e%len(pods)]) {
			out = append(out, pods[e%len(pods)])
		}
	}
	return out
}

// denialLimit is how long a connection is tried that a policy denies.
const denialLimit = time.Second

// guarded plans the paths to and from the pods that policies select.
func (t *run) guarded(p *plan, family int, admitted *endpoint) {
	for _, peer := range t.with(rolePeer) {
		a := peer.inFamily(family)
		for _, from := range t.clientsOf(peer) {
			if !a.IsValid() || !from.inFamily(family).IsValid() {
				continue
			}
			one := func(name string, kind probe.Kind, port int, allowed bool) {
				t.guard(p, p.check(GroupPolicies, policy, family, name), from, peer, kind, hostPort(a, port), allowed)
			}
			one("default deny", probe.TCP, echoPort, false)
			one("default deny", probe.UDP, echoPort, false)
			one("default deny", probe.TCP, nobodysPort, false)
			one("allow by label", probe.TCP, labelPort, true)
			one("allow by label", probe.UDP, labelPort, true)
			one("allow by ipBlock", probe.TCP, blockPort, from == admitted)
			back := func(port int, allowed bool) {
				t.guard(p, p.check(GroupPolicies, policy, family, "egress"), peer, from, probe.TCP, hostPort(from.inFamily(family), port), allowed)
			}
			back(labelPort, true)
			back(echoPort, false)
		}
		if at := slices.IndexFunc(t.families(), func(f int) bool { return f == family }); at == 0 && t.apiServer != nil {
			if ip := clusterAddress(t.apiServer, family); ip.IsValid() && a.IsValid() {
				c := p.check(GroupPolicies, policy, family, "egress")
				p.addPath(c, &path{from: peer, to: "kubernetes, which policy egress denies", service: "kubernetes", denied: true, probe: probe.Probe{Kind: probe.TLS, To: hostPort(ip, int(t.apiServer.Spec.Ports[0].Port)), Limit: denialLimit}})
			}
		}
	}
}

// guard adds a path that policies allow or deny.
func (t *run) guard(p *plan, c *check, from, to *endpoint, kind probe.Kind, at string, allowed bool) {
	w := &path{from: from, pod: to, node: to.node, to: fmt.Sprintf("%s %s %s, allowed", to.name, kind, at), probe: probe.Probe{Kind: kind, To: at}, verify: answeredBy(to.name)}
	if !allowed {
		w.to, w.denied, w.probe.Limit = fmt.Sprintf("%s %s %s, denied", to.name, kind, at), true, denialLimit
	}
	p.addPath(c, w)
}

// enforceLimit is how long policies may take until they are enforced everywhere.
const enforceLimit = 15 * time.Second

// untilEnforced measures until each path is as policies want it, those again that are not.
func (t *run) untilEnforced(ctx context.Context, p *plan) {
	var open []*path
	for _, c := range p.checks {
		open = append(open, c.paths...)
	}
	for began := time.Now(); ; sleep(ctx, pollEvery) {
		t.measurePaths(ctx, open, nil)
		open = slices.DeleteFunc(open, func(p *path) bool { return p.reason == "" })
		if len(open) == 0 || time.Since(began) > enforceLimit || ctx.Err() != nil {
			return
		}
	}
}

// explainPolicies says where to look if policies are not enforced.
func (t *run) explainPolicies(ctx context.Context, p *plan) {
	differences := sync.OnceFunc(func() {
		eachAtOnce(t.nodes, func(m *machine) {
			if m.status != nil {
				m.differences, _ = t.agents.Differences(ctx, m.name, m.agent) // an agent that does not answer has trouble
			}
		})
	})
	d := &diagnosis{world: &t.world}
	for _, c := range p.checks {
		for _, w := range c.failed() {
			differences()
			at := w.from // egress is enforced at the client
			if w.pod != nil && w.pod.role == rolePeer {
				at = w.pod
			}
			m := t.node(at.node)
			switch line := d.difference(at.node); {
			case len(m.trouble) > 0:
				w.causes = append(w.causes, m.name+": "+m.trouble[0])
			case line != "":
				w.causes = append(w.causes, line)
			case w.denied:
				w.causes = append(w.causes, fmt.Sprintf("policies are not enforced at %s: does its agent enforce any (--no-policies, a Felix)? kubectl contiv policy %s/%s", at.name, t.cfg.Namespace, at.name))
			default:
				w.causes = append(w.causes, fmt.Sprintf("another policy denies it, or the pod's labels have not arrived: kubectl contiv policy %s/%s", t.cfg.Namespace, at.name))
			}
		}
	}
}

// revokeLimit is how long a connection may continue after its policy was removed.
const revokeLimit = 20 * time.Second

// revoke removes the policy that allows connections which are open, and waits for their end.
func (t *run) revoke(ctx context.Context) error {
	p := &plan{limit: revokeLimit}
	for _, family := range t.families() {
		for _, peer := range t.with(rolePeer) {
			for _, from := range t.clientsOf(peer) {
				if a := peer.inFamily(family); a.IsValid() && from.inFamily(family).IsValid() {
					c := p.check(GroupPolicies, policy, family, "a revoked connection ends")
					p.addPath(c, &path{from: from, pod: peer, node: peer.node, to: peer.name, probe: probe.Probe{Kind: probe.Hold, To: hostPort(a, labelPort)}})
				}
			}
		}
	}
	var all []*path
	for _, c := range p.checks {
		all = append(all, c.paths...)
	}
	opened := map[*path]bool{}
	revoked := make(chan error, 1)
	t.measurePaths(ctx, all, func(w *path) {
		if !w.outcome.Holds || opened[w] {
			return
		}
		if opened[w] = true; len(opened) == len(all) {
			go func() { revoked <- t.cluster.Delete(ctx, "networkpolicy", allowLabel, "--namespace="+t.cfg.Namespace) }()
		}
	})
	if len(opened) == len(all) {
		if err := <-revoked; err != nil {
			return err
		}
	}
	for _, w := range all {
		switch {
		case !opened[w]:
			w.reason = "the connection could not be opened: " + w.outcome.Error
		case w.outcome.Holds:
			w.reason = fmt.Sprintf("the connection continues %s after its policy was removed", revokeLimit)
			w.causes = []string{fmt.Sprintf("VPP of %s does not evaluate open connections again: its startup.conf needs acl-plugin { reclassify sessions 1 }: contiv-agent doctor there", w.node)}
		default:
			w.reason = ""
		}
	}
	t.conclude(p)
	return nil
}
