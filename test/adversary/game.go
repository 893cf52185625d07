package adversary

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/adversary/kube"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/trace"
)

// Bounds of a game.
const (
	games     = 20 // sequences of a world
	perGame   = 50 // events of a sequence
	ourNodes  = 2
	ourChurns = 3 // Services
	checks    = 3 // questions after each sequence
	settling  = "5s"
	// mostBetween is how many packets are sent between the messages of one event.
	mostBetween = 6
)

// Finding is a packet that arrived and should not have, or the other way round.
type Finding struct {
	Breach
	Objects []policy.Object // before the first event
	Events  []Event
	Config  trace.Config
}

// String is the finding with the way to see it.
func (f *Finding) String() string {
	return fmt.Sprintf("%s: %s\n(agents: %s)\n%s", f.Class, f.Text, f.Config.Agent.Services.Renderer.Choice, Story(f.Objects, f.Events))
}

// table is a cluster that is played on.
type table struct {
	config  trace.Config
	cluster *trace.Cluster
	law     *Law
	objects []policy.Object
	begin   []policy.Object
	events  []Event
	note    func(from string, a trace.Arrival) // has the attacker know of a packet between messages; nil: nobody asks

	mu     sync.Mutex // guards remake
	remake []func()
}

// newTable sets up a cluster with these objects.
func newTable(cfg trace.Config, objects []policy.Object) (*table, error) {
	t := &table{config: cfg, cluster: trace.NewCluster(cfg), law: NewLaw(), begin: objects}
	if err := t.change(kube.Differ(nil, objects)); err != nil {
		t.cluster.Close()
		return nil, err
	}
	return t, nil
}

func (t *table) change(changes []generate.Change) error {
	list, err := hear.All(changes)
	if err != nil {
		return err
	}
	t.objects = kube.Change(t.objects, changes)
	if err := t.law.Become(t.objects); err != nil {
		return err
	}
	if err := t.cluster.Apply(context.Background(), list); err != nil {
		return err
	}
	t.law.Settled()
	return nil
}

// play lets one event happen. A breach is of the law, or a VPP that died. draw draws packets between messages; nil: those that the event has
// are sent.
func (t *table) play(e *Event, draw func(message string) (trace.Step, bool)) (trace.Arrival, Breach, error) {
	a, breach, err := t.move(e, draw)
	for _, node := range t.cluster.Nodes() {
		if crash := t.cluster.Sim(node).Crashed(); crash != nil && breach.None() {
			return a, Breach{Dead, fmt.Sprintf("%s: %v", node, crash)}, nil
		}
	}
	return a, t.tooBig(breach), err
}

// move is play with a VPP that may be dead after it.
func (t *table) move(e *Event, draw func(message string) (trace.Step, bool)) (a trace.Arrival, breach Breach, err error) {
	switch {
	case len(e.Changes) > 0 || e.Restart != "":
		breach, err = t.meanwhile(e, draw, func() error { return t.happen(e) })
		t.events = append(t.events, *e)
		if err == nil && breach.None() && len(e.Changes) > 0 {
			err = t.cluster.Advance(context.Background(), grace)
		}
		return a, breach, err
	case e.Stop != "":
		t.events = append(t.events, *e)
		if !t.away(e.Stop) {
			t.cluster.StopAgent(e.Stop)
			t.law.Stopped(e.Stop)
		}
		return a, breach, nil
	}
	t.events = append(t.events, *e)
	if e.Check {
		answer := t.cluster.AnswerStep(e.Step)
		if answer.Error != "" {
			return a, breach, nil // the sender or the destination no longer exists
		}
		return a, t.law.Check(&e.Step, &answer, kube.Endpoints(t.objects, e.To)), nil
	}
	if e.After != "" {
		t.law.Passed()
	}
	a, err = t.cluster.Inject(context.Background(), e.Step)
	if err != nil || !e.IsPacket() {
		if e.IsPacket() && unasked(err) {
			err = nil
		}
		return a, breach, err
	}
	if breach = t.law.Judge(e.From, &a); breach.None() && e.Continues != "" {
		breach = t.law.Arrives(&a, e.Continues == "back")
	}
	return a, breach, nil
}

// tooBig is a breach, unless an allowed connection fails and an agent says that it denies what a policy allows: negations are too many rules on a
// VPP that compares whole bytes of IPv6 addresses.
func (t *table) tooBig(b Breach) Breach {
	if b.Class != Lost {
		return b
	}
	for _, node := range t.cluster.Nodes() {
		for _, p := range t.cluster.Agent(node).Status().Policies {
			for _, why := range p.Reasons {
				if strings.Contains(why, "too big to be written out") || strings.Contains(why, "too many rules") {
					t.law.excuse("a policy that is too big for VPP, and says so", 1)
					return Breach{}
				}
			}
		}
	}
	return b
}

