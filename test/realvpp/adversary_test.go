package realvpp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/adversary"
	"github.com/contiv-agent/contiv-agent/test/adversary/kube"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// The bounds of TestVPPAdversary: all sequences, those that a pair of VPPs lives for, and the events of one.
const (
	adversarySequences = 2000
	adversaryGames     = 20
	adversaryEvents    = 50
	// adversaryPauses is one of how many events of time lets time pass.
	adversaryPauses = 25
)

// TestVPPAdversary lets pods send anything to two nodes with a real VPP each, and checks what arrives against the policies of its true sender. Beside each
// real VPP there is a simulated one: agents must write the same, and packets must leave both alike. Fragments, and outsiders that forge addresses,
// are among them. Agents stay away while objects change. Time
// passes now and then, a few seconds in place of minutes: NAT44's sessions live shorter meanwhile, those of cnat and of access lists do not.
func TestVPPAdversary(t *testing.T) {
	path := theVPP(t)
	sequences, first := oracle.Setting(t, "CONTIV_VPP_CASES", adversarySequences), oracle.Setting(t, "CONTIV_VPP_SEED", 1)
	start, differences, blind := time.Now(), 0, 0
	var all adversary.Counts
	did := map[string]int{}
	if isNewerVPP(path) {
		t.Log("excused: cnat of VPP 26.06 is another one than the simulated one: all worlds are served by nat44")
	}
	for seed := first; seed < first+(sequences+adversaryGames-1)/adversaryGames; seed++ {
		g := newAdversaryGame(path, seed)
		err := g.play(min(adversaryGames, int(sequences)))
		all.Add(g.law.Counts)
		for what, n := range g.did {
			did[what] += n
		}
		var d *difference
		if errors.As(err, &d) && g.unseen() { // a session leads where the simulated VPP could not know
			blind++
			err = nil
		}
		if err != nil {
			differences++
			t.Errorf("seed %d (repeat with CONTIV_VPP_SEED=%d CONTIV_VPP_CASES=%d): %v", seed, seed, adversaryGames, err)
		}
		g.close()
		if differences >= enough {
			break
		}
	}
	t.Logf("%d sequences, %d packets, %d arrived: %d allowed, %d answers; %d new connections asked about, %d packets of established ones; %d datagrams in fragments, %d other fragments, %d forged from outside; %s",
		all.Sequences, all.Packets, all.Arrived, all.Allowed, all.Answers, all.Checks, all.Established, all.Whole, all.Pieces, all.Forged, time.Since(start).Round(time.Second))
	t.Logf("also: %s", figures(did))
	t.Logf("%d worlds ended early: nobody saw what a load balancer chose", blind)
	for _, why := range slices.Sorted(maps.Keys(all.Excused)) {
		t.Logf("excused: %s: %d", why, all.Excused[why])
	}
	for _, class := range slices.Sorted(maps.Keys(all.Known)) {
		t.Logf("known: %s: %d", class, all.Known[class])
	}
}

// adversaryGame is one world on real VPPs.
type adversaryGame struct {
	*cluster
	attacker *adversary.Attacker
	law      *adversary.Law
	cfg      trace.Config
	current  []policy.Object
	begin    []policy.Object
	events   []adversary.Event
	ports    map[netip.AddrPort]uint16 // of NAT: the simulated VPP's for the real one's
	ids      map[netip.AddrPort]uint16 // the same for identifiers of ICMP
	did      map[string]int            // events, by kind
	parts    map[string]packet.Reassembly
	passed   uint16 // times that passed: no identification of fragments serves again after one
}

func newAdversaryGame(path string, seed uint64) *adversaryGame {
	cfg := adversary.ConfigOf(seed)
	if isNewerVPP(path) {
		cfg.Agent.Services.Renderer.Choice = agent.RendererNAT44
	}
	g := &adversaryGame{
		cluster: newCluster(path, cfg.Agent), attacker: adversary.NewAttacker(seed, adversary.Limits{NoBetween: true}), law: adversary.NewLaw(), cfg: cfg,
		ports: map[netip.AddrPort]uint16{}, ids: map[netip.AddrPort]uint16{}, did: map[string]int{}, parts: map[string]packet.Reassembly{},
	}
	g.begin = g.attacker.Objects()
	return g
}

