package realvpp

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/hostile"
	"github.com/contiv-agent/contiv-agent/vppagent/cost"
)

// natCostRatio bounds the ratio of the measured and the estimated CPU time. Caches and neighbours make a factor of two.
const natCostRatio = 4

// TestVPPNATRemovalCost compares package cost with a real VPP: a removed backend and a removed mapping, by the number of sessions in
// VPP and the number of sessions that end.
func TestVPPNATRemovalCost(t *testing.T) {
	realVPP(t, "measures the time of VPP's main thread")
	w := openLoaded(t, 0, append(each(loadService), each(func(i int) event.Change { return loadSlice(i, 0) })...)...)
	w.stop()
	pads := w.pads()
	model := cost.For(w.l.plain.conn.State().Version)
	backend, mapping := model.Message("nat44_lb_static_mapping_add_del_local"), model.Message("nat44_add_del_lb_static_mapping")
	i := 0
	for _, n := range []int{10_000, 50_000, 100_000} {
		w.fill(n)
		all, walk := w.sessions(), model.WalkSessions(w.sessions())
		var one, ten, two []time.Duration
		for range 5 {
			ten = append(ten, w.took(w.mapping(i)))
			for j := range 8 {
				one = append(one, w.took(w.local(i+1, j)))
			}
			two = append(two, w.took(w.mapping(i+1)))
			i += 2
		}
		w.compare("one backend", all, backend+walk, one)
		w.compare("mapping of 10 backends", all, mapping+time.Duration(10+pads)*walk, ten)
		w.compare("mapping of 2 backends", all, mapping+time.Duration(2+pads)*walk, two)
	}
	for _, n := range []int{10_000, 40_000} {
		before := w.sessions()
		w.hot(i, n)
		added := w.sessions() - before
		var took, dumps []time.Duration
		for j := range 3 {
			dumps = append(dumps, w.dumpOf(backendIP(i, j)))
			took = append(took, w.took(w.local(i, j)))
		}
		w.compare("one backend that has a tenth of the new sessions", added, backend+model.WalkSessions(before+added)+model.EndSessions(added/10), took)
		t.Logf("to dump the sessions of one takes %s", dumps)
		w.compare("mapping of 7 backends that have 7 tenths of them", added, mapping+model.WalkSessions((7+pads)*(before+added))+model.EndSessions(added*7/10), []time.Duration{w.took(w.mapping(i))})
		i++
	}
}

// pads is the number of locals of a mapping beside its backends. The guard knows the mappings afterwards.
func (w *loaded) pads() int {
	w.t.Helper()
	all, err := w.l.dump(&nat44_ed.Nat44LbStaticMappingDump{})
	w.check(err)
	for _, m := range all {
		if m, ok := m.(*nat44_ed.Nat44LbStaticMappingDetails); ok && m.ExternalAddr == serviceIP(0).As4() {
			return len(m.Locals) - backends
		}
	}
	w.t.Fatal("VPP has no mapping of the first Service")
	return 0
}

// compare compares the median with an estimate.
func (w *loaded) compare(name string, sessions int, estimate time.Duration, took []time.Duration) {
	w.t.Helper()
	m := median(took)
	w.t.Logf("%-50s %6d sessions: estimated %8s, took %8s (%s to %s)", name, sessions, ms(estimate), ms(m), ms(slices.Min(took)), ms(slices.Max(took)))
	if estimate > natCostRatio*m || m > natCostRatio*estimate {
		w.t.Errorf("%s: estimated %s, took %s", name, estimate, m)
	}
}

// took is the CPU time of VPP's main thread for a request.
func (w *loaded) took(m api.Message) time.Duration {
	w.t.Helper()
	before := w.mainThread()
	_, err := w.l.do(m)
	w.check(err)
	return w.mainThread() - before
}

func (w *loaded) dumpOf(a netip.Addr) time.Duration {
	w.t.Helper()
	before := w.mainThread()
	_, err := w.l.dump(&nat44_ed.Nat44UserSessionV3Dump{IPAddress: a.As4()})
	w.check(err)
	return w.mainThread() - before
}

// local removes a backend.
func (w *loaded) local(i, j int) api.Message {
	return &nat44_ed.Nat44LbStaticMappingAddDelLocal{
		ExternalAddr: serviceIP(i).As4(), ExternalPort: 80, Protocol: 6,
		Local: nat44_ed.Nat44LbAddrPort{Addr: backendIP(i, j).As4(), Port: 8080, Probability: 1},
	}
}

// mapping removes a mapping.
func (w *loaded) mapping(i int) api.Message {
	return &nat44_ed.Nat44AddDelLbStaticMapping{ExternalAddr: serviceIP(i).As4(), ExternalPort: 80, Protocol: 6, Flags: nat_types.NAT_IS_OUT2IN_ONLY | nat_types.NAT_IS_SELF_TWICE_NAT}
}

func backendIP(i, j int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(50 + j), byte(i >> 8), byte(i)})
}

// hot makes sessions of one Service.
func (w *loaded) hot(service, sessions int) {
	pair := w.l.pairs["pod-victim/client"]
	for n := range sessions {
		p := packet.NewTCP(netip.AddrPortFrom(hostile.PodIP(3), uint16(2024+n)), netip.AddrPortFrom(serviceIP(service), 80)).Opening()
		w.check(w.l.frames.put(pair, p))
		if n%20 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

// sessions is VPP's number of NAT sessions.
func (w *loaded) sessions() int {
	w.t.Helper()
	for _, line := range strings.Split(w.l.cli("show nat44 summary"), "\n") {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "total sessions: "); ok {
			v, err := strconv.Atoi(strings.Fields(n)[0])
			w.check(err)
			return v
		}
	}
	w.t.Fatal("no number of sessions")
	return 0
}
