package hostif

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/wire"
)

// eager is a neighbour on each interface that asks again as soon as VPP answers.
type eager struct {
	t     *testing.T
	ends  map[uint32]int // by interface: where the neighbour writes frames
	heard []uint32       // the interfaces of VPP's answers
}

func (e *eager) Send(index uint32, _ []byte) bool {
	e.heard = append(e.heard, index)
	e.ask(index)
	return true
}

// ask sends a request for VPP's address on an interface.
func (e *eager) ask(index uint32) {
	vpp := vppAt(index)
	m := frame.ARP{Op: frame.Request, SenderMAC: frame.MAC{2, 0, 0, 0, 0, 1}, Sender: vpp.Addr().Next(), Target: vpp.Addr()}
	f := frame.Ethernet{Dst: frame.Broadcast(), Src: m.SenderMAC, Type: frame.TypeARP, Payload: m.Bytes()}
	if _, err := unix.Write(e.ends[index], f.Bytes()); err != nil {
		e.t.Error(err)
	}
}

func vppAt(index uint32) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(index), 0, 1}), 24)
}

// TestAnswersWaitForTheNextRound: a neighbour that sends again at once does not keep the frames of other interfaces waiting.
func TestAnswersWaitForTheNextRound(t *testing.T) {
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	v := sim.New(sim.Config{Wire: h, Now: time.Now(), Seed: 1})
	defer v.Close()
	defer h.end()
	e := &eager{t: t, ends: map[uint32]int{}}
	h.edge = wire.New(e)
	var events []unix.EpollEvent
	for i, name := range []string{"a", "b"} {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(ends[1])
		index := v.AddInterface(sim.Interface{Name: name, Addresses: []netip.Prefix{vppAt(uint32(i + 1))}})
		if index != uint32(i+1) {
			t.Fatalf("interface %s is number %d", name, index)
		}
		h.ports[index], e.ends[index] = &port{index: index, fd: ends[0]}, ends[1]
		events = append(events, unix.EpollEvent{Fd: int32(ends[0])})
		e.ask(index)
	}
	for round := range 3 {
		e.heard = nil
		v.Wired(time.Now(), func(g sim.Graph) { h.round(g, time.Now(), events) })
		if len(e.heard) != 2 || e.heard[0] != 1 || e.heard[1] != 2 {
			t.Fatalf("round %d: answers on interfaces %v, want one on each of 1 and 2", round, e.heard)
		}
	}
}
