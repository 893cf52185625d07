package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// fabric is the wires between the nodes' VPPs, and what listens behind them: what leaves one VPP by the overlay enters the one of the node
// that has the address. Whether a packet passes is said by VPPs alone, which are as the agents made them.
type fabric struct {
	kubelet *fakeKubelet
	nodes   []*node

	mu  sync.Mutex
	why map[string]string // packets without an answer at the last attempt, by client and server
}

// Why a connection is not made. Silence is what a policy leaves behind.
var (
	errSilence = errors.New("no answer")
	errRefused = errors.New("refused")
	errCut     = errors.New("cut short") // after the first packet
)

// maxWires ends what would go round for ever.
const maxWires = 4

// spot is where packets come from and end: the interface of a Pod, or that of a node's own network stack.
type spot struct {
	node *node
	in   string
}

// spotOf is where a Pod is.
func (f *fabric) spotOf(pod *corev1.Pod) (spot, error) {
	for _, n := range f.nodes {
		switch {
		case n.name != pod.Spec.NodeName:
		case pod.Spec.HostNetwork:
			return spot{n, cni.Host}, nil
		default:
			return spot{n, cni.PodInterface(model.PodID{Namespace: pod.Namespace, Name: pod.Name})}, nil
		}
	}
	return spot{}, fmt.Errorf("%s/%s is on %q, where there is no VPP", pod.Namespace, pod.Name, pod.Spec.NodeName)
}

// behind is the node with an address of the cluster.
func (f *fabric) behind(addr netip.Addr) *node {
	for _, h := range f.kubelet.hosts {
		for _, n := range f.nodes {
			if n.name == h.name && (addr == h.address || h.pods.Contains(addr)) {
				return n
			}
		}
	}
	return nil
}

// carry brings a packet from a spot to the one where it ends. An error says where it was lost.
func (f *fabric) carry(from spot, p packet.Packet) (spot, packet.Packet, error) {
	var way strings.Builder
	at := from
	for range maxWires {
		fate := at.node.sim.Send(at.in, p)
		for _, hop := range fate.Hops {
			fmt.Fprintf(&way, "\n  %s: %v", at.node.name, hop)
		}
		if len(fate.Out) != 1 || fate.Out[0].BadChecksum {
			return spot{}, p, fmt.Errorf("%w: %s: %d packets out%s", errSilence, &p, len(fate.Out), &way)
		}
		out := fate.Out[0]
		p = out.Packet
		switch {
		case out.Local:
			return spot{at.node, cni.Host}, p, nil
		case out.Interface == cni.Uplink:
			return spot{}, p, fmt.Errorf("%w: %s leaves the cluster%s", errSilence, &p, &way)
		case out.Interface != cni.Overlay:
			return spot{at.node, out.Interface}, p, nil
		}
		next := f.behind(p.Dst)
		if next == nil || next == at.node {
			return spot{}, p, fmt.Errorf("%w: no other node has the address of %s%s", errSilence, &p, &way)
		}
		at = spot{next, cni.Overlay}
	}
	return spot{}, p, fmt.Errorf("%w: goes round%s", errSilence, &way)
}

// dial opens a connection from a Pod: the first packet reaches the current receiver, the answer returns, and one more packet
// takes the path of the first. It returns where the first one arrived, or where it was lost.
func (f *fabric) dial(pod *corev1.Pod, protocol model.Protocol, to netip.AddrPort) (netip.AddrPort, error) {
	arrived, _, err := f.dialAgain(pod, protocol, to, 0)
	return arrived, err
}

// dialPause is how long a client waits before it sends its first packet again; TCP waits a second, and then longer each time.
const dialPause = 250 * time.Millisecond

// resent is how often packets after the first are sent again.
const resent = 4

// dialAgain is dial of a client that retransmits its first packet without an answer, as TCP does, up to the given number of
// times. It also retransmits later packets: changes of lists may deny for a moment. It returns the number of
// retransmissions.
func (f *fabric) dialAgain(pod *corev1.Pod, protocol model.Protocol, to netip.AddrPort, most int) (arrived netip.AddrPort, times int, _ error) {
	client, err := f.spotOf(pod)
	if err != nil {
		return arrived, times, err
	}
	first := packet.Packet{
		Src: netip.MustParseAddr(pod.Status.PodIP), SrcPort: uint16(20000 + client.node.ports.Add(1)%40000),
		Dst: to.Addr(), DstPort: to.Port(), Proto: protocol,
	}
	if at := f.behind(to.Addr()); client.in == cni.Host && at == client.node && to.Addr().Is4() && to.Addr() != first.Src {
		first.Src = cni.HostLink // to the node's own pods
	}
	first = first.Opening()
	send := func(from spot, p packet.Packet, most int) (at spot, got packet.Packet, err error) {
		at, got, err = f.carry(from, p)
		for n := 0; err != nil && n < most; n++ {
			time.Sleep(dialPause)
			at, got, err = f.carry(from, p)
			times++
		}
		return at, got, err
	}
	server, got, err := send(client, first, most)
	arrived = netip.AddrPortFrom(got.Dst, got.DstPort)
	if err != nil {
		return arrived, times, err
	}
	if got.IsICMPError() {
		return netip.AddrPort{}, times, fmt.Errorf("%w on the way: %s", errRefused, &got)
	}
	answer, refused := f.answer(server, got)
	end, back, err := send(server, answer, min(most, resent))
	switch {
	case err != nil:
		return arrived, times, fmt.Errorf("%w: %w", errCut, err)
	case end != client:
		return arrived, times, fmt.Errorf("%w: %w: the answer of %s goes to %s of %s", errCut, errSilence, arrived, end.in, end.node.name)
	case back.IsICMPError() || refused:
		return arrived, times, fmt.Errorf("%w by %s: %s", errRefused, arrived, &back)
	case back.Src != first.Dst || back.SrcPort != first.DstPort || back.Dst != first.Src || back.DstPort != first.SrcPort:
		return arrived, times, fmt.Errorf("%w: %w: the client gets %s, which is no answer to %s", errCut, errSilence, &back, &first)
	}
	first = first.GoingOn()
	again, got, err := send(client, first, min(most, resent))
	if err != nil {
		return arrived, times, fmt.Errorf("%w after the answer: %w", errCut, err)
	}
	if again != server || netip.AddrPortFrom(got.Dst, got.DstPort) != arrived {
		return arrived, times, fmt.Errorf("%w: %w: after the answer of %s packets go to %s", errCut, errSilence, arrived, got.Dst)
	}
	return arrived, times, nil
}

// answer is what the spot's kernel says to a first packet: it refuses one for a port nobody listens on.
func (f *fabric) answer(at spot, p packet.Packet) (_ packet.Packet, refused bool) {
	if f.listens(at, p.Proto, p.DstPort) {
		return p.Reply(), false
	}
	if p.Proto == model.UDP {
		return p.ICMPError(p.Dst, packet.Unreachable, packet.CodePort), true
	}
	r := p.Reply()
	if p.Proto == model.TCP {
		r.TCPFlags = packet.RST | packet.ACK
	} else {
		r.Chunk = packet.Abort
	}
	return r, true
}
