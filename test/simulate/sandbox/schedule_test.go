package sandbox

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/test/simulate/network"
	"github.com/contiv-agent/contiv-agent/test/simulate/servers"
)

// Times of a round.
const (
	window = time.Minute     // in which actions begin
	hold   = 2 * time.Minute // for which agents hold removals: longer than a client may wait after an API server that is empty and then has no room for it
	quiet  = 3 * time.Minute // without faults, for the back-off of retries and recorded DELs
)

// The kinds of actions.
const (
	startPod      = "start"
	stopPod       = "stop"
	giveUp        = "start, and the plugin is killed" // after N ms
	repeatAdd     = "ADD again"
	removeUnknown = "DEL of an unknown sandbox"
	checkPod      = "CHECK"
	collect       = "GC"
	killAgent     = "agent is killed" // For: it is away
	killVPP       = "VPP is killed"   // For: it is away
	cutVPP        = "connection cut"
	hangVPP       = "VPP hangs" // For
	slowVPP       = "VPP is slow"
	refuseVPP     = "VPP refuses" // For: N of 1,000 requests that change something
	hangAgent     = "the agent's socket hangs"
	olderAPI      = "API server is older" // For
	losePower     = "node loses power"    // For: the agent is away; N draws what its disk loses
	setClock      = "clock is set"        // the agent is killed, and the next one has a clock that is an hour off; For: it is away
)

var (
	requests  = []string{startPod, startPod, startPod, stopPod, stopPod, giveUp, repeatAdd, removeUnknown, checkPod, collect}
	faults    = []string{killAgent, killAgent, killVPP, cutVPP, hangVPP, slowVPP, refuseVPP, hangAgent}
	apiFaults = []string{
		string(servers.CutAPI), string(servers.EmptyAPI), string(servers.SlowAPI), string(servers.FailAPI), string(servers.CutWatch), string(servers.TearWatch),
		string(servers.ExpireAPI), string(servers.StaleAPI), olderAPI,
	}
	etcdFaults = []string{
		string(servers.PutEtcd), string(servers.PutEtcd), string(servers.CutEtcd), string(servers.HangEtcd), string(servers.SlowEtcd), string(servers.CompactEtcd),
		string(servers.BackEtcd), string(servers.LoseLease), string(servers.DeadEtcd), string(servers.SlipEtcd),
	}
	fanoutFaults = []string{string(servers.CutFanout), string(servers.HangFanout), string(servers.SlowFanout), string(servers.KillFanout), string(servers.DeadFanout)}
)

type action struct {
	at   time.Duration
	kind string
	pod  int // of faults: a pod of their node
	d    time.Duration
	n    int
}

func (a action) String() string {
	return fmt.Sprintf("%6.2fs %s, pod %d, for %s, %d", a.at.Seconds(), a.kind, a.pod, a.d, a.n)
}

// pods is the number of pods that a seed starts and stops.
const pods = 2 * podsPerNode