// established sends packets of connections that have to go on, there and back.
func (t *table) established(k *Attacker, known map[Class]bool) (Breach, error) {
	for range checks {
		there, c, ok := k.GoesOn(t.law.Kept())
		if !ok {
			break
		}
		a, breach, err := t.exchange(k, there, known)
		if err != nil || !breach.None() {
			return breach, err
		}
		if a.At != c.At {
			continue // the law knows why
		}
		if breach, err = t.one(k, k.GoesBack(&c, &a), known); err != nil || !breach.None() {
			return breach, err
		}
	}
	return Breach{}, nil
}

// away reports whether the agent of a node is stopped.
func (t *table) away(node string) bool { return t.law.stopped[node] }

// happen changes objects, or restarts an agent or a VPP.
func (t *table) happen(e *Event) error {
	if len(e.Changes) > 0 {
		return t.change(e.Changes)
	}
	ctx := context.Background()
	kind, node, _ := strings.Cut(e.Restart, ":")
	if kind == "agent" {
		if err := t.cluster.RestartAgent(ctx, node); err != nil {
			return err
		}
		t.law.Started(node)
		return nil
	}
	t.law.Restarted(node)
	if e.Bare == 0 {
		if err := t.cluster.RestartVPP(ctx, node); err != nil {
			return err
		}
		t.law.Settled()
		return nil
	}
	left, err := t.cluster.CrashVPP(node, e.Bare)
	if err != nil {
		return err
	}
	t.remake = left
	defer func() { t.remake = nil }()
	if err := t.cluster.AwaitAgent(ctx, node); err != nil {
		return err
	}
	for t.remakeOne() {
	}
	if err := t.cluster.AwaitAgent(ctx, node); err != nil {
		return err
	}
	t.law.Settled()
	return nil
}

// remakeOne makes one more interface or route of a VPP that restarted; false: all exist.
func (t *table) remakeOne() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.remake) == 0 {
		return false
	}
	next := t.remake[0]
	t.remake = t.remake[1:]
	next()
	return true
}

// meanwhile runs what happens, and sends packets between its messages.
func (t *table) meanwhile(e *Event, draw func(message string) (trace.Step, bool), run func() error) (found Breach, err error) {
	messages, last, said := map[string]int{}, map[string]string{}, e.Between // last has texts
	if draw != nil {
		e.Between = nil
	}
	var mu sync.Mutex
	send := func(node string, s *trace.Step) {
		a, err := t.cluster.InjectNow(*s)
		if err != nil || !found.None() {
			return // the sender no longer exists
		}
		found = t.law.Judge(s.From, &a)
		if t.note != nil && a.Sender != "" {
			t.note(s.From, a)
		}
	}
	look := func(node string, r sim.Record) {
		t.remakeOne()
		mu.Lock()
		defer mu.Unlock()
		if e.Bare == 0 && r.Retval == 0 && !strings.HasPrefix(r.Name, "acl_") {
			t.law.Wrote(node)
		}
		before := last[node]
		t.listed(node, before, r)
		messages[node], last[node] = messages[node]+1, r.Text
		if draw == nil {
			for i := range said {
				if b := &said[i]; b.Node == node && b.After == messages[node] {
					send(node, &b.Step)
				}
			}
			return
		}
		alone := strings.Contains(r.Text, "is_add=true flags=NAT_IS_INSIDE ") && before != strings.Replace(r.Text, "INSIDE", "OUTSIDE", 1)
		if s, ok := draw(r.Name); ok && alone && kube.HasAffinity(t.objects, s.To) {
			t.law.excuse("not sent: to a Service with affinity, when an interface has one of its two roles", 1)
		} else if ok {
			e.Between = append(e.Between, Between{node, messages[node], s})
			send(node, &s)
		}
	}
	for _, node := range t.cluster.Nodes() {
		v := t.cluster.Sim(node)
		v.After(func(r sim.Record) { look(node, r) })
		defer v.After(nil)
	}
	err = run()
	mu.Lock()
	defer mu.Unlock()
	return found, err
}

// listed has the law know which interfaces got lists. Lists of one direction do not count in front of the end of inherited sessions, which needs them.
func (t *table) listed(node, before string, r sim.Record) {
	if r.Name != "acl_interface_set_acl_list" || r.Retval != 0 || !strings.HasPrefix(before, "acl_interface_set_etype_whitelist ") && strings.Contains(r.Text, "put=[]") {
		return
	}
	if strings.Contains(r.Text, "="+cni.Uplink+" ") {
		t.law.Listed(uplinkOf(node))
	}
	for _, p := range kube.Running(t.objects) {
		if p.Spec.NodeName == node && strings.Contains(r.Text, "="+cni.PodInterface(model.PodID{Namespace: p.Namespace, Name: p.Name})+" ") {
			t.law.Listed("pod:" + p.Namespace + "/" + p.Name)
		}
	}
}

