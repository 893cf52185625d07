package adversary

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
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
	return fmt.Sprintf("%s: %s\n(agents: %s)\n%s", f.Class, f.Text, f.Config.Agent.ServiceRenderer, Story(f.Objects, f.Events))
}

// table is a cluster that is played on.
type table struct {
	config  trace.Config
	cluster *trace.Cluster
	law     *Law
	objects []policy.Object
	begin   []policy.Object
	events  []Event
}

// newTable sets up a cluster with these objects.
func newTable(cfg trace.Config, objects []policy.Object) (*table, error) {
	t := &table{config: cfg, cluster: trace.NewCluster(cfg), law: NewLaw(), begin: objects}
	if err := t.change(Differ(nil, objects)); err != nil {
		t.cluster.Close()
		return nil, err
	}
	return t, nil
}

func (t *table) change(changes []policy.Change) error {
	list, err := hear.All(changes)
	if err != nil {
		return err
	}
	t.objects = Change(t.objects, changes)
	if err := t.law.Become(t.objects); err != nil {
		return err
	}
	if err := t.cluster.Apply(context.Background(), list); err != nil {
		return err
	}
	t.law.Settled()
	return nil
}

// play lets one event happen. A breach is of the law.
func (t *table) play(e *Event) (a trace.Arrival, breach Breach, err error) {
	t.events = append(t.events, *e)
	if len(e.Changes) > 0 {
		if err := t.change(e.Changes); err != nil {
			return a, breach, err
		}
		return a, breach, t.cluster.Advance(context.Background(), grace)
	}
	if e.Check {
		answer := t.cluster.AnswerStep(e.Step)
		if answer.Error != "" {
			return a, breach, nil // whoever asks, or is asked for, is gone
		}
		return a, t.law.Check(&e.Step, &answer, Endpoints(t.objects, e)), nil
	}
	a, err = t.cluster.Inject(context.Background(), e.Step)
	if err != nil || !e.IsPacket() {
		if e.IsPacket() && unasked(err) {
			err = nil
		}
		return a, breach, err
	}
	return a, t.law.Judge(e.From, &a), nil
}

// grace is how long after a change a connection that it forbids may go on.
const grace = 1e9

// unasked tells that a packet cannot be sent: a pod that is gone, or has no address of that family.
func unasked(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "unknown pod") || strings.Contains(err.Error(), "has finished") || strings.Contains(err.Error(), "has no IPv"))
}

// Endpoints are where the packet of a check may arrive: one pod, or all endpoints of the Service whose cluster IP it is.
func Endpoints(objects []policy.Object, e *Event) []netip.AddrPort {
	to, err := netip.ParseAddrPort(e.To)
	if err != nil {
		return []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(e.To), 0)}
	}
	for _, o := range objects {
		svc, ok := o.(*corev1.Service)
		if !ok || !slices.Contains(svc.Spec.ClusterIPs, to.Addr().String()) {
			continue
		}
		var out []netip.AddrPort
		for _, o := range objects {
			slice, ok := o.(*discoveryv1.EndpointSlice)
			if !ok || slice.Namespace != svc.Namespace || slice.Labels[discoveryv1.LabelServiceName] != svc.Name {
				continue
			}
			for _, ep := range slice.Endpoints {
				if a := netip.MustParseAddr(ep.Addresses[0]); a.Is4() == to.Addr().Is4() {
					out = append(out, netip.AddrPortFrom(a, uint16(*slice.Ports[0].Port)))
				}
			}
		}
		return out
	}
	return []netip.AddrPort{to}
}

// Play plays the sequences of one world, and returns the first finding, shrunk. Breaches of the known classes are counted only.
func Play(seed uint64, sequences int, limits Limits, known map[Class]bool) (Counts, *Finding, error) {
	k := NewAttacker(seed, limits)
	cfg := ConfigOf(seed)
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
			return t.law.Counts, Shrink(f, known), nil
		}
	}
	return t.law.Counts, nil, nil
}

func (t *table) sequence(k *Attacker, known map[Class]bool) (Breach, error) {
	t.law.Sequences++
	for range 1 + k.rng.IntN(perGame) {
		if breach, err := t.one(k, k.Next(t.objects), known); !breach.None() || err != nil {
			return breach, err
		}
	}
	if breach, err := t.one(k, Event{Step: trace.Step{After: settling}}, known); err != nil {
		return breach, err
	}
	for range checks {
		e, ok := k.Check(t.objects, t.config.Agent.ServiceRenderer)
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
	a, breach, err := t.play(&e)
	if t.law.Tolerate(breach, known) {
		breach = Breach{}
	}
	if err == nil && e.IsPacket() && a.Sender != "" {
		k.Note(e.From, a)
	}
	return breach, err
}

// ConfigOf is how the agents of a world are set up: by every renderer in turn.
func ConfigOf(seed uint64) trace.Config {
	r := []agent.ServiceRenderer{agent.RendererAuto, agent.RendererCNAT, agent.RendererNAT44}[seed%3]
	return trace.Config{Seed: seed, Agent: agent.Config{ServiceRenderer: r}}
}

// NewAttacker makes a world of two nodes with Services.
func NewAttacker(seed uint64, limits Limits) *Attacker {
	k := &Attacker{limits: limits, rng: rand.New(rand.NewPCG(seed, 15))}
	kinds := policy.Kinds{Admin: seed%2 == 0, Cluster: seed%3 == 0, Calico: seed%4 == 0}
	for n := uint64(0); ; n++ {
		if k.world = policy.NewWorld(seed+n<<40, kinds); count(k.world) == ourNodes && len(running(k.world.Objects())) > 1 {
			break
		}
	}
	k.targets = portsOf(k.world)
	var namespaces []string
	for _, p := range running(k.world.Objects()) {
		namespaces = append(namespaces, p.Namespace)
	}
	for i := range ourChurns {
		k.services = append(k.services, newService(k.rng, int32(i+1), namespaces, k.targets))
	}
	return k
}

func count(w *policy.World) (n int) {
	for _, o := range w.Objects() {
		if _, ok := o.(*corev1.Node); ok {
			n++
		}
	}
	return n
}
