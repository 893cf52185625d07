package transient_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// TestAddressReusedWhileTheAgentWasAway: a pod that gets another pod's address while the agent is stopped has that pod's
// rights, also in an open flow. They end when an agent starts, before its sources are in sync, and the agent's first plan
// does not restore them.
func TestAddressReusedWhileTheAgentWasAway(t *testing.T) {
	for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		t.Run(string(renderer), func(t *testing.T) {
			c := newClosing(t, renderer)
			client := c.load(closedPod("client", 3))
			others := c.load(closedNode + closedPod("evil", 4) + closedPod("web", 5) + closedPod("db", 2))
			c.plumb(append(others, client...))
			c.start()
			c.feed(append(others, client...)...)
			c.reaches("client", 4000, true, "its own rights")
			c.agent.Close()
			heir := c.load(closedPod("heir", 3))
			gone := event.Change{Ref: model.Ref{Kind: model.KindPod, Namespace: "prod", Name: "client"}}
			c.plumb(append([]event.Change{gone}, heir...))
			c.reaches("heir", 4000, true, "no agent evaluates it: BUGS of renderer/acl")
			c.start()
			if err := c.agent.Feed(context.Background()); err != nil { // no source has sent anything
				t.Fatal(err)
			}
			c.reaches("heir", 4000, false, "an agent has started")
			c.feed(append(others, heir...)...)
			c.reaches("heir", 4000, false, "the first plan")
			c.reaches("heir", 4001, false, "a new flow")
		})
	}
}

// reaches sends a datagram from the reused address to the pod that admits only clients.
func (c *closing) reaches(pod string, port uint16, want bool, when string) {
	c.t.Helper()
	from := netip.AddrPortFrom(netip.MustParseAddr("10.1.1.3"), port)
	if _, got := c.pass("pod-prod/"+pod, packet.NewUDP(from, netip.MustParseAddrPort("10.1.1.2:6379"))); got != want {
		c.t.Errorf("%s: %s reaches db: %t, want %t", when, pod, got, want)
	}
}
