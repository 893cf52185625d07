package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// simulated is a node's VPP that listens on a socket, as `contiv-agent sim` does, and takes packets from the test.
type simulated struct {
	*sim.VPP
	t      *testing.T
	socket string
	cni    *cni.CNI
	pods   map[string]netip.Addr
	port   uint16 // of the next packet's sender, so that none meets another's session
}

// newSimulated is a node with an address and a prefix for pods.
func newSimulated(t *testing.T) *simulated {
	t.Helper()
	v := newBare(t)
	v.apply(&model.Node{Name: node1, InternalIPs: []netip.Addr{netip.MustParseAddr("192.168.0.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}})
	return v
}

// newBare is a node without known objects.
func newBare(t *testing.T) *simulated {
	t.Helper()
	v := &simulated{
		t: t, VPP: sim.New(sim.Config{PuntLocal: true}), socket: filepath.Join(t.TempDir(), "vpp.sock"),
		pods: map[string]netip.Addr{}, port: 20000,
	}
	l, err := net.Listen("unix", v.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- v.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("the simulated VPP: %v", err)
		}
		v.Close()
	})
	v.cni = cni.New(v.VPP, node1)
	return v
}

func (v *simulated) apply(objects ...model.Object) {
	v.t.Helper()
	var changes []event.Change
	for _, o := range objects {
		changes = append(changes, event.Change{Ref: o.Ref(), Object: o})
	}
	if err := v.cni.Apply(changes); err != nil {
		v.t.Fatal(err)
	}
}

// plumb makes what a CNI makes for a pod of the namespace prod.
func (v *simulated) plumb(name, addr string) {
	v.t.Helper()
	v.pods[name] = netip.MustParseAddr(addr)
	v.apply(&model.Pod{ID: podID(name), NodeName: node1, IPs: []netip.Addr{v.pods[name]}})
}

// unplumb takes it away.
func (v *simulated) unplumb(name string) {
	v.t.Helper()
	id := podID(name)
	if err := v.cni.Apply([]event.Change{{Ref: model.Ref{Kind: model.KindPod, Namespace: id.Namespace, Name: id.Name}}}); err != nil {
		v.t.Fatal(err)
	}
	delete(v.pods, name)
}

func podID(name string) model.PodID { return model.PodID{Namespace: "prod", Name: name} }

// dial sends the first packet of a new connection and returns it with what became of it.
func (v *simulated) dial(from, to string, port uint16) (packet.Packet, sim.Fate) {
	v.port++
	p := packet.NewTCP(netip.AddrPortFrom(v.pods[from], v.port), netip.AddrPortFrom(v.pods[to], port))
	return p, v.Send(cni.PodInterface(podID(from)), p)
}

// delivered reports whether a packet reached a pod.
func (v *simulated) delivered(f sim.Fate, to string) bool {
	return len(f.Out) == 1 && f.Out[0].Interface == cni.PodInterface(podID(to)) && f.Out[0].Origin == sim.Forwarded
}

// try is a packet and what is to become of it.
type try struct {
	from, to string
	port     uint16
	pass     bool
}

// eventually waits until packets fare as they should.
func (v *simulated) eventually(what string, tries ...try) {
	v.t.Helper()
	eventually(v.t, what, func() error { return v.check(tries...) })
}

// now checks it at once.
func (v *simulated) now(what string, tries ...try) {
	v.t.Helper()
	if err := v.check(tries...); err != nil {
		v.t.Fatalf("%s: %v", what, err)
	}
}

func (v *simulated) check(tries ...try) error {
	for _, w := range tries {
		p, fate := v.dial(w.from, w.to, w.port)
		if v.delivered(fate, w.to) != w.pass {
			return fmt.Errorf("%s from %s to %s: it is to pass: %v; its way: %v", p, w.from, w.to, w.pass, fate.Hops)
		}
	}
	return nil
}

// lists is what VPP holds of access lists, without what it counts.
func (v *simulated) lists() string {
	_, lists, _ := strings.Cut("\n"+v.Dump(), "\nacl ") // they are the last part
	return lists
}

// written lists the requests that change configuration.
func (v *simulated) written() (out []string) {
	for _, r := range v.Log() {
		if r.Write {
			out = append(out, r.String())
		}
	}
	return out
}

func tcp(src string, sport uint16, dst string, dport uint16) packet.Packet {
	return packet.NewTCP(netip.AddrPortFrom(netip.MustParseAddr(src), sport), netip.AddrPortFrom(netip.MustParseAddr(dst), dport))
}
