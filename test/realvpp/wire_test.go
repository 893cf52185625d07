package realvpp

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vxlan"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/sim/wire/cases"
)

// wireRecord is what VPP 25.10 sends because of each case.
const wireRecord = "../../sim/wire/cases/testdata/25.10.txt"

// TestVPPWire sends frames to VPP and compares every byte of those that leave with the record of VPP 25.10. CONTIV_WIRE_RECORD writes it.
func TestVPPWire(t *testing.T) {
	w := openWire(t, theVPP(t))
	time.Sleep(300 * time.Millisecond) // VPP looks for listeners of IPv6, also through the tunnel
	story := w.answers(t, cases.List())
	if _, err := w.do(cases.NAT(w.at)...); err != nil {
		t.Fatal(err)
	}
	story += w.answers(t, cases.NATList())
	if os.Getenv("CONTIV_WIRE_RECORD") != "" {
		if err := os.WriteFile(wireRecord, []byte(story), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(wireRecord)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(story, "\n")); diff != "" {
		t.Errorf("other frames than VPP 25.10 (-recorded +now):\n%s", diff)
	}
}

// answers sends the frames of cases, and returns those that left as text.
func (w *wireLab) answers(t *testing.T, list []cases.Case) string {
	var story strings.Builder
	for _, c := range list {
		fmt.Fprintf(&story, "%s\n", c.Name)
		for _, f := range c.In {
			got, err := w.exchange(f)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			story.WriteString(cases.Show(got))
		}
	}
	return story.String()
}

// wireLab is a lab whose peers are heard with their Ethernet headers.
type wireLab struct {
	*lab
	fd    int
	mu    sync.Mutex
	heard []cases.Frame
	probe uint16 // number of the last probe that was heard
	at    [cases.Last + 1]interface_types.InterfaceIndex
}

func openWire(t *testing.T, path string) *wireLab {
	l, err := openLab(path, "vxlan_plugin.so")
	if l != nil {
		t.Cleanup(l.close)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &wireLab{lab: l}
	if err := w.configure(); err != nil {
		t.Fatal(err)
	}
	if err := w.hear(t); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *wireLab) configure() error {
	var err error
	for n := 1; n <= cases.Last; n++ {
		if w.at[n], err = w.attachHearing(n, func() error { return w.frames.knock(n) }); err != nil {
			return err
		}
	}
	replies, err := w.do(append(cases.Loopbacks(), cases.Tunnel())...)
	if err != nil {
		return err
	}
	w.at[0] = replies[2].Msg.(*vxlan.VxlanAddDelTunnelV3Reply).SwIfIndex
	loop := func(i int) interface_types.InterfaceIndex {
		return replies[i].Msg.(*interfaces.CreateLoopbackInstanceReply).SwIfIndex
	}
	if _, err = w.dump(cases.Redirects()); err == nil {
		_, err = w.do(cases.Rest(w.at, loop(0), loop(1))...)
	}
	return err
}

// hear gathers frames that arrive at the peers.
func (w *wireLab) hear(t *testing.T) error {
	peers := map[int]int{}
	var err error
	w.ns.do(func() {
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL))); err != nil {
			return
		}
		for n := probePair; n <= cases.Last && err == nil; n++ {
			var link *net.Interface
			if link, err = net.InterfaceByName(peerName(n)); err == nil {
				peers[link.Index] = n
			}
		}
	})
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(w.fd), "frames")
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 1<<16)
		for {
			var n int
			var from unix.Sockaddr
			var failed error
			if err := conn.Read(func(fd uintptr) bool {
				n, from, failed = unix.Recvfrom(int(fd), buf, 0)
				return failed != unix.EAGAIN && failed != unix.EINTR
			}); err != nil {
				return // closed
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); ok && failed == nil && ll.Pkttype != unix.PACKET_OUTGOING {
				w.takes(peers, ll.Ifindex, append([]byte(nil), buf[:n]...))
			}
		}
	}()
	t.Cleanup(func() { file.Close(); <-ended })
	return nil
}

// takes notes a frame of one of the peers, by their links.
func (w *wireLab) takes(peers map[int]int, link int, b []byte) {
	n, known := peers[link]
	if !known {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n != probePair {
		w.heard = append(w.heard, cases.Frame{On: n, Bytes: b})
	} else if p, err := packet.Unmarshal(b[ethernetLen:]); err == nil {
		w.probe = p.DstPort
	}
}

// hearProbe waits until this socket, too, has heard the last probe: frames are heard in their order.
func (w *wireLab) hearProbe() error {
	w.frames.mu.Lock()
	want := w.frames.probes
	w.frames.mu.Unlock()
	for end := time.Now().Add(probeTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		w.mu.Lock()
		have := w.probe
		w.mu.Unlock()
		if have == want {
			return nil
		}
	}
	return fmt.Errorf("the second socket did not hear a probe within %s", probeTimeout)
}

// exchange sends a frame and returns those that leave because of it.
func (w *wireLab) exchange(f cases.Frame) ([]cases.Frame, error) {
	w.mu.Lock()
	w.heard = nil
	w.mu.Unlock()
	link := w.frames.peer[f.On]
	if err := unix.Sendto(w.frames.raw, f.Bytes, 0, &unix.SockaddrLinklayer{Ifindex: link}); err != nil {
		return nil, err
	}
	if err := w.frames.probe(); err != nil {
		return nil, err
	}
	if err := w.hearProbe(); err != nil {
		return nil, err
	}
	time.Sleep(2 * time.Millisecond) // VPP answers some ICMP errors one in a millisecond
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard, nil
}
