package realvpp

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/hostile"
)

// TestVPPStallTraffic has a flow of the victim, one datagram each millisecond, while the tenant changes what it has, and shows how many
// datagrams are lost and how long each took, with as many quiet seconds before for comparison. It asserts that the flow continues.
func TestVPPStallTraffic(t *testing.T) {
	realVPP(t, "measures the time of VPP's main thread")
	for _, workers := range []int{0, 1} {
		for _, port := range []uint16{80, 0} {
			t.Run(fmt.Sprintf("workers=%d/port=%d", workers, port), func(t *testing.T) { stallTraffic(t, workers, port) })
		}
	}
}

const (
	loadServices = 1000
	backends     = 10
)

func loadService(i int) event.Change {
	return put(&model.Service{
		ID: model.ServiceID{Namespace: "evil", Name: fmt.Sprint("many-", i)}, ClusterIPs: []netip.Addr{serviceIP(i)},
		Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}},
	})
}

func serviceIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, byte(100 + i>>8), byte(i)}) }

// loadSlice has backends outside, and the victim's client for one that packets reach.
func loadSlice(i, first int) event.Change {
	s := &model.EndpointSlice{
		ID: model.SliceID{Namespace: "evil", Name: fmt.Sprint("many-", i)}, Service: model.ServiceID{Namespace: "evil", Name: fmt.Sprint("many-", i)},
		Ports: []model.EndpointPort{{Port: 8080, Protocol: model.TCP}},
	}
	for j := first; j < first+backends; j++ {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(50 + j), byte(i >> 8), byte(i)}), Ready: true, Serving: true})
	}
	return put(s)
}

func each(f func(int) event.Change) (out []event.Change) {
	for i := range loadServices {
		out = append(out, f(i))
	}
	return out
}

func withdrawn(list []event.Change) []event.Change {
	list = slices.Clone(list)
	for i := range list {
		list[i].Object = nil
	}
	return list
}

func stallTraffic(t *testing.T, workers int, port uint16) {
	w := openLoaded(t, workers, members()...)
	policy := func(more ...uint16) event.Change {
		if port == 0 {
			return put(evilPolicy())
		}
		return put(evilPolicy(append([]uint16{port}, more...)...))
	}
	w.flow.look()
	time.Sleep(3 * time.Second)
	quiet := w.flow.look()
	w.row("quiet for 3 s", 0, quiet)
	step := func(name string, list ...event.Change) {
		t.Helper()
		w.flow.look()
		began, before := time.Now(), w.mainThread()
		w.emit(list...)
		w.settle()
		took := time.Since(began) - 700*time.Millisecond
		got := w.flow.look()
		w.row(fmt.Sprintf("%s (%s, %s of VPP)", name, took.Round(100*time.Millisecond), ms(w.mainThread()-before)), took, got)
		if got.lost > got.packets/2 {
			t.Errorf("%s: %s", name, got)
		}
	}
	step("policy arrives", policy())
	step("one member more", put(evilMember(30_000, true)))
	step("one member less", put(evilMember(30_000, false)))
	var more []event.Change
	for i := range 1000 {
		more = append(more, put(evilMember(25_000+i, true)))
	}
	step("1,000 members more", more...)
	step("1,000 members less", withdrawn(more)...)
	if port > 0 {
		step("a port more", policy(81))
	}
	step("policy goes", withdrawn([]event.Change{policy()})...)
	if port == 0 {
		return
	}
	all := append(each(loadService), each(func(i int) event.Change { return loadSlice(i, 0) })...)
	changed := each(func(i int) event.Change { return loadSlice(i, 1) })
	step("1,000 Services arrive", all...)
	step("an endpoint of each changes", changed...)
	step("1,000 Services go", withdrawn(all)...)
	step("1,000 Services arrive again", all...)
	w.fill(50_000)
	step("an endpoint of each changes, with 50,000 NAT sessions", changed...)
	w.fill(50_000)
	step("1,000 Services go, with 50,000 NAT sessions", withdrawn(all)...)
}

// row writes a line of the table.
func (w *loaded) row(name string, _ time.Duration, d delayed) {
	w.t.Helper()
	w.t.Logf("| %s | %d of %d | %s | %d | %s |", name, d.lost, d.packets, ms(d.longest), d.later, ms(d.usual))
}

// mainThread is the CPU time of VPP's main thread.
func (w *loaded) mainThread() time.Duration {
	pid := w.l.cmd.Process.Pid
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, pid))
	w.check(err)
	var ns int64
	_, err = fmt.Sscan(string(b), &ns)
	w.check(err)
	return time.Duration(ns)
}

// fill makes NAT sessions: the victim's client dials the Services from many ports.
func (w *loaded) fill(sessions int) {
	pair := w.l.pairs["pod-victim/client"]
	for n := range sessions {
		p := packet.NewTCP(netip.AddrPortFrom(hostile.PodIP(3), uint16(1024+n/loadServices)), netip.AddrPortFrom(serviceIP(n%loadServices), 80)).Opening()
		w.check(w.l.frames.put(pair, p))
		if n%20 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	w.t.Logf("NAT44: %s", w.l.cli("show nat44 summary"))
}
