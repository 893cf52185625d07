package embedded

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

const (
	// dialEvery is the pause between two packets of a Traffic.
	dialEvery = 250 * time.Millisecond
	// dials is the number of packets after which a Traffic asks for the objects again.
	dials = 20
	// firstPort is the source port of a Traffic's first connection. The others follow.
	firstPort = 40000
	// mostDials bounds the connections of a Traffic, and so the sessions that VPP keeps of them.
	mostDials = 200
)

// outside is a client that belongs to no cluster.
var outside = netip.MustParseAddr("198.51.100.7") // read only

// Traffic lets pods of a node dial cluster IPs, and a client outside dial these pods, so that a demonstration has flows. Each pod dials the first port of
// every Service, one packet at a time, from the same source port each time: VPP keeps one session of each pair.
type Traffic struct {
	VPP  *sim.VPP
	Node string
	// Socket is that of the agent, which has the objects.
	Socket string

	every time.Duration // 0: dialEvery
	sent  int           // packets, after Run
}

// dialled is a packet, and the interface on which VPP receives it.
type dialled struct {
	at     string
	packet packet.Packet
}

// Run sends until ctx ends. Without objects it sends nothing, and asks again.
func (t *Traffic) Run(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(t.every, dialEvery))
	defer tick.Stop()
	var list []dialled
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n%dials == 0 {
			changes, err := control.FetchObjects(ctx, t.Socket)
			if err != nil {
				continue // the former list remains
			}
			list = t.packets(changes)
		}
		if len(list) > 0 {
			d := list[n%len(list)]
			t.VPP.Send(d.at, d.packet)
			t.sent++
		}
	}
}

// packets returns what VPP receives: of the pods, sorted by Service and then by pod, and of the client outside.
func (t *Traffic) packets(objects []event.Change) (out []dialled) {
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b event.Change) int { return a.Ref.Compare(b.Ref) })
	add := func(at string, from, to netip.Addr, protocol model.Protocol, port uint16) {
		if len(out) == mostDials {
			return
		}
		p := packet.Packet{Src: from, Dst: to, Proto: protocol, SrcPort: firstPort + uint16(len(out)), DstPort: port} //nolint:gosec // at most mostDials
		switch protocol {
		case model.TCP:
			p.TCPFlags = packet.SYN
		case model.SCTP:
			p.Chunk = packet.Init
		}
		out = append(out, dialled{at, p})
	}
	var pods []*model.Pod
	for _, o := range objects {
		if p, ok := o.Object.(*model.Pod); ok && p.NodeName == t.Node && !p.HostNetwork && !p.Finished && len(p.IPs) > 0 {
			pods = append(pods, p)
		}
	}
	for _, o := range objects {
		svc, ok := o.Object.(*model.Service)
		if !ok || svc.Headless || len(svc.ClusterIPs) == 0 || len(svc.Ports) == 0 {
			continue
		}
		for _, p := range pods {
			to := svc.ClusterIPs[0]
			if from := slices.IndexFunc(p.IPs, func(a netip.Addr) bool { return a.Is4() == to.Is4() }); from >= 0 {
				add(cni.PodInterface(p.ID), p.IPs[from], to, svc.Ports[0].Protocol, svc.Ports[0].Port)
			}
		}
	}
	for _, p := range pods {
		if len(p.ContainerPorts) > 0 && p.IPs[0].Is4() {
			add(cni.Located().Uplink, outside, p.IPs[0], p.ContainerPorts[0].Protocol, p.ContainerPorts[0].Port)
		}
	}
	return out
}
