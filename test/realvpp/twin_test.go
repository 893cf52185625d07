package realvpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/choices"
	"github.com/contiv-agent/contiv-agent/sim/cnat"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vpp"
)

const (
	source = "manifest"
	// patience is how long an agent may take to connect.
	patience = 90 * time.Second
)

// side is one of the two VPPs of a twin with its plumbing and its agent.
type side struct {
	name  string
	cni   *cni.CNI
	tap   *tap
	now   func() time.Time
	agent *agent.Stepper
}

// twin is one node twice: on a real VPP and on a simulated one. Not safe for concurrent use.
type twin struct {
	node       string
	config     agent.Config
	lab        *lab
	sim        *sim.VPP
	sides      [2]*side // the simulated one first
	objects    map[model.Ref]model.Object
	away       bool                  // there are no agents for the time being
	clock      time.Time             // when the simulated clock was last set
	refused    time.Time             // when a packet last met a route that is answered by an ICMP error
	rationed   time.Time             // the simulated clock then, if exact
	unseen     int                   // how often a load balancer chose for a packet that went nowhere
	hushed     int                   // how many such packets were not answered, as VPP answers few
	written    []string              // what the agents wrote, as long as it was the same
	beside     *plainConn            // to the simulated VPP; nil before it is needed
	lost       int                   // packets that were sent twice
	packets    int                   // packets that were sent
	way        string                // of the last one, in the simulated VPP
	seen       packet.Packet         // the last one as the simulated VPP saw it last
	hop        string                // the last one of that
	last       scene                 // what was sent last
	chances    int                   // how often a port made up was by chance the one it replaced
	reports    int                   // how often the packet in an ICMP error had other ports
	spoiled    int                   // how often cnat of 26.06 spoiled an ICMP error
	translated map[cnat.Session]bool // sessions of cnat's after the last packet
	awaited    int                   // how often cnat's scanner was late
	strayed    bool                  // VPP has had a session as portOfAnError says
	guessed    int                   // how often nothing showed what a load balancer chose, not even an opening of the same flow
	strict     bool                  // the simulated load balancer chooses by itself, and the real VPP is given time to answer everybody
	exact      bool                  // sessions say what a load balancer of NAT44 chose, cnat chooses by its hash, and time passes where VPP rations answers
}

// openTwin plumbs both VPPs and starts both agents.
func openTwin(l *lab, node string, cfg agent.Config) (*twin, error) {
	v := sim.New(sim.Config{Seed: 1, Version: l.version()})
	socket := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", l.socket())
	}
	w := &twin{node: node, config: cfg, lab: l, sim: v, objects: map[model.Ref]model.Object{}, clock: time.Now()}
	w.sides[0] = &side{name: "sim", cni: cni.New(v, node), tap: &tap{dial: v.Dial}, now: v.Now}
	w.sides[1] = &side{name: "vpp", cni: cni.New(l, node), tap: &tap{dial: socket}}
	if l.err != nil {
		return w, l.err
	}
	for _, s := range w.sides {
		if err := w.startAgent(s); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *twin) close() {
	for _, s := range w.sides {
		if s != nil && s.agent != nil {
			s.agent.Close()
		}
	}
	if w.beside != nil {
		w.beside.close()
	}
	w.sim.Close()
}

func (w *twin) startAgent(s *side) error {
	cfg := w.config
	cfg.NodeName, cfg.VPP.Dial, cfg.Process.Now = w.node, s.tap.Dial, s.now
	cfg.VPPAgent.Journal = filepath.Join(w.lab.dir, "journal-"+s.name)
	cfg.Sources, cfg.Override = map[string]agent.Source{source: agent.Fed{}}, cni.Located()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	a, err := agent.NewStepper(ctx, cfg)
	if err != nil {
		return fmt.Errorf("agent of the %s: %w", s.name, err)
	}
	s.agent = a
	return nil
}

// apply plumbs and sends the changes to both agents; their writes must be the same. The error is the first difference.
func (w *twin) apply(changes []event.Change) error {
	for _, ch := range changes {
		if ch.Object == nil {
			delete(w.objects, ch.Ref)
		} else {
			w.objects[ch.Ref] = ch.Object
		}
	}
	return w.feedAll(changes)
}

