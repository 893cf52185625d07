package vppagent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/af_packet"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// groups passes groups of requests to a VPP, and records the number of af_packet interfaces that each makes.
type groups struct {
	vppagent.Caller
	made []int
}

func (g *groups) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	n := 0
	for _, c := range calls {
		if _, makes := c.Msg.(*af_packet.AfPacketCreateV3); makes {
			n++
		}
	}
	if n > 0 {
		g.made = append(g.made, n)
	}
	return g.Caller.Do(ctx, calls...)
}

// TestHostInterfacesAreMadeOneByOne: VPP returns to its main loop, and reads the frames of its interfaces, after each request that makes one. The
// pauses in between take less time than VPP needs for its own part of a restart.
func TestHostInterfacesAreMadeOneByOne(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	g := &groups{Caller: l.conn}
	var rest time.Duration
	l.agent = vppagent.New(vppagent.Config{Caller: g, Pause: func(_ context.Context, d time.Duration) { rest += d }})
	const pods = 110
	for i := range pods {
		host := fmt.Sprintf("cv-%d", i)
		l.want.Put(&interfaces.Interface{
			Name: fmt.Sprintf("pod:default/p%d:eth0", i), Type: interfaces.Interface_AF_PACKET, Enabled: true, Mtu: 1450, PhysAddress: "02:fe:00:00:00:07",
			Link: &interfaces.Interface_Afpacket{Afpacket: &interfaces.AfpacketLink{HostIfName: host}},
		})
	}
	if c := l.resync(); c.Add < pods {
		t.Errorf("%+v", c)
	}
	if len(g.made) != pods {
		t.Errorf("%d interfaces in groups of %v", pods, g.made)
	}
	if rest > 300*time.Millisecond {
		t.Errorf("%s of pauses", rest)
	}
}
