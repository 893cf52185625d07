package realvpp

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vpp/stats"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

var (
	evil     = podAt("evil", "node-1", "10.1.1.66")
	victim   = podAt("victim", "node-1", "10.1.1.5")
	served   = podAt("dns", "node-1", "10.1.1.7")
	talker   = podAt("talker", "node-1", "10.1.1.8")
	listener = podAt("listener", "node-1", "10.1.1.9")
)

const (
	natTable   = 64512
	natPorts   = 64000 // of evil, from 1024 on, for each port of the Service
	natLives   = 5 * time.Second
	natAttack  = 100_000
	natVictims = 20
)

// natObjects are a Service of UDP and TCP with the endpoint served, and one with the endpoint listener.
func natObjects() []model.Object {
	dns, echo := web(func(s *model.Service) {
		s.Ports = []model.ServicePort{{Name: "dns", Protocol: model.UDP, Port: 53}, {Name: "more", Protocol: model.UDP, Port: 54}, {Name: "tcp", Protocol: model.TCP, Port: 53}}
	}), web(func(s *model.Service) {
		s.ID.Name, s.ClusterIPs = "echo", []netip.Addr{netip.MustParseAddr("10.96.0.20")}
		s.Ports = []model.ServicePort{{Protocol: model.UDP, Port: 7}}
	})
	toDNS, toEcho := endpoints(served), endpoints(listener)
	toDNS.Ports = []model.EndpointPort{{Name: "dns", Protocol: model.UDP, Port: 53}, {Name: "more", Protocol: model.UDP, Port: 53}, {Name: "tcp", Protocol: model.TCP, Port: 53}}
	toEcho.ID.Name, toEcho.Service.Name, toEcho.Ports = "echo-a", "echo", []model.EndpointPort{{Protocol: model.UDP, Port: 7}}
	return append(base(), evil, victim, served, talker, listener, dns, echo, toDNS, toEcho)
}

// natTwin is a node whose NAT session table is attacked, on a real VPP and on a simulated one.
type natTwin struct {
	*twin
	t    *testing.T
	port uint16 // of the victim's next connection
}

func openNATTwin(t *testing.T, cfg agent.Config) *natTwin {
	t.Helper()
	l, err := openLab(theVPP(t))
	t.Cleanup(l.close)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Services.Renderer.NAT44.Sessions, cfg.Services.Renderer.NAT44.TimeoutUDP, cfg.Services.Renderer.NAT44.TimeoutTCPTransitory = natTable, uint32(natLives/time.Second), uint32(natLives/time.Second)
	w, err := openTwin(l, "node-1", cfg)
	if w != nil {
		t.Cleanup(w.close)
	}
	if err == nil {
		err = w.apply(puts(natObjects()))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &natTwin{twin: w, t: t, port: 20000}
}

// attack sends datagrams from evil to the Service, each from another port.
func (w *natTwin) attack() {
	w.t.Helper()
	for sent, service := 0, 53; sent < natAttack; service++ {
		n := min(natPorts, natAttack-sent)
		w.flood(service, n)
		w.tick()
		for i := range n {
			w.sim.Send(door(evil), packet.Packet{
				Src: evil.IPs[0], Dst: netip.MustParseAddr("10.96.0.10"), Proto: model.UDP, SrcPort: uint16(1024 + i), DstPort: uint16(service),
			})
		}
		sent += n
	}
}

// flood has VPP's packet generator send what comes from evil.
func (w *natTwin) flood(service, n int) {
	w.t.Helper()
	name := fmt.Sprintf("to-%d", service)
	w.lab.cli("packet-generator delete " + name)
	if said := w.lab.cli(fmt.Sprintf("packet-generator new { name %s limit %d size 64-64 node ip4-input interface %s data "+
		"{ UDP: %s -> 10.96.0.10 UDP: 1024 - %d -> %d incrementing 20 } }", name, n, door(evil), evil.IPs[0], 1024+natPorts-1, service)); said != "" {
		w.t.Fatal(said)
	}
	w.lab.cli("packet-generator enable-stream " + name)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		said := w.lab.cli("show packet-generator")
		if line := said[max(0, strings.Index(said, name)):]; strings.Contains(strings.SplitN(line, "\n", 2)[0], "No") {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("the packet generator does not end:\n%s", said)
		}
	}
}