func (w *twin) feedAll(changes []event.Change) error {
	if err := w.advance(); err != nil {
		return err
	}
	for _, s := range w.sides {
		if err := s.cni.Apply(changes); err != nil {
			return errors.Join(fmt.Errorf("plumb the %s: %w", s.name, err), w.lab.alive())
		}
	}
	if w.lab.err != nil {
		return errors.Join(w.lab.err, w.lab.alive())
	}
	for _, s := range w.sides {
		if w.away {
			continue
		}
		update := &event.Update{Source: source, Changes: changes}
		if err := s.agent.Feed(context.Background(), update, &event.SyncStatus{Source: source, Status: event.InSync}); err != nil {
			return errors.Join(fmt.Errorf("agent of the %s: %w", s.name, err), w.lab.alive())
		}
	}
	return w.compareWrites()
}

// all are the objects there are.
func (w *twin) all() []event.Change {
	var out []event.Change
	for ref, obj := range w.objects {
		out = append(out, event.Change{Ref: ref, Object: obj})
	}
	slices.SortFunc(out, func(a, b event.Change) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
	return out
}

// become makes these the only objects.
func (w *twin) become(objects []model.Object) error {
	wanted := map[model.Ref]bool{}
	for _, obj := range objects {
		wanted[obj.Ref()] = true
	}
	var changes []event.Change
	for _, ch := range w.all() {
		if !wanted[ch.Ref] {
			changes = append(changes, event.Change{Ref: ch.Ref})
		}
	}
	for _, obj := range objects {
		changes = append(changes, event.Change{Ref: obj.Ref(), Object: obj})
	}
	return w.apply(changes)
}

// tick sets the simulated clock forward by the time that went by.
func (w *twin) tick() {
	now := time.Now()
	w.sim.Advance(now.Sub(w.clock))
	w.clock = now
}

// compareWrites holds what the agents wrote since the last time against each other.
func (w *twin) compareWrites() error {
	lines, err := w.writes()
	if err != nil {
		return err
	}
	if diff := gocmp.Diff(w.alike(lines[0]), w.alike(lines[1])); diff != "" {
		return fmt.Errorf("the agents wrote different things (-sim +vpp):\n%s", diff)
	}
	w.written = append(w.written, lines[1]...)
	unwell := [2]string{}
	for i, s := range w.sides {
		for _, v := range s.agent.Status().Unwell {
			unwell[i] += fmt.Sprintf("%s %s %s\n", v.Key, v.State, v.Error)
		}
	}
	if unwell[0] != unwell[1] {
		return fmt.Errorf("the agents could not configure the same things (-sim +vpp):\n%s", gocmp.Diff(unwell[0], unwell[1]))
	}
	return nil
}

// alike leaves out the messages that must differ: source NAT and nodes of cnat have another API in VPP 26.06 than in the
// simulated one. The fate of packets is compared nevertheless.
func (w *twin) alike(lines []string) []string {
	if !w.lab.newerCNAT() {
		return lines
	}
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
		name, rest, _ := strings.Cut(l, " ")
		return strings.HasPrefix(name, "cnat_set_snat_addresses") || name == "cnat_set_snat_policy" || strings.HasPrefix(name, "cnat_snat_policy_") ||
			name == "feature_enable_disable" && strings.Contains(rest, "cnat-")
	})
}

// writes are the requests since the last time that change VPP, by side.
func (w *twin) writes() ([2][]string, error) {
	var lines [2][]string
	var logs [2][]api.Message
	for i, s := range w.sides {
		logs[i] = s.tap.take()
	}
	if len(logs[0])+len(logs[1]) == 0 {
		return lines, nil
	}
	var names [2]map[uint32]string
	names[0] = map[uint32]string{}
	for _, n := range w.sim.Interfaces() {
		names[0][w.sim.AddInterface(sim.Interface{Name: n})] = n // it exists: this only asks for its number
	}
	var err error
	if names[1], err = w.lab.names(); err != nil {
		return lines, err
	}
	for i, log := range logs {
		for _, m := range log {
			lines[i] = append(lines[i], text(m, names[i]))
		}
	}
	return lines, nil
}