func (g *adversaryGame) play(sequences int) error {
	if err := g.change(kube.Differ(nil, g.begin)); err != nil {
		return err
	}
	for _, node := range g.names() {
		if err := g.nodes[node].patient(); err != nil {
			return err
		}
	}
	for range sequences {
		g.law.Sequences++
		for range 1 + g.attacker.Int(adversaryEvents) {
			if err := g.one(g.attacker.Next(g.current)); err != nil {
				return err
			}
			if err := g.extras(); err != nil {
				return err
			}
		}
		for _, node := range g.names() {
			if g.nodes[node].away {
				if err := g.one(adversary.Event{Step: trace.Step{Restart: "agent:" + node}}); err != nil {
					return err
				}
			}
		}
		if err := g.established(); err != nil {
			return err
		}
		for range 2 {
			e, ok := g.attacker.Check(g.current, g.cfg.Agent.Services.Renderer.Choice)
			if !ok {
				continue
			}
			if err := g.one(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// one plays an event. The error is a breach of the law, or a difference between the VPPs.
func (g *adversaryGame) one(e adversary.Event) error {
	g.events = append(g.events, e)
	var breach adversary.Breach
	var err error
	switch {
	case len(e.Changes) > 0:
		err = g.change(e.Changes)
	case e.Restart != "":
		err = g.restart(e.Restart)
	case e.Stop != "":
		err = g.stop(e.Stop)
	case e.After != "":
		err = g.pass(e.After)
	case e.Check:
		breach, err = g.check(&e)
	case e.IsPacket():
		_, breach, err = g.packet(&e)
	}
	return g.verdict(breach, err)
}

// restart restarts the agents of a node, or its VPPs. An agent that is away begins before its VPP restarts.
func (g *adversaryGame) restart(what string) error {
	kind, node, _ := strings.Cut(what, ":")
	w := g.nodes[node]
	if w.away {
		g.did["agents that were away"]++
	}
	if err := w.restartAgents(); err != nil {
		return err
	}
	g.law.Started(node)
	if kind != "vpp" {
		return nil
	}
	err := errors.Join(w.restartVPPs(), w.patient())
	g.law.Restarted(node)
	g.law.Settled()
	return err
}

// stop ends the agents of a node; both VPPs stay as they are.
func (g *adversaryGame) stop(node string) error {
	if g.nodes[node].away {
		return nil
	}
	g.law.Stopped(node)
	return g.nodes[node].stopAgents()
}

// pass lets time pass: seconds as they are, in place of more than a few seconds shortPause, in which NAT44's sessions end.
func (g *adversaryGame) pass(after string) error {
	d, err := time.ParseDuration(after)
	if err != nil || g.attacker.Int(adversaryPauses) > 0 {
		return err
	}
	g.did["times that passed"]++
	g.passed++
	g.law.Passed()
	if d <= shortPause {
		time.Sleep(d)
		return nil
	}
	if err := g.timeouts(shortLife, shortLife, shortLife, shortLife); err != nil {
		return err
	}
	time.Sleep(shortPause)
	return g.timeouts(nat44.DefaultTimeoutUDP, nat44.DefaultTimeoutTCPEstablished, nat44.DefaultTimeoutTCPTransitory, nat44.DefaultTimeoutICMP)
}

// timeouts sets those of NAT44, where VPP has it.
func (g *adversaryGame) timeouts(udp, established, transitory, icmp uint32) error {
	for _, name := range g.names() {
		m := &nat44_ed.NatSetTimeouts{UDP: udp, TCPEstablished: established, TCPTransitory: transitory, ICMP: icmp}
		var refused *vpp.Retval
		if err := g.nodes[name].both(m); err != nil && (errors.Is(err, errDisagree) || !errors.As(err, &refused)) {
			return err
		}
	}
	return nil
}

// verdict is the error of an event.
func (g *adversaryGame) verdict(breach adversary.Breach, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%w\n%s", err, g.story())
	case g.law.Tolerate(breach, nil):
		return nil
	}
	f := adversary.Shrink(&adversary.Finding{Breach: breach, Objects: g.begin, Events: g.events, Config: g.cfg}, nil) // as the simulated VPPs do the same
	return errors.New(f.String())
}

// unseen reports whether a load balancer chose for a packet that went nowhere.
func (g *adversaryGame) unseen() bool { return g.choices() > 0 }

// choices is how many of them there were.
func (g *adversaryGame) choices() (n int) {
	for _, w := range g.nodes {
		n += w.unseen
	}
	return n
}

// story is the end of what was played: all of it is long.
func (g *adversaryGame) story() string {
	const last = 12
	lines := strings.Split(adversary.Story(nil, g.events), "\n")
	questions := slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "{") })
	return strings.Join(questions[max(0, len(questions)-last):], "\n")
}

func (g *adversaryGame) change(changes []generate.Change) error {
	list, err := hear.All(changes)
	if err != nil {
		return err
	}
	g.current = kube.Change(g.current, changes)
	if err := g.law.Become(g.current); err != nil {
		return err
	}
	if err := g.apply(list); err != nil {
		return err
	}
	g.law.Settled()
	return nil
}

// packet sends one; nobody answers.
func (g *adversaryGame) packet(e *adversary.Event) (a trace.Arrival, breach adversary.Breach, err error) {
	from, f, ok := g.flight(e)
	if !ok {
		return a, breach, nil
	}
	unseen := g.choices()
	a = trace.Arrival{Sender: sentBy(e.From), Node: from.node, Sent: f.real}
	var j journey
	if e.Fragments > 0 {
		j, err = g.pieces(e, from, f, &a)
	} else {
		j, err = g.travel(from, f)
	}
	if err != nil {
		return a, breach, err
	}
	if a.Packet, a.Lost = j.real, j.lost; j.lost == "" {
		a.At, a.AtNode = g.who(j.end), j.end.node
		if j.sim.SrcPort != j.real.SrcPort {
			g.ports[netip.AddrPortFrom(j.real.Src, j.real.SrcPort)] = j.sim.SrcPort
		}
		if j.sim.ICMPID != j.real.ICMPID {
			g.ids[netip.AddrPortFrom(j.real.Src, j.real.ICMPID)] = j.sim.ICMPID
		}
	}
	if g.choices() > unseen { // any of them
		g.attemptBackends(e, &a)
	}
	if breach = g.law.Judge(e.From, &a); breach.None() && e.Continues != "" {
		breach = g.law.Arrives(&a, e.Continues == "back")
	}
	if !e.Extra {
		g.attacker.Note(e.From, a)
	}
	return a, breach, nil
}