// connect lets the victim open connections, and returns how many get through: simulated, real.
func (w *natTwin) connect() (through [2]int) {
	w.t.Helper()
	w.tick()
	for range natVictims {
		w.port++
		p := packet.NewTCP(netip.AddrPortFrom(victim.IPs[0], w.port), netip.MustParseAddrPort("10.96.0.10:53"))
		if len(w.sim.Send(door(victim), p).Out) == 1 {
			through[0]++
		}
		for range 3 { // a frame may be lost between here and VPP
			out, err := w.lab.send(door(victim), p)
			if err != nil {
				w.t.Fatal(err)
			}
			if len(out) == 1 {
				through[1]++
				break
			}
		}
	}
	return through
}

// look lets both agents look at the table.
func (w *natTwin) look() (out [2]*nattable.Status) {
	w.t.Helper()
	w.tick()
	for i, s := range w.sides {
		if err := s.agent.LookAtNAT(context.Background()); err != nil {
			w.t.Fatalf("%s: %v", s.name, err)
		}
		out[i] = s.agent.Status().NAT
	}
	return out
}

func (w *natTwin) want(when string, through [2]int, want int) {
	w.t.Helper()
	if through != [2]int{want, want} {
		w.t.Errorf("%s: %d of %d connections in the simulated VPP, %d in the real one, want %d", when, through[0], natVictims, through[1], want)
	}
}

// TestVPPNATTable: one pod fills the table. The victim's connections fail until the agent frees sessions, at first because they live,
// then although all have expired; the simulated VPP and its agent do the same.
func TestVPPNATTable(t *testing.T) {
	realVPP(t, "fills VPP's session table by its packet generator")
	t.Run("expired", func(t *testing.T) {
		w := openNATTwin(t, agent.Config{NATTable: nattable.Config{PodShare: 100}})
		w.want("before", w.connect(), natVictims)
		w.attack()
		w.want("full of sessions that live", w.connect(), 0)
		for i, st := range w.look() {
			if st.Used != natTable || !st.Full || st.Expired+st.Evicted != 0 {
				t.Errorf("%s: %+v", w.sides[i].name, st)
			}
		}
		counted, err := stats.Reader{Socket: filepath.Join(w.lab.dir, "stats.sock")}.NAT44Sessions(t.Context())
		if err != nil || counted != natTable {
			t.Errorf("the stats segment has %d sessions, %v", counted, err)
		}
		time.Sleep(natLives + 2*time.Second)
		w.want("full of sessions that have expired", w.connect(), 0)
		for i, st := range w.look() {
			if want := uint64(natTable - natTable*70/100); st.Expired != want || st.Evicted != 0 || st.Full || st.Used != natTable-want {
				t.Errorf("%s: %+v, want %d freed", w.sides[i].name, st, want)
			}
		}
		w.want("after", w.connect(), natVictims)
	})
	t.Run("a pod above its share", func(t *testing.T) {
		w := openNATTwin(t, agent.Config{})
		w.want("before", w.connect(), natVictims)
		w.attack()
		w.want("full", w.connect(), 0)
		for i, st := range w.look() {
			if st.Used > natTable/4+2*natVictims || st.Evicted+st.Expired < natTable*7/10 || !strings.Contains(st.Problem, "pod default/evil") && st.Evicted > 0 {
				t.Errorf("%s: %+v", w.sides[i].name, st)
			}
		}
		w.want("after", w.connect(), natVictims)
	})
}

