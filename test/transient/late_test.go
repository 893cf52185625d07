package transient_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// late is a CNI that restores the interfaces and routes of pods one by one, in any order, while the agent works.
type late struct {
	c     *closing
	rng   *rand.Rand
	steps []func() error // remaining steps of the CNI
	every int            // messages between two steps of the CNI
}

// removePods removes the CNI's objects for pods, and restarts VPP without them.
func (l *late) removePods(pods []*model.Pod) {
	l.c.t.Helper()
	for _, pod := range pods {
		if err := l.c.cni.Apply([]event.Change{{Ref: pod.Ref()}}); err != nil {
			l.c.t.Fatal(err)
		}
	}
	l.steps = nil
	for _, pod := range pods {
		name, addr := cni.PodInterface(pod.ID), pod.IPs[0]
		l.steps = append(l.steps, func() error {
			l.c.vpp.AddInterface(sim.Interface{Name: name, Tag: pod.ID.String(), Unnumbered: cni.Gateway})
			route := func() error {
				return l.c.vpp.AddRoute(sim.Route{Prefix: netip.PrefixFrom(addr, 32), Paths: []sim.Path{{Interface: name, Via: addr}}})
			}
			at := l.rng.IntN(len(l.steps) + 1)
			l.steps = append(l.steps[:at:at], append([]func() error{route}, l.steps[at:]...)...)
			return nil
		})
	}
	l.rng.Shuffle(len(l.steps), func(i, j int) { l.steps[i], l.steps[j] = l.steps[j], l.steps[i] })
	l.c.vpp.Restart()
}

// step runs the CNI's next step.
func (l *late) step() {
	if len(l.steps) == 0 {
		return
	}
	do := l.steps[0]
	l.steps = l.steps[1:]
	if err := do(); err != nil {
		l.c.t.Error(err)
	}
}

// watch runs the CNI's next step after so many messages, and makes every stream send after each.
func (l *late) watch() {
	messages := 0
	l.c.vpp.After(func(sim.Record) {
		if messages++; messages%l.every == 0 {
			l.step()
		}
		l.c.send()
	})
}

// TestLateRoutes: VPP restarts, and the CNI restores interfaces and routes of pods in any order while the agent works. No
// stream keeps a NAT session by the default route: all allowed streams continue.
func TestLateRoutes(t *testing.T) {
	for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		for seed := range pace.Fewer[uint64](20, 5) {
			t.Run(fmt.Sprintf("%s/%d", renderer, seed), func(t *testing.T) { lateRoutes(t, renderer, seed) })
		}
	}
}

func lateRoutes(t *testing.T, renderer agent.ServiceRenderer, seed uint64) {
	c := newClosing(t, renderer)
	objects := c.load(closedNode + closedPod("db", 2) + closedPod("client", 3) + closedPod("evil", 4) + closedPod("web", 5))
	c.plumb(objects)
	c.start()
	c.feed(objects...)
	var pods []*model.Pod
	for _, ch := range objects {
		if pod, ok := ch.Object.(*model.Pod); ok {
			pods = append(pods, pod)
		}
	}
	l := &late{c: c, rng: rand.New(rand.NewPCG(seed, 1))}
	l.every = 1 + l.rng.IntN(40)
	l.removePods(pods)
	l.watch()
	if err := c.agent.WaitConnected(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	c.feed()
	for len(l.steps) > 0 { // the rest comes when the agent is done
		c.send()
		l.step()
		c.send()
		c.feed()
	}
	c.feed()
	if renderer == agent.RendererCNAT {
		// BUGS of renderer/cnat: an isolated pod whose packets met a translation before its interface had cnat. Its stream may be dead.
		c.streams = slices.DeleteFunc(c.streams, func(s *stream) bool { return s.from == "db" })
	}
	c.settled("all routes are back")
}