// attemptBackends lets the law remember a packet that may have reached any endpoint that a Service's port leads to.
func (g *adversaryGame) attemptBackends(e *adversary.Event, a *trace.Arrival) {
	for _, end := range kube.Backends(g.current, a.Sent.DstPort) {
		b := *a
		b.Packet.Dst, b.Packet.DstPort = end.Addr(), end.Port()
		g.law.Try(e.From, &b)
	}
}

// established sends packets of connections that have to go on, there and back.
func (g *adversaryGame) established() error {
	for range 2 {
		there, c, ok := g.attacker.GoesOn(g.law.Kept())
		if !ok {
			return nil
		}
		g.events = append(g.events, there)
		a, breach, err := g.packet(&there)
		if err = g.verdict(breach, err); err != nil {
			return err
		}
		if a.At != c.At {
			continue // the law knows why
		}
		if err := g.one(g.attacker.GoesBack(&c, &a)); err != nil {
			return err
		}
	}
	return nil
}

// check asks whether a new connection works.
func (g *adversaryGame) check(e *adversary.Event) (adversary.Breach, error) {
	from, f, ok := g.flight(e)
	if !ok {
		return adversary.Breach{}, nil
	}
	a := trace.Arrival{Sender: sentBy(e.From), Node: from.node, Sent: f.real, Packet: f.real}
	g.law.Try(e.From, &a)
	g.attemptBackends(e, &a)
	o, err := g.exchange(from, f)
	if err != nil {
		return adversary.Breach{}, err
	}
	answer := trace.Answer{Verdict: trace.Verdict(o.verdict), Reason: o.why}
	if o.address != "" {
		answer.Outcomes = []trace.Outcome{{Address: o.address, Verdict: answer.Verdict, Reason: o.why}}
	}
	return g.law.Check(&e.Step, &answer, kube.Endpoints(g.current, e.To)), nil
}

// flight is an event's packet, and where it is sent; false: its sender no longer exists, or has no address of that family.
func (g *adversaryGame) flight(e *adversary.Event) (place, flight, bool) {
	node, addrs, found := adversary.Party(g.current, e.From)
	p := packet.Packet{SrcPort: e.SourcePort}
	to, err := netip.ParseAddrPort(e.To)
	if err != nil {
		to = netip.AddrPortFrom(netip.MustParseAddr(e.To), 0)
	}
	p.Dst, p.DstPort = to.Addr(), to.Port()
	i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() == p.Dst.Is4() })
	if !found || i < 0 || g.nodes[node] == nil {
		return place{}, flight{}, false
	}
	from := place{node: node, door: cni.Uplink, addr: addrs[i], addrs: addrs}
	switch kind, name, _ := strings.Cut(e.From, ":"); kind {
	case "pod":
		from.door = "pod-" + name
	case "node":
		from.door = cni.Host
	}
	if p.Src = addrs[i]; e.SourceAddress != "" {
		p.Src = netip.MustParseAddr(e.SourceAddress)
	}
	if p.Proto, err = model.ParseProtocol(e.Protocol); err != nil {
		return place{}, flight{}, false
	}
	if p.IsICMP() {
		p.ICMPID, p.SrcPort, p.ICMPType = p.SrcPort, 0, packet.EchoRequest
	}
	if p = p.Opening(); e.Flags != "" {
		switch p.Proto {
		case model.TCP:
			p.TCPFlags, err = packet.ParseFlags(e.Flags)
		case model.SCTP:
			p.Chunk, err = packet.ParseChunk(e.Flags)
		default:
			err = p.SetEcho(e.Flags)
		}
	}
	p = p.ForFamily()
	f := same(p)
	if port, made := g.ports[netip.AddrPortFrom(p.Dst, p.DstPort)]; made {
		f.sim.DstPort = port
	}
	if id, made := g.ids[netip.AddrPortFrom(p.Dst, p.ICMPID)]; made && p.IsICMP() {
		f.sim.ICMPID = id
	}
	return from, f, err == nil
}

// sentBy is the name that a sender has in arrivals.
func sentBy(name string) string {
	if text, outside := strings.CutPrefix(name, "external:"); outside {
		ip, _, _ := strings.Cut(text, "@")
		return ip
	}
	return name
}

// who is behind the end of a way.
func (g *adversaryGame) who(end place) string {
	switch end.door {
	case cni.Host:
		return "node:" + end.node
	case cni.Uplink, cni.Overlay:
		return end.addr.String()
	}
	return "pod:" + strings.TrimPrefix(end.door, "pod-")
}