// grace is how long after a change a connection that it forbids may go on.
const grace = 1e9

// unasked reports that a packet cannot be sent: a pod that is gone, or has no address of that family.
func unasked(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "unknown pod") || strings.Contains(err.Error(), "has finished") || strings.Contains(err.Error(), "has no IPv"))
}

// Play plays the sequences of one world, with agents that are set up so (ConfigOf), and returns the first finding, shrunk. Breaches of the known classes are counted only.
func Play(seed uint64, cfg trace.Config, sequences int, limits Limits, known map[Class]bool) (Counts, *Finding, error) {
	k := NewAttacker(seed, limits)
	t, err := newTable(cfg, k.Objects())
	if err != nil {
		return Counts{}, nil, err
	}
	defer t.cluster.Close()
	for n := range sequences {
		breach, err := t.sequence(k, known)
		if err != nil {
			return t.law.Counts, nil, fmt.Errorf("sequence %d: %w", n, err)
		}
		if !breach.None() {
			f := &Finding{Breach: breach, Objects: t.begin, Events: t.events, Config: cfg}
			if !limits.NoShrink {
				f = Shrink(f, known)
			}
			return t.law.Counts, f, nil
		}
	}
	return t.law.Counts, nil, nil
}

func (t *table) sequence(k *Attacker, known map[Class]bool) (Breach, error) {
	t.law.Sequences++
	t.note = k.Note
	for range 1 + k.rng.IntN(perGame) {
		if breach, err := t.one(k, k.Next(t.objects), known); !breach.None() || err != nil {
			return breach, err
		}
		if breach, err := extras(t, k, known); !breach.None() || err != nil {
			return breach, err
		}
	}
	for _, node := range t.cluster.Nodes() {
		if t.away(node) {
			if breach, err := t.one(k, Event{Step: trace.Step{Restart: "agent:" + node}}, known); !breach.None() || err != nil {
				return breach, err
			}
		}
	}
	if breach, err := t.one(k, Event{Step: trace.Step{After: settling}}, known); err != nil {
		return breach, err
	}
	if breach, err := t.established(k, known); !breach.None() || err != nil {
		return breach, err
	}
	for range checks {
		e, ok := k.Check(t.objects, t.config.Agent.Services.Renderer.Choice)
		if !ok {
			continue
		}
		if breach, err := t.one(k, e, known); !breach.None() || err != nil {
			return breach, err
		}
	}
	return Breach{}, nil
}

// one plays an event, and lets breaches of the known classes pass.
func (t *table) one(k *Attacker, e Event, known map[Class]bool) (Breach, error) {
	_, breach, err := t.exchange(k, e, known)
	return breach, err
}

func (t *table) exchange(k *Attacker, e Event, known map[Class]bool) (trace.Arrival, Breach, error) {
	between := k.between
	a, breach, err := t.play(&e, func(message string) (trace.Step, bool) { return k.Between(t.objects, message, &between) })
	if t.law.Tolerate(breach, known) {
		breach = Breach{}
	}
	if err == nil && e.IsPacket() && a.Sender != "" && !e.Extra {
		k.Note(e.From, a)
	}
	return a, breach, err
}

// ConfigOf is how the agents of a world are set up: by every renderer in turn.
func ConfigOf(seed uint64) (c trace.Config) {
	c.Seed, c.Agent.Services.Renderer.Choice = seed, []agent.ServiceRenderer{agent.RendererAuto, agent.RendererCNAT, agent.RendererNAT44}[seed%3]
	return c
}

// NewAttacker makes a world of two nodes with Services.
func NewAttacker(seed uint64, limits Limits) *Attacker {
	k := &Attacker{limits: limits, between: mostBetween, rng: rand.New(rand.NewPCG(seed, 15)), extra: rand.New(rand.NewPCG(seed, 16)), ids: map[string]uint16{}}
	kinds := generate.Kinds{Admin: seed%2 == 0, Cluster: seed%3 == 0, Calico: seed%4 == 0 || seed%5 == 0, Hosts: seed%5 == 0}
	for n := uint64(0); ; n++ {
		if k.world = generate.NewWorld(seed+n<<40, kinds); kube.NodesOf(k.world.Objects()) == ourNodes && len(kube.Running(k.world.Objects())) > 1 {
			break
		}
	}
	k.targets, k.hosts = kube.Ports(k.world.Objects()), kube.HasHosts(k.world.Objects())
	var namespaces []string
	for _, p := range kube.Running(k.world.Objects()) {
		namespaces = append(namespaces, p.Namespace)
	}
	for i := range ourChurns {
		k.services = append(k.services, kube.NewService(k.rng, int32(i+1), namespaces, k.targets))
	}
	return k
}