// stopAgents ends both agents until restartAgents. Both VPPs stay as they are, objects and interfaces change without them.
func (w *twin) stopAgents() error {
	for _, s := range w.sides {
		s.agent.Close()
	}
	w.away = true
	return nil
}

// restartAgents ends both agents and starts new ones that know nothing but the objects and their journals.
func (w *twin) restartAgents() error {
	if !w.away {
		_ = w.stopAgents() // it never fails
	}
	w.away = false
	for _, s := range w.sides {
		if err := w.startAgent(s); err != nil {
			return err
		}
	}
	return w.feedAll(w.all())
}

// settled restarts both agents, which must find nothing to do.
func (w *twin) settled() error {
	before := len(w.written)
	if err := w.restartAgents(); err != nil {
		return err
	}
	if after := w.written[before:]; len(after) > 0 {
		return fmt.Errorf("restarted agents write:\n%s", strings.Join(after, "\n"))
	}
	return nil
}

// restartVPPs ends both VPPs; what the agents write to the new ones must be the same.
func (w *twin) restartVPPs() error {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	for _, s := range w.sides {
		before := s.agent.Generation()
		if s.name == "sim" {
			w.sim.Restart()
		} else if err := w.lab.restart(); err != nil {
			return err
		}
		if err := s.agent.WaitConnected(ctx, before+1); err != nil {
			return fmt.Errorf("agent of the %s: %w", s.name, err)
		}
		if err := s.agent.Feed(ctx); err != nil {
			return fmt.Errorf("agent of the %s: %w", s.name, err)
		}
	}
	return w.compareWrites()
}

// flight is one packet in both worlds: the same but for ports that NAT made up.
type flight struct{ sim, real packet.Packet }

func same(p packet.Packet) flight { return flight{p, p.Clone()} }

// both changes both.
func (f flight) both(change func(packet.Packet) packet.Packet) flight {
	return flight{change(f.sim.Clone()), change(f.real.Clone())}
}

func (f flight) reply() flight {
	return f.both(func(p packet.Packet) packet.Packet { return p.Reply() })
}

// landing is where a flight left VPP.
type landing struct {
	flight
	at    string // the interface
	spoil bool   // its checksum is wrong: the receiver drops it
}

// difference is what the two VPPs do not agree about.
type difference struct {
	in   string
	sent flight
	hops []string
	sim  []sim.Output
	real []sim.Output
	why  string
	// trace is the way of the packet in the real VPP when it was sent once more.
	trace string
}

func (d *difference) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  in %s: %s", d.why, d.in, &d.sent.sim)
	if d.sent.real.String() != d.sent.sim.String() {
		fmt.Fprintf(&b, " (real: %s)", &d.sent.real)
	}
	fmt.Fprintf(&b, "\n  sim: %s\n  vpp: %s", outputs(d.sim), outputs(d.real))
	for _, h := range d.hops {
		fmt.Fprintf(&b, "\n       %s", h)
	}
	if d.trace != "" {
		b.WriteString("\n" + d.trace)
	}
	return b.String()
}

func outputs(list []sim.Output) string {
	if len(list) == 0 {
		return "nothing"
	}
	var out []string
	for _, o := range list {
		text := o.Interface + ": " + o.Packet.String()
		if o.Local {
			text = "own stack: " + o.Packet.String()
		}
		if o.BadChecksum {
			text += " BAD CHECKSUM"
		}
		out = append(out, text)
	}
	return strings.Join(out, " | ")
}