// draw draws a round, with a fan-out server or without. Half of the kills are within 400 ms of a request, while it is in progress.
func draw(rng *rand.Rand, fanout bool) (list []action) {
	at := func() time.Duration { return time.Duration(rng.IntN(int(window/time.Millisecond))) * time.Millisecond }
	for range 8 + rng.IntN(8) {
		list = append(list, action{at(), requests[rng.IntN(len(requests))], rng.IntN(pods), time.Duration(rng.IntN(400)) * time.Millisecond, rng.IntN(1 << 20)})
	}
	for range rng.IntN(5) {
		a := action{at(), faults[rng.IntN(len(faults))], rng.IntN(pods), time.Duration(100+rng.IntN(15000)) * time.Millisecond, rng.IntN(1 << 20)}
		if rng.IntN(2) == 0 {
			a.at = list[rng.IntN(len(list))].at + time.Duration(rng.IntN(400))*time.Millisecond
		}
		list = append(list, a)
	}
	lists := [][]string{apiFaults, etcdFaults, {setClock}}
	if fanout {
		lists = append(lists, fanoutFaults)
	}
	for _, kinds := range lists {
		for range rng.IntN(min(4, 1+len(kinds))) {
			list = append(list, action{at(), kinds[rng.IntN(len(kinds))], rng.IntN(pods), time.Duration(100+rng.IntN(20000)) * time.Millisecond, rng.IntN(1 << 20)})
		}
	}
	slices.SortStableFunc(list, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	return list
}

// play carries out the actions of a round, and waits until the requests and faults have ended.
func (w *world) play(list []action) {
	has := func(kinds ...string) bool {
		return slices.ContainsFunc(list, func(a action) bool { return slices.Contains(kinds, a.kind) })
	}
	w.traffic.mayBe(has(olderAPI, string(servers.StaleAPI), string(servers.EmptyAPI)), has(slices.Concat(apiFaults, fanoutFaults)...))
	began := time.Now()
	for _, a := range list {
		time.Sleep(time.Until(began.Add(a.at)))
		w.log.Info("ACTION", "what", a.String())
		w.act(a)
	}
	w.faulting.Wait()
}

func (w *world) act(a action) {
	h, p, rng := w.hosts[a.pod/podsPerNode], w.pods()[a.pod], rand.New(rand.NewPCG(w.seed, uint64(a.n)))
	inTurn := func(f func()) { w.faulting.Go(func() { p.inTurn(f) }) }
	during := func(of *network.Network, change func(f *network.Faults, by int)) {
		of.Change(func(f *network.Faults) { change(f, 1) })
		w.faulting.Go(func() {
			time.Sleep(a.d)
			of.Change(func(f *network.Faults) { change(f, -1) })
		})
	}
	kind := []string{"", protocol.InterfaceVeth, protocol.InterfaceTap, protocol.InterfaceMemif}[a.n%4]
	switch a.kind {
	case startPod:
		inTurn(func() { h.start(p, kind, patience) })
	case giveUp:
		inTurn(func() { h.start(p, kind, 1+a.d) })
	case stopPod:
		inTurn(func() { h.runtime.stop(p) })
	case repeatAdd:
		inTurn(func() { h.repeat(p) })
	case removeUnknown:
		inTurn(func() { h.removeUnknown(p, rng) })
	case checkPod:
		inTurn(func() { _ = h.check(p) })
	case collect:
		w.faulting.Go(h.collect)
	case killAgent, setClock:
		synctest.Wait()
		if a.kind == setClock {
			h.setClock(time.Duration(1-a.n%2*2) * time.Hour)
		}
		if err := h.killAgent(a.d); err != nil {
			h.failf("%w", err)
		}
	case losePower:
		w.actPower(h, a, rng)
	case killVPP:
		w.faulting.Go(func() { h.killVPP(a.d, h.forget) })
	case cutVPP:
		h.toVPP.Sever()
	case hangVPP:
		during(h.toVPP, func(f *network.Faults, by int) { f.Hung += by })
	case slowVPP:
		during(h.toVPP, func(f *network.Faults, by int) { f.Slow += time.Duration(by) * 150 * time.Millisecond })
	case hangAgent:
		during(h.toAgent, func(f *network.Faults, by int) { f.Hung += by })
	case refuseVPP:
		h.refuse(rng, 1+a.n%1000)
		w.faulting.Go(func() {
			time.Sleep(a.d)
			h.refuse(rng, -1-a.n%1000)
		})
	default:
		w.actServer(h, a, rng)
	}
}

// actServer begins a fault of the API server, of etcd or of the fan-out server.
func (w *world) actServer(h *host, a action, rng *rand.Rand) {
	f := servers.Fault{Kind: servers.Kind(a.kind), For: a.d, N: a.n}
	switch f.Kind {
	case servers.SlowAPI:
		f.N = []int{500, 5000, 30000}[a.n%3]
	case servers.FailAPI:
		f.N = []int{50, 300, 1000}[a.n%3]
	case servers.SlowEtcd, servers.SlowFanout:
		f.N = []int{50, 500, 4000}[a.n%3]
	case servers.DeadEtcd, servers.DeadFanout:
		f.N = a.n % 2000
	}
	var end func()
	switch {
	case a.kind == olderAPI:
		end = w.cluster.goBack(a.n)
	case slices.Contains(apiFaults, a.kind):
		end = servers.BeginAPI(w.cluster.server, f)
	case slices.Contains(fanoutFaults, a.kind):
		end = w.relay.Begin(f, h.name)
	default:
		end = h.etcd.Begin(f, rng)
	}
	if f.Kind == servers.BackEtcd {
		for _, h := range w.hosts {
			h.etcd.Net.Sever()
		}
	}
	if end != nil {
		w.faulting.Go(func() {
			time.Sleep(a.d)
			end()
		})
	}
}

// refuse lets VPP refuse more of 1,000 requests that change something, or fewer.
func (h *host) refuse(rng *rand.Rand, more int) {
	h.node.mu.Lock()
	defer h.node.mu.Unlock()
	h.refused += more
	refused := h.refused
	h.sim.Fail(func(name string) (int32, bool) {
		if sim.Writes(name) && rng.IntN(1000) < refused {
			return -1, false // VNET_API_ERROR_UNSPECIFIED
		}
		return 0, false
	})
}
