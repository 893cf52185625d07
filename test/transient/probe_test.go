package transient_test

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
)

// probe is the first packet of a connection, and its input interface.
type probe struct {
	node, door string
	packet     sim.Packet
	service    bool // it is sent to a service
}

func (p probe) String() string { return fmt.Sprintf("%s from %s %s", &p.packet, p.node, p.door) }

// doors returns the interfaces through which packets of an address enter.
type doors map[netip.Addr]struct{ node, door string }

func doorsOf(objects []policy.Object) doors {
	d := doors{}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Node:
			for _, a := range o.Status.Addresses {
				d[netip.MustParseAddr(a.Address)] = struct{ node, door string }{o.Name, cni.Host}
			}
		case *corev1.Pod:
			if o.Spec.HostNetwork || o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
				continue
			}
			for _, ip := range o.Status.PodIPs {
				d[netip.MustParseAddr(ip.IP)] = struct{ node, door string }{o.Spec.NodeName, cni.PodInterface(model.PodID{Namespace: o.Namespace, Name: o.Name})}
			}
		}
	}
	return d
}

// flowsPerLook and dialsPerLook bound the packets that are sent after each message.
const (
	flowsPerLook = 120
	dialsPerLook = 40
)

// probes returns some flows between all pods, nodes and outside addresses, and packets to Services.
func probes(w *generate.World, objects []policy.Object) []probe {
	d := doorsOf(objects)
	var out []probe
	for _, f := range w.Sample(w.Flows(2), flowsPerLook) {
		if p, ok := direct(f, d); ok {
			out = append(out, p)
		}
	}
	dials := dialled(objects, d)
	slices.SortFunc(dials, func(a, b probe) int { // by a hash that is the same in every run
		return int(a.packet.SrcPort) - int(b.packet.SrcPort)
	})
	for _, p := range dials[:min(len(dials), dialsPerLook)] {
		p.packet.SrcPort = clientPort
		out = append(out, p)
	}
	return out
}

const clientPort = 40000

func direct(f policy.Flow, d doors) (probe, bool) {
	p := probe{node: f.Node, door: cni.Uplink, packet: sim.Packet{Src: f.Src, Dst: f.Dst, Proto: model.Protocol(f.Proto)}}
	if at, inside := d[f.Src]; inside {
		p.node, p.door = at.node, at.door
	}
	if to, inside := d[f.Dst]; inside && p.door == cni.Host && to.node == p.node && to.door != cni.Host && f.Dst.Is4() {
		p.packet.Src = cni.HostLink
	}
	switch f.Proto {
	case policy.ICMP, policy.ICMPv6:
		if f.Type != 8 && f.Type != 128 || f.Code != 0 {
			return p, false // all others are not evaluated, or equal this one
		}
		p.packet.ICMPType, p.packet.ICMPID = f.Type, 4000
	}
	p.packet = p.packet.Opening()
	if f.Proto != policy.ICMP && f.Proto != policy.ICMPv6 {
		p.packet.SrcPort, p.packet.DstPort = f.SrcPort, f.DstPort
	}
	return p, f.Src != f.Dst
}

// dialled returns the packets of pods, nodes and an outside client to Services.
func dialled(objects []policy.Object, d doors) []probe {
	var out []probe
	outside := netip.MustParseAddr("198.51.100.7")
	n := uint32(1)
	add := func(p probe, to netip.Addr, port int32, proto corev1.Protocol) {
		p.service = true
		p.packet.Dst, p.packet.DstPort, p.packet.Proto = to, uint16(port), model.UDP
		if proto == corev1.ProtocolTCP {
			p.packet.Proto, p.packet.TCPFlags = model.TCP, packet.SYN
		}
		n = n*1664525 + 1013904223
		p.packet.SrcPort = uint16(n >> 16) // temporarily the rank of the probe
		out = append(out, p)
	}
	addrs := make([]netip.Addr, 0, len(d))
	for a := range d {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, o := range objects {
		s, ok := o.(*corev1.Service)
		if !ok {
			continue
		}
		for _, src := range addrs {
			if !src.Is4() {
				continue
			}
			from := probe{node: d[src].node, door: d[src].door, packet: sim.Packet{Src: src}}
			port := s.Spec.Ports[0]
			add(from, netip.MustParseAddr(s.Spec.ClusterIP), port.Port, port.Protocol)
			for _, in := range s.Status.LoadBalancer.Ingress {
				add(from, netip.MustParseAddr(in.IP), port.Port, port.Protocol)
				if d[src].door == cni.Host {
					add(probe{node: d[src].node, door: cni.Uplink, packet: sim.Packet{Src: outside}}, netip.MustParseAddr(in.IP), port.Port, port.Protocol)
				}
			}
			if d[src].door == cni.Host && port.NodePort != 0 {
				add(probe{node: d[src].node, door: cni.Uplink, packet: sim.Packet{Src: outside}}, src, port.NodePort, port.Protocol)
			}
		}
	}
	return out
}
