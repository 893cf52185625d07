package vppagent_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"go.fd.io/govpp/binapi/nat44_ed"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// earlierLab is a lab in which an agent without draining has made Services, and removed and added endpoints. The client is tap1.
type earlierLab struct {
	*lab
	rnd       *rand.Rand
	endpoints [][]string // of each Service
	next      int        // number of the next endpoint
	port      int        // the next one of the client
	lost      int        // endpoints that were to drain and could not, as the agent counts them
}

// vip is the address of a Service.
func vip(service int) string { return fmt.Sprintf("10.96.0.%d", service+1) }

// service is the value of a Service whose endpoints have weight 2, and those that drain 0.
func earlierService(service int, endpoints []string, draining ...string) *nat.DNat44 {
	d := dnat(fmt.Sprintf("default/web-%d", service), vip(service), 80, slices.Concat(endpoints, draining)...)
	for i, l := range d.StMappings[0].LocalIps {
		l.Probability = 2
		if i >= len(endpoints) {
			l.Probability = 0
		}
	}
	return d
}

func newEarlierLab(t *testing.T, seed uint64, services, endpoints int) *earlierLab {
	t.Helper()
	e := &earlierLab{rnd: rand.New(rand.NewPCG(seed, 1)), port: 1024}
	e.lab = newLab(t, vppagent.Config{Options: descriptor.Options{NATDrained: func(_, lost int) { e.lost += lost }}})
	pods(e.lab)
	e.allConfigured(e.put(node()...))
	for s := range services {
		e.endpoints = append(e.endpoints, nil)
		for range endpoints {
			e.endpoints[s] = append(e.endpoints[s], e.endpoint())
		}
		e.allConfigured(e.put(earlierService(s, e.endpoints[s])))
		e.makeEarlier(s)
	}
	e.restartAgent()
	e.sim.ClearLog()
	e.allConfigured(e.resync())
	e.quiet("an agent that finds mappings of an earlier one")
	return e
}

// endpoint makes a pod.
func (e *earlierLab) endpoint() string {
	ip := fmt.Sprintf("10.1.%d.%d", 2+e.next/200, 1+e.next%200)
	addPod(e.lab, fmt.Sprintf("pod%d", e.next), ip)
	e.next++
	return ip + ":80"
}

// makeEarlier makes a mapping as an earlier agent does, with the history of one that has removed and added endpoints.
func (e *earlierLab) makeEarlier(service int) {
	e.t.Helper()
	ask := func(dump bool, m ...vpp.Call) []vpp.Reply {
		replies := e.conn.Do(e.t.Context(), m...)
		for _, r := range replies {
			if r.Err != nil {
				e.t.Fatal(r.Err)
			}
		}
		return replies
	}
	var made *nat44_ed.Nat44LbStaticMappingDetails
	for _, d := range ask(true, vpp.Call{Dump: true, Msg: &nat44_ed.Nat44LbStaticMappingDump{}})[0].Details {
		if d := d.(*nat44_ed.Nat44LbStaticMappingDetails); d.ExternalAddr == netip.MustParseAddr(vip(service)).As4() {
			made = d
		}
	}
	locals := []nat44_ed.Nat44LbAddrPort{{Addr: [4]byte{192, 0, 2, 1}, Port: 1}, {Addr: [4]byte{192, 0, 2, 2}, Port: 1}}
	of := func(endpoint string) nat44_ed.Nat44LbAddrPort {
		at := netip.MustParseAddrPort(endpoint)
		return nat44_ed.Nat44LbAddrPort{Addr: at.Addr().As4(), Port: at.Port(), Probability: 2}
	}
	var gone []string
	for _, endpoint := range e.endpoints[service] {
		if e.rnd.IntN(2) == 0 {
			gone = append(gone, e.endpoint())
			locals = append(locals, of(gone[len(gone)-1]))
		}
		locals = append(locals, of(endpoint))
	}
	tag := descriptor.FixedText(made.Tag)
	change := func(add bool, endpoint string) vpp.Call {
		return descriptor.Write(&nat44_ed.Nat44LbStaticMappingAddDelLocal{
			IsAdd: add, ExternalAddr: made.ExternalAddr, ExternalPort: 80, Protocol: 6, Local: of(endpoint),
		})
	}
	ask(false,
		descriptor.Write(&nat44_ed.Nat44AddDelLbStaticMapping{Flags: made.Flags, ExternalAddr: made.ExternalAddr, ExternalPort: 80, Protocol: 6}),
		descriptor.Write(&nat44_ed.Nat44AddDelLbStaticMapping{
			IsAdd: true, Flags: made.Flags, ExternalAddr: made.ExternalAddr, ExternalPort: 80, Protocol: 6, Tag: tag, Locals: locals, LocalNum: uint32(len(locals)),
		}))
	e.rnd.Shuffle(len(gone), func(i, j int) { gone[i], gone[j] = gone[j], gone[i] })
	for _, g := range gone {
		ask(false, change(false, g))
	}
}