// send lets a packet arrive on an interface of both. The simulated load balancer has to choose what the real one chose; if no
// choice does what the real one did, that is the difference.
func (w *twin) send(in string, f flight) ([]landing, error) {
	if err := w.advance(); err != nil {
		return nil, err
	}
	defer func() { w.translated = w.simSessions() }()
	w.last = scene{in: in, sent: f}
	if err := w.wait(in, f); err != nil {
		return nil, err
	}
	real, err := w.lab.send(in, f.real)
	if err != nil {
		return nil, fmt.Errorf("in %s: %s: %w", in, &f.real, err)
	}
	mark := w.sim.Snapshot()
	defer w.sim.Release()
	story := []scene{{in, f, real}}
	landed, hidden, err := w.explain(mark, story)
	w.packets++
	if err != nil && len(real) == 0 && w.lost < fewLost+w.packets/manyPackets { // lost between here and VPP, as happens on a busy machine?
		w.lost++
		if story[0].real, err = w.lab.send(in, f.real); err == nil {
			landed, hidden, err = w.explain(mark, story)
		}
	}
	if err != nil || !hidden {
		return landed, err
	}
	w.unseen++
	if f.sim.Fragment.Later() {
		return nil, nil // no opening is made of it
	}
	// The load balancer chose a backend and the packet went nowhere. VPP may remember the choice as the client's affinity: the next packet
	// shows it. Where sessions are compared the choice left none, as NAT44 makes none without a SYN; an opening of the same flow, which the
	// lists of the interface let in as well, makes one.
	f = f.both(func(p packet.Packet) packet.Packet {
		if !w.exact {
			p.SrcPort ^= 1
		}
		p.TCPFlags &= 0
		return p.Opening()
	})
	if real, err = w.lab.send(in, f.real); err != nil {
		return nil, fmt.Errorf("in %s: %s: %w", in, &f.real, err)
	}
	w.sim.Restore(mark)
	if _, hidden, err = w.explain(mark, append(story, scene{in, f, real})); hidden && w.exact {
		w.guessed++
	}
	return nil, err
}

// scene is a packet and what the real VPP did with it.
type scene struct {
	in   string
	sent flight
	real []sim.Output
}

// explain finds choices of the load balancer by which the simulated VPP does the same in every scene, and restores it to that.
// landed is the outcome of the first scene; hidden reports that a choice was made in it that nothing shows.
func (w *twin) explain(mark sim.Mark, story []scene) (landed []landing, hidden bool, err error) {
	var first *difference
	for script := []int{}; script != nil; {
		landed, options, d, err := w.attempt(story, script)
		if err != nil {
			return nil, false, err
		}
		if d == nil {
			hidden, err = w.hidden(mark, story, script, options)
			return landed, hidden, err
		}
		if first == nil {
			first = d
		}
		w.sim.Restore(mark)
		script = choices.Next(script, options)
	}
	if os.Getenv("CONTIV_VPP_TRACE") != "" {
		first.trace = w.lab.watch(first.in, first.sent.real)
	}
	return nil, false, first
}

// attempt plays a story with the choices of a script, then with the first one each time. options are how many choices there were each time.
func (w *twin) attempt(story []scene, script []int) (landed []landing, options []int, d *difference, err error) {
	choose := func(n int) int {
		options = append(options, n)
		if k := len(options) - 1; k < len(script) {
			return script[k]
		}
		return 0
	}
	if w.strict {
		choose = nil
	}
	w.sim.SetChoice(choose)
	if w.exact && !w.lab.newerCNAT() {
		w.sim.ChooseByHash()
	}
	landed, d = w.play(story)
	w.sim.SetChoice(nil)
	if d == nil && w.exact && many(options) && concealed(story[0].real) {
		d, err = w.sessionsDiffer(story[0])
	}
	return landed, options, d, err
}

func many(options []int) bool {
	return slices.ContainsFunc(options, func(n int) bool { return n > 1 })
}

// hidden reports whether a choice that was made in the first scene of a story remains unknown: nothing left VPP, and where sessions are
// compared, other choices explain them as well. The simulated VPP stays as the script made it.
func (w *twin) hidden(mark sim.Mark, story []scene, script, options []int) (bool, error) {
	if !many(options) || !w.exact {
		return many(options) && len(story[0].real) == 0, nil
	}
	if !concealed(story[0].real) {
		return false, nil
	}
	for other := choices.Next(script, options); other != nil; {
		w.sim.Restore(mark)
		_, options, d, err := w.attempt(story, other)
		if err != nil {
			return false, err
		}
		if d == nil {
			w.sim.Restore(mark)
			_, _, _, err = w.attempt(story, script)
			return true, err
		}
		other = choices.Next(other, options)
	}
	w.sim.Restore(mark)
	_, _, _, err := w.attempt(story, script)
	return false, err
}

