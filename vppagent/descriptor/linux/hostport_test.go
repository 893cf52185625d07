package linux_test

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
)

// do runs f in the namespace.
func (n *netNS) do(t *testing.T, f func()) {
	t.Helper()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		at, err := netns.GetFromPath(n.path)
		if err == nil {
			defer at.Close()
			err = netns.Set(at)
		}
		if err == nil {
			f()
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

// assign sets the loopback up and gives it an address.
func (n *netNS) assign(t *testing.T, address string) {
	t.Helper()
	lo, err := n.nl.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.nl.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	if err := n.nl.AddrAdd(lo, a); err != nil {
		t.Fatal(err)
	}
}

// udp opens a socket in the namespace.
func (n *netNS) udp(t *testing.T, at string) (c net.PacketConn) {
	t.Helper()
	var err error
	n.do(t, func() { c, err = net.ListenPacket("udp4", at) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestHostPortForgetsFlows: a socket that sends to a host port before it exists reaches the pod as soon as it exists, and no longer when it is removed: the
// kernel decides anew.
func TestHostPortForgetsFlows(t *testing.T) {
	l := newLab(t)
	l.own.assign(t, "192.168.16.1/24")
	l.own.assign(t, "10.1.0.2/32")
	pod, client, direct := l.own.udp(t, "10.1.0.2:5300"), l.own.udp(t, "192.168.16.1:40000"), l.own.udp(t, "192.168.16.1:40001")
	send := func(from net.PacketConn, text, to string) {
		t.Helper()
		a, err := net.ResolveUDPAddr("udp4", to)
		if err == nil {
			_, err = from.WriteTo([]byte(text), a)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// hears fails unless the next datagram that the pod gets is a text. One that the pod gets anyway comes after what was sent before.
	hears := func(when, want string) {
		t.Helper()
		buf := make([]byte, 100)
		if err := pod.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, _, err := pod.ReadFrom(buf)
		if got := string(buf[:n]); got != want {
			t.Errorf("%s: the pod gets %q, want %q: %v", when, got, want, err)
		}
	}
	port := func(node, of uint32) *contivlinux.HostPort {
		return &contivlinux.HostPort{Protocol: contivlinux.HostPort_UDP, HostAddress: "0.0.0.0", HostPort: node, Address: "10.1.0.2", Port: of}
	}
	l.checkApplied("another port", l.put(port(5302, 5300))) // from now on the kernel remembers flows
	send(client, "before", "192.168.16.1:5301")
	l.checkApplied("put", l.put(port(5301, 5300)))
	send(client, "while", "192.168.16.1:5301")
	send(direct, "direct", "10.1.0.2:5300")
	hears("put", "while")
	hears("put", "direct")
	l.checkApplied("deleted", l.del(port(5301, 5300)))
	send(client, "after", "192.168.16.1:5301")
	send(direct, "direct", "10.1.0.2:5300")
	hears("deleted", "direct")
}