// connect opens connections to a Service, and returns how many each endpoint has now.
func (e *earlierLab) connect(service, n int) {
	e.t.Helper()
	for range n {
		e.port++
		syn := packet.NewTCP(netip.AddrPortFrom(netip.MustParseAddr("10.1.1.2"), uint16(e.port)), netip.MustParseAddrPort(vip(service)+":80"))
		if fate := e.sim.Send("tap1", syn); len(fate.Out) != 1 {
			e.t.Fatal(fate)
		}
	}
}

// open returns how many connections each endpoint has.
func (e *earlierLab) open() map[string]int {
	out := map[string]int{}
	for _, s := range e.sim.Sessions() {
		out[s.Out2In.RewriteDst.String()]++
	}
	return out
}

// TestEarlierMappingsDrain: endpoints of mappings that an agent without draining has made are replaced one by one. Those that stay lose no connection, those
// that drain get no new one, and most of those keep theirs.
func TestEarlierMappingsDrain(t *testing.T) {
	drains, lost := 0, 0
	for seed := range pace.Fewer(uint64(6), 3) {
		for _, n := range []int{1, 2, 3, 8} {
			e := newEarlierLab(t, seed, 1, n)
			old := slices.Clone(e.endpoints[0])
			for _, i := range e.rnd.Perm(n) {
				e.connect(0, 20*n)
				had := e.open()
				e.endpoints[0] = append(e.endpoints[0], e.endpoint())
				e.allConfigured(e.put(earlierService(0, e.endpoints[0])))
				e.endpoints[0] = slices.DeleteFunc(e.endpoints[0], func(x string) bool { return x == old[i] })
				counted := e.lost
				e.allConfigured(e.put(earlierService(0, e.endpoints[0], old[i])))
				drains, lost = drains+1, lost+e.lost-counted
				now := e.open()
				for endpoint, n := range had {
					if now[endpoint] != n && (endpoint != old[i] || e.lost == counted) {
						t.Fatalf("seed %d: %s had %d connections and has %d", seed, endpoint, n, now[endpoint])
					}
				}
				e.connect(0, 20*n)
				if after := e.open(); after[old[i]] != now[old[i]] {
					t.Fatalf("seed %d: %s drains, and had %d connections and has %d", seed, old[i], now[old[i]], after[old[i]])
				}
				e.restartAgent()
				e.sim.ClearLog()
				e.allConfigured(e.resync())
				e.quiet("an agent that finds a drain of a mapping of an earlier one")
				e.allConfigured(e.put(earlierService(0, e.endpoints[0])))
			}
		}
	}
	t.Logf("%d of %d endpoints could not drain", lost, drains)
	if lost > drains/3 {
		t.Errorf("%d of %d endpoints could not drain", lost, drains)
	}
}

// TestEarlierMappingsShareADump: mappings whose endpoints begin to drain in one transaction are read together.
func TestEarlierMappingsShareADump(t *testing.T) {
	e := newEarlierLab(t, 1, 20, 3)
	values := map[string]proto.Message{}
	for s, list := range e.endpoints {
		d := earlierService(s, list[1:], list[0])
		values["config/vpp/nat/v2/dnat44/"+d.Label] = d
	}
	e.sim.ClearLog()
	c := e.txn(event.NoResync, values)
	e.allConfigured(c)
	if n := requests(e.sim, "nat44_lb_static_mapping_dump"); n != 1 {
		t.Errorf("%d dumps", n)
	}
}

// TestOtherWeightsEndNoConnection: an agent that starts with other weights of endpoints, as with another --local-endpoint-weight, ends no connection, whichever agent
// made the mapping. The next start writes nothing.
func TestOtherWeightsEndNoConnection(t *testing.T) {
	for name, earlier := range map[string]bool{"an earlier agent's": true, "this agent's": false} {
		for _, weights := range [][2]uint32{{1, 2}, {2, 1}, {2, 8}, {3, 7}} {
			e := newEarlierLab(t, 3, 1, 6)
			d := earlierService(0, e.endpoints[0])
			key := "config/vpp/nat/v2/dnat44/" + d.Label
			if !earlier {
				e.allConfigured(e.del(key))
				e.allConfigured(e.put(d))
			}
			e.connect(0, 200)
			had := e.open()
			for i, l := range d.StMappings[0].LocalIps {
				l.Probability = weights[i%2]
			}
			e.want[key] = d
			for _, start := range []string{"with other weights", "again"} {
				e.restartAgent()
				e.sim.ClearLog()
				e.allConfigured(e.resync())
				if now := e.open(); fmt.Sprint(now) != fmt.Sprint(had) {
					t.Errorf("%s mapping, weights %v: connections were %v and are %v", name, weights, had, now)
				}
				if start == "again" {
					e.quiet(fmt.Sprintf("%s mapping, weights %v: the second start", name, weights))
				}
			}
		}
	}
}