// TestVPPNATTableGap: what a connection that is established sees while 60,000 sessions are freed.
func TestVPPNATTableGap(t *testing.T) {
	realVPP(t, "fills VPP's session table by its packet generator")
	w := openNATTwin(t, agent.Config{NATTable: nattable.Config{PodShare: 100}})
	flow := w.talk()
	flow.settle()
	idle := flow.window()
	w.attack()
	time.Sleep(natLives + 2*time.Second)
	flow.window()
	pause := func(ctx context.Context, d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		}
	}
	start := time.Now()
	done, err := w.sides[1].agent.VPPAgent().RelieveSessions(t.Context(), vppagent.Relief{Want: 60_000, Pause: pause})
	took := time.Since(start)
	busy := flow.window()
	if err != nil || done.Expired != 60_000 || done.Evicted != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	t.Logf("VPP %s: 60,000 sessions freed in %s, VPP busy for %s", w.lab.version(), took.Round(time.Millisecond), done.Busy.Round(time.Millisecond))
	t.Logf("a datagram each millisecond: idle %s; while sessions are freed %s", idle, busy)
	if busy.answered*10 < busy.sent*9 {
		t.Errorf("%d of %d datagrams answered", busy.answered, busy.sent)
	}
}

// talk is a flow of datagrams through the Service echo, one each millisecond, answered by the listener.
func (w *natTwin) talk() *chatter {
	w.t.Helper()
	at, err := w.lab.inhabit(door(listener), listener.IPs...)
	if err != nil {
		w.t.Fatal(err)
	}
	from, err := w.lab.inhabit(door(talker), talker.IPs...)
	if err != nil {
		w.t.Fatal(err)
	}
	var server net.PacketConn
	var client net.Conn
	at.do(func() { server, err = net.ListenPacket("udp4", "10.1.1.9:7") })
	if err == nil {
		from.do(func() { client, err = net.Dial("udp4", "10.96.0.20:7") })
	}
	if err != nil {
		w.t.Fatal(err)
	}
	f := &chatter{t: w.t}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	w.t.Cleanup(func() { stop(); server.Close(); client.Close(); all.Wait() })
	all.Go(func() {
		b := make([]byte, 16)
		for {
			n, a, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(b[:n], a) // one that is lost is counted
		}
	})
	all.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := uint64(0); ctx.Err() == nil; n++ {
			<-tick.C
			_, _ = client.Write(binary.BigEndian.AppendUint64(nil, n))
			f.sent.Add(1)
		}
	})
	all.Go(func() {
		b := make([]byte, 16)
		for {
			if _, err := client.Read(b); err != nil {
				if ctx.Err() != nil {
					return
				}
				continue // an ICMP error
			}
			f.heard()
		}
	})
	return f
}

// chatter counts datagrams and their answers.
type chatter struct {
	t              *testing.T
	sent, answered atomic.Int64

	mu        sync.Mutex
	last      time.Time
	gap       time.Duration
	sentThen  int64
	heardThen int64
}

func (f *chatter) heard() {
	f.answered.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.last.IsZero() {
		f.gap = max(f.gap, now.Sub(f.last))
	}
	f.last = now
}

// settle waits until answers come.
func (f *chatter) settle() {
	f.t.Helper()
	for end := time.Now().Add(patience); f.answered.Load() < 100; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("%d datagrams, %d answers", f.sent.Load(), f.answered.Load())
		}
	}
	f.window()
	time.Sleep(time.Second)
}

// seen is what a flow saw in some time.
type seen struct {
	sent, answered int64
	gap            time.Duration
}

func (s seen) String() string {
	return fmt.Sprintf("%d of %d answered, longest gap %s", s.answered, s.sent, s.gap.Round(100*time.Microsecond))
}

// window is what the flow saw since the last call, after all answers that may come had the time to.
func (f *chatter) window() seen {
	time.Sleep(200 * time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	sent, answered := f.sent.Load(), f.answered.Load()
	out := seen{sent - f.sentThen, answered - f.heardThen, f.gap}
	f.sentThen, f.heardThen, f.gap = sent, answered, 0
	return out
}
