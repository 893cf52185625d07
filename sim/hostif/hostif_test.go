package hostif_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/hostif"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// namespace is a network namespace with a separate thread.
type namespace struct {
	calls chan func()
	ended chan struct{}
	path  string
}

func newNamespace(t testing.TB) *namespace {
	n := &namespace{calls: make(chan func()), ended: make(chan struct{})}
	failed := make(chan error)
	go func() {
		defer close(n.ended)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- err
			return
		}
		n.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		failed <- nil
		for f := range n.calls {
			f()
		}
	}()
	if err := <-failed; err != nil {
		t.Skipf("needs root, or a user namespace (unshare -Urn): make a network namespace: %v", err)
	}
	t.Cleanup(func() { close(n.calls); <-n.ended })
	return n
}

func (n *namespace) do(f func()) {
	done := make(chan struct{})
	n.calls <- func() { defer close(done); f() }
	<-done
}

func (n *namespace) ip(t testing.TB, batch string) {
	t.Helper()
	n.do(func() {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(batch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("ip -batch: %v: %s", err, out)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

// world is a VPP with two hosts: 10.1.0.2 and 10.2.0.2, with IPv6 addresses as well.
type world struct {
	vpp, a, b *namespace
	v         *sim.VPP
	do        func(...api.Message) []vpp.Reply
	stop      func()
}

const offload = af_packet.AF_PACKET_API_FLAG_CKSUM_GSO

// enter makes the three namespaces, without links.
func enter(t testing.TB) *world {
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("needs the ip command (iproute2): %v", err)
	}
	return &world{vpp: newNamespace(t), a: newNamespace(t), b: newNamespace(t)}
}

func open(t testing.TB, flags af_packet.AfPacketFlags) *world {
	w := enter(t)
	for i, h := range []*namespace{w.a, w.b} {
		n := i + 1
		w.vpp.ip(t, fmt.Sprintf("link add v%d type veth peer name eth0 netns %s\nlink set v%d up\n", n, h.path, n))
		h.ip(t, fmt.Sprintf("link set lo up\nlink set eth0 up\naddr add 10.%d.0.2/24 dev eth0\naddr add fd00:%d::2/64 dev eth0 nodad\n"+
			"route add default via 10.%d.0.1\nroute add default via fd00:%d::1\n", n, n, n, n))
		h.do(func() {
			if flags&offload == 0 { // af_packet takes frames as they are
				features(t, unix.ETHTOOL_STXCSUM)
			}
			features(t, unix.ETHTOOL_STSO)
			features(t, unix.ETHTOOL_SGSO)
		})
	}
	w.start(t)
	for n := 1; n <= 2; n++ {
		r := w.do(&af_packet.AfPacketCreateV3{HostIfName: fmt.Sprintf("v%d", n), UseRandomHwAddr: true, Flags: flags})
		i := r[0].Msg.(*af_packet.AfPacketCreateV3Reply).SwIfIndex
		w.do(up(i, true), &ip.SwInterfaceIP6EnableDisable{SwIfIndex: i, Enable: true},
			address(i, fmt.Sprintf("10.%d.0.1/24", n)), address(i, fmt.Sprintf("fd00:%d::1/64", n)))
	}
	return w
}

// start begins a VPP in its namespace, with nothing in it.
func (w *world) start(t testing.TB) {
	var h *hostif.Host
	var err error
	if h, err = hostif.New(); err != nil {
		t.Fatal(err)
	}
	w.v = sim.New(sim.Config{Version: "25.10-release", Now: time.Now(), Wire: inNamespace{h, w.vpp}, Seed: 1})
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- h.Run(ctx, w.v) }()
	connected := make(chan struct{}, 1)
	conn := vpp.New(vpp.Config{Dial: w.v.Dial, OnState: func(s vpp.State) {
		if s.Connected {
			select {
			case connected <- struct{}{}:
			default:
			}
		}
	}})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = conn.Run(ctx) // ends by stop
	}()
	w.stop = func() {
		if w.v == nil {
			return
		}
		stop()
		<-ended
		w.v.Close()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		w.v = nil
	}
	t.Cleanup(func() { w.stop() })
	<-connected
	w.do = func(msgs ...api.Message) []vpp.Reply {
		t.Helper()
		calls := make([]vpp.Call, len(msgs))
		for i, m := range msgs {
			calls[i] = vpp.Call{Msg: m}
		}
		replies := conn.Do(ctx, calls...)
		for i, r := range replies {
			if r.Err != nil {
				t.Fatalf("%s: %v", msgs[i].GetMessageName(), r.Err)
			}
		}
		return replies
	}
}

// inNamespace opens interfaces in the VPP's namespace: a separate process would be in it.
type inNamespace struct {
	*hostif.Host
	n *namespace
}

func (i inNamespace) Open(index uint32, link *sim.HostLink) (err error) {
	i.n.do(func() { err = i.Host.Open(index, link) })
	return err
}

func (i inNamespace) SetUp(index uint32, up bool) { i.n.do(func() { i.Host.SetUp(index, up) }) }

func up(i interface_types.InterfaceIndex, on bool) api.Message {
	m := &interfaces.SwInterfaceSetFlags{SwIfIndex: i}
	if on {
		m.Flags = interface_types.IF_STATUS_API_FLAG_ADMIN_UP
	}
	return m
}

func address(i interface_types.InterfaceIndex, a string) api.Message {
	p := netip.MustParsePrefix(a)
	return &interfaces.SwInterfaceAddDelAddress{SwIfIndex: i, IsAdd: true, Prefix: ip_types.AddressWithPrefix{
		Address: ip_types.NewAddress(p.Addr().AsSlice()), Len: uint8(p.Bits()),
	}}
}

// serve echoes in host b until the test ends.
func (w *world) serve(t testing.TB, network, at string) {
	var l net.Listener
	var p net.PacketConn
	var err error
	w.b.do(func() {
		if network == "tcp" {
			l, err = net.Listen(network, at)
		} else {
			p, err = net.ListenPacket(network, at)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if p != nil {
		t.Cleanup(func() { p.Close() })
		go func() {
			b := make([]byte, 1<<16)
			for {
				n, from, err := p.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = p.WriteTo(b[:n], from)
			}
		}()
		return
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
}

func (w *world) dial(t testing.TB, network, to string) (net.Conn, error) {
	var c net.Conn
	var err error
	w.a.do(func() { c, err = net.DialTimeout(network, to, 5*time.Second) })
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// echo sends bytes and reads them back.
func echo(c net.Conn, n int) error {
	b := bytes.Repeat([]byte{1, 2, 3, 5, 7, 11, 13}, n/7+1)[:n]
	_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // a connection has deadlines
	sent := make(chan error, 1)
	go func() { _, err := c.Write(b); sent <- err }()
	got := make([]byte, n)
	_, err := io.ReadFull(c, got)
	if err = errors.Join(err, <-sent); err == nil && !bytes.Equal(got, b) {
		err = errors.New("other bytes came back")
	}
	return err
}

// TestProgramsTalk: kernels at both ends find the addresses, connect, and exchange bytes through the sim, in both families.
func TestProgramsTalk(t *testing.T) {
	for name, flags := range map[string]af_packet.AfPacketFlags{"checksums by the hosts": 0, "checksums by the interface": offload} {
		t.Run(name, func(t *testing.T) {
			open(t, flags).talks(t, "7")
		})
	}
}

// retried sends a datagram until it is answered: VPP loses the one for whose neighbour it asks.
func retried(c net.Conn, n int) (err error) {
	for range 20 {
		_ = c.SetDeadline(time.Now().Add(500 * time.Millisecond)) // a connection has deadlines
		b := make([]byte, n)
		if _, err = c.Write(b); err == nil {
			_, err = io.ReadFull(c, b)
		}
		if err == nil {
			return nil
		}
	}
	return err
}

// TestUDPInFragments: a datagram longer than the link, which VPP forwards fragment by fragment.
func TestUDPInFragments(t *testing.T) {
	w := open(t, 0)
	w.serve(t, "udp", "10.2.0.2:7")
	c, err := w.dial(t, "udp", "10.2.0.2:7")
	if err == nil {
		err = retried(c, 5000)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestErrorsArrive: an unreachable port of VPP refuses, and a prefix without a route says so.
func TestErrorsArrive(t *testing.T) {
	w := open(t, 0)
	c, err := w.dial(t, "udp", "10.2.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	if err := retried(c, 10); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a closed port of VPP: %v, want connection refused", err)
	}
	if _, err := w.dial(t, "tcp", "10.2.0.2:9"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a closed port behind VPP: %v, want connection refused", err)
	}
}

// TestInterfacesComeAndGo: down, up, deleted, made again; then another VPP opens the same interfaces.
func TestInterfacesComeAndGo(t *testing.T) {
	w := open(t, 0)
	w.serve(t, "udp", "10.2.0.2:7")
	c, err := w.dial(t, "udp", "10.2.0.2:7")
	if err != nil {
		t.Fatal(err)
	}
	reached := func(want bool, when string) {
		t.Helper()
		if err := retried(c, 10); (err == nil) != want {
			t.Fatalf("%s: %v", when, err)
		}
	}
	quiet := func(when string) {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond)) // a connection has deadlines
		b := make([]byte, 10)
		if _, err := c.Write(b); err == nil {
			if _, err = c.Read(b); err == nil {
				t.Fatalf("%s: an answer", when)
			}
		}
	}
	reached(true, "at first")
	const second = 2 // local0 is 0
	w.do(up(second, false))
	quiet("down")
	w.do(up(second, true))
	reached(true, "up again")
	w.do(&af_packet.AfPacketDelete{HostIfName: "v2"})
	quiet("deleted")
	again := func() {
		for n := 1; n <= 2; n++ {
			if n == 1 && len(w.v.Interfaces()) > 1 {
				continue
			}
			r := w.do(&af_packet.AfPacketCreateV3{HostIfName: fmt.Sprintf("v%d", n), UseRandomHwAddr: true})
			i := r[0].Msg.(*af_packet.AfPacketCreateV3Reply).SwIfIndex
			w.do(up(i, true), address(i, fmt.Sprintf("10.%d.0.1/24", n)))
		}
	}
	again()
	reached(true, "made again")
	w.stop()
	quiet("without VPP")
	w.start(t)
	again()
	reached(true, "with another VPP")
}

// TestNoSuchInterface: VPP refuses it.
func TestNoSuchInterface(t *testing.T) {
	h, err := hostif.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Open(1, &sim.HostLink{Name: "no-such-interface"}); err == nil {
		t.Error("opened")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := h.Run(ctx, sim.New(sim.Config{Wire: h})); err != nil {
		t.Error(err)
	}
}

// BenchmarkStream is one TCP connection through the sim; BenchmarkRoundTrip requests of one byte, one after another.
func BenchmarkStream(b *testing.B) {
	w := open(b, 0)
	sink(b, w)
	c, err := w.dial(b, "tcp", "10.2.0.2:9")
	if err != nil {
		b.Fatal(err)
	}
	block := make([]byte, 64<<10)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		if _, err := c.Write(block); err != nil {
			b.Fatal(err)
		}
	}
}

// sink reads whatever comes in host b.
func sink(b *testing.B, w *world) {
	var l net.Listener
	var err error
	w.b.do(func() { l, err = net.Listen("tcp", "10.2.0.2:9") })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
}

func BenchmarkRoundTrip(b *testing.B) {
	w := open(b, 0)
	w.serve(b, "tcp", "10.2.0.2:7")
	c, err := w.dial(b, "tcp", "10.2.0.2:7")
	if err != nil {
		b.Fatal(err)
	}
	one := make([]byte, 1)
	for b.Loop() {
		if _, err := c.Write(one); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, one); err != nil {
			b.Fatal(err)
		}
	}
}