// play sends what was sent to the simulated VPP; the difference is that of the first scene that ends otherwise.
func (w *twin) play(story []scene) (landed []landing, d *difference) {
	for i, s := range story {
		fate := w.sim.Send(s.in, s.sent.sim)
		w.way = fmt.Sprint(fate.Hops)
		l, why := w.match(s.sent, fate.Out, s.real)
		if quiet := w.hush(fate, s.real); why != "" && !quiet {
			d = &difference{in: s.in, sent: s.sent, sim: fate.Out, real: s.real, why: why}
			for _, h := range fate.Hops {
				d.hops = append(d.hops, h.String())
			}
			return nil, d
		}
		if i == 0 {
			landed, w.seen = l, fate.Last
			if n := len(fate.Hops); n > 0 {
				w.hop = fate.Hops[n-1].String()
			}
		}
	}
	return landed, nil
}

// rationed are the nodes that do not answer everybody.
var rationed = []string{"ip4-null", "ip6-null", "ip6-icmp-error"}

// ration is how long VPP does not answer a second one.
const ration = 110 * time.Millisecond

// wait lets time go by before a packet that VPP might not answer.
func (w *twin) wait(in string, f flight) error {
	if !w.strict && !w.exact {
		return nil
	}
	mark := w.sim.Snapshot()
	fate := w.sim.Send(in, f.sim)
	w.sim.Restore(mark)
	switch {
	case !rare(fate):
	case w.exact:
		w.sim.Release()
		defer func() { w.rationed = w.sim.Now() }()
		if w.sim.Now().Sub(w.rationed) < 2*ration {
			time.Sleep(3 * ration)
			return w.advance()
		}
	default:
		time.Sleep(time.Until(w.refused.Add(3 * ration / 2))) // its clock need not keep ours
	}
	return nil
}

func rare(fate sim.Fate) bool {
	return slices.ContainsFunc(fate.Hops, func(h sim.Hop) bool { return slices.Contains(rationed, h.Node) })
}

// hush reports whether VPP kept quiet where the simulated one answers because VPP answers at most four such packets in 100 ms:
// those whose addresses differ in two bits of a hash (ip_null_dpo.c, VPP 24.06), or with IPv6 any two (icmp6.c).
func (w *twin) hush(fate sim.Fate, real []sim.Output) bool {
	if !rare(fate) {
		return false
	}
	last := w.refused
	w.refused = time.Now()
	if w.strict || w.exact || len(real) > 0 || len(fate.Out) != 1 || w.clock.Sub(last) > ration {
		return false
	}
	w.hushed++
	return true
}

// both makes a request on both VPPs, beside the agents. They must agree about the answer, which is the error.
func (w *twin) both(msg api.Message) error {
	if err := w.wake(); err != nil {
		return err
	}
	a := w.beside.conn.Do(context.Background(), vpp.Call{Msg: msg})[0].Err
	var guarded *vpp.GuardError
	if errors.As(a, &guarded) {
		return a // the real one is not asked
	}
	b := w.lab.plain.conn.Do(context.Background(), vpp.Call{Msg: msg})[0].Err
	if fmt.Sprint(a) != fmt.Sprint(b) {
		return fmt.Errorf("%s %+v: the sim says %v, the vpp %v: %w", msg.GetMessageName(), msg, a, b, errDisagree)
	}
	return b
}

// wake connects to the simulated VPP beside its agent.
func (w *twin) wake() error {
	if w.beside == nil {
		w.beside = plain(vpp.Config{Dial: w.sim.Dial, Guard: &vpp.Guard{AllowDisable: true}})
	}
	return w.beside.wait()
}

var errDisagree = errors.New("they do not agree")
