package realvpp

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/vlib"
	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// The bounds of TestVPPSequences. CONTIV_VPP_CASES is how many clusters.
const (
	sequenceClusters = 200
	sequencePhases   = 3  // the objects change between two of them
	sequenceMoves    = 12 // of one phase: each sends one to six packets
	// sequenceBlock is how many clusters of one renderer are played on each other's sessions; then all are forgotten, and agents that start
	// again must find nothing to do. sequenceReboot is how many blocks there are between two restarts of the VPPs.
	sequenceBlock  = 8
	sequenceReboot = 30
	// sequenceShards is how many VPPs each renderer has.
	sequenceShards = 3
	// sequenceExcuses is one of how many packets may be excused for each reason.
	sequenceExcuses = 100
)

// sequenceSessions is the size of NAT44's table.
const sequenceSessions = 1 << 13

// TestVPPSequences grows random clusters of both families with policies and Services on one node, on a real VPP and on a simulated one, and
// sends each cluster a sequence of packets, all on top of the state that the earlier ones left: new flows, answers, pushes, repeats, flows
// that differ from a known one in one port or address, ICMP errors, forged sources. Between packets objects change and time passes. Each
// packet must leave both VPPs alike, and in the end both must have the same sessions. The clusters alternate between the two renderers.
func TestVPPSequences(t *testing.T) {
	path := theVPP(t)
	clusters, first := oracle.Setting(t, "CONTIV_VPP_CASES", sequenceClusters), oracle.Setting(t, "CONTIV_VPP_SEED", 1)
	t.Logf("%d clusters, seeds %d to %d", clusters, first, first+clusters-1)
	renderers := []agent.ServiceRenderer{agent.RendererAuto, agent.RendererCNAT}
	if isNewerVPP(path) {
		t.Log("excused: cnat of VPP 26.06 is another one than the simulated one: all clusters are served by nat44, and no Service in IPv6")
		renderers = []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererNAT44}
	}
	start := time.Now()
	var all sequenceCounts
	var mu sync.Mutex
	t.Run("renderers", func(t *testing.T) {
		for i := range uint64(2 * sequenceShards) {
			r, shard := renderers[i%2], i/2
			t.Run(fmt.Sprint(r, shard), func(t *testing.T) {
				t.Parallel()
				var seeds []uint64
				for seed := first; seed < first+clusters; seed++ {
					if seed%2 == i%2 && seed/2/sequenceBlock%sequenceShards == shard {
						seeds = append(seeds, seed)
					}
				}
				counts := playSequences(t, path, r, seeds)
				mu.Lock()
				defer mu.Unlock()
				all.add(counts)
			})
		}
	})
	t.Logf("%s, in %s", &all, time.Since(start).Round(time.Second))
	for why, n := range all.excused {
		if n > fewLost+all.packets/sequenceExcuses {
			t.Errorf("%d of %d packets are excused: %s", n, all.packets, why)
		}
	}
}

// sequenceCounts are the figures of a run.
type sequenceCounts struct {
	clusters, packets, changes, pauses, differences int
	refused                                         int            // policies over a budget, of all clusters
	awaited                                         int            // times cnat's scanner was waited for
	moves                                           map[string]int // packets sent, by kind of move
	excused                                         map[string]int
}

func (c *sequenceCounts) add(o sequenceCounts) {
	c.clusters, c.packets, c.changes = c.clusters+o.clusters, c.packets+o.packets, c.changes+o.changes
	c.pauses, c.differences, c.awaited, c.refused = c.pauses+o.pauses, c.differences+o.differences, c.awaited+o.awaited, c.refused+o.refused
	for _, pair := range [][2]*map[string]int{{&c.moves, &o.moves}, {&c.excused, &o.excused}} {
		if *pair[0] == nil {
			*pair[0] = map[string]int{}
		}
		for k, n := range *pair[1] {
			(*pair[0])[k] += n
		}
	}
}

func (c *sequenceCounts) String() string {
	return fmt.Sprintf("%d clusters, %d changes of objects, %d packets, %d times that passed, %d waits for cnat's scanner, %d policies over budget, %d differences; packets %s; excused %s",
		c.clusters, c.changes, c.packets, c.pauses, c.awaited, c.refused, c.differences, figures(c.moves), figures(c.excused))
}

// figures are counts in the order of their names.
func figures(m map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s: %d", k, m[k]))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// playSequences plays clusters with one renderer on one VPP.
func playSequences(t *testing.T, path string, r agent.ServiceRenderer, seeds []uint64) sequenceCounts {
	if len(seeds) == 0 {
		return sequenceCounts{}
	}
	w := openSequences(t, path, r)
	defer func() { w.shut() }()
	counts := sequenceCounts{moves: map[string]int{}, excused: map[string]int{}}
	begun, block, fresh := time.Now(), uint64(0), true
	for _, seed := range seeds {
		c := newSequenceCase(w, seed, &counts)
		n := seed / 2
		if fresh = fresh || n%sequenceBlock == 0; fresh {
			block, c.alone, fresh = seed, true, false
		}
		err := c.run()
		counts.clusters++
		counts.refused += w.overBudget()
		if err == nil && n%sequenceBlock == sequenceBlock-1 {
			err = errors.Join(w.settled(), w.lab.covers())
		}
		if err == nil && counts.clusters%(sequenceBlock*sequenceReboot) == 0 {
			err = errors.Join(w.restartVPPs(), w.patient())
		}
		var d *difference
		if strays := w.findStrays(); err == nil {
			err = strays
		}
		switch {
		case err == nil && !w.strayed:
		case errors.Is(err, vpp.ErrDisconnected) && w.lab.alive() == nil && w.lab.version() < "25.06":
			t.Logf("seed %d: %s: %v; %d rules in the simulated one", seed, silent, err, w.rules())
			counts.excused[silent]++
			w.excuse(&counts)
			w.shut()
			w, fresh = openSequences(t, path, r), true
		case w.strayed:
			t.Logf("seed %d: %s: %v", seed, portOfAnError, err)
			counts.excused[portOfAnError]++
			w.excuse(&counts)
			w.shut()
			w, fresh = openSequences(t, path, r), true
		case errors.As(err, &d) && d.sent.crossed():
			t.Logf("seed %d: %s: %v", seed, acrossTheLaw, err)
			counts.excused[acrossTheLaw]++
			fresh = true
		default:
			counts.differences++
			t.Errorf("seed %d (repeat with CONTIV_VPP_SEED=%d CONTIV_VPP_CASES=%d): %v\n%s", seed, block, seed-block+1, err, c.story())
			fresh = true
			if counts.differences >= enough {
				w.excuse(&counts)
				return counts
			}
			if !errors.As(err, &d) { // VPP died, or what was made in it is not known
				w.excuse(&counts)
				w.shut()
				w = openSequences(t, path, r)
			}
		}
		if counts.clusters%100 == 0 {
			t.Logf("%s: %d clusters, %d packets, %.0f clusters a minute", r, counts.clusters, counts.packets, float64(counts.clusters)/time.Since(begun).Minutes())
		}
	}
	w.excuse(&counts)
	return counts
}

// acrossTheLaw excuses a packet, and the rest of its cluster, if NAT drew its port below 32768 on one of the two VPPs only: lists make no
// session of such packets (ADR 12).
const acrossTheLaw = "a drawn port below 32768 on one side only"

// portOfAnError is what VPP 24.06 does with an ICMP error about an ICMP message that is no echo: cnat takes the first bytes of that
// message, type, code and checksum, for ports, and gives the flow a session and a port (cnat_session_make_key, cnat_node.h). The simulated
// VPP has no checksums. The port stays taken when the session ends, so the VPPs start again.
const portOfAnError = "a port for an ICMP error about an ICMP error"

// silent is what VPP 24.06 does where a policy becomes many rules about IPv6, because it compares prefixes by whole bytes.
const silent = "silent for a minute while it takes access lists"

// rules is how many rules the simulated VPP has.
func (w *twin) rules() (n int) {
	details, err := w.dumpSide(0, &acl.ACLDump{ACLIndex: ^uint32(0)})
	if err != nil {
		return -1
	}
	for _, d := range details {
		n += int(d.(*acl.ACLDetails).Count)
	}
	return n
}

// overBudget is the number of policies that the agents do not enforce.
func (w *twin) overBudget() (n int) {
	for _, p := range w.sides[0].agent.Status().Policies {
		if p.State == "REFUSED" {
			n++
		}
	}
	return n
}

// excuse adds what a twin excused to the figures.
func (w *twin) excuse(c *sequenceCounts) {
	c.excused["lost before VPP"] += w.lost
	c.excused["ICMP errors about ICMP errors, which the sim does not make"] += w.lab.echoed
	c.excused["a port that chance kept"] += w.chances
	c.excused["ports in an ICMP error"] += w.reports
	c.awaited += w.awaited
	c.excused["a choice of NAT44 that nothing showed"] += w.guessed
}

// openSequences is a twin whose agents share a clock, and whose comparison excuses less. The agents have the default budgets. A policy with more
// rules than that on one side has them on the other, and both agents refuse it: they isolate its pods.
func openSequences(t *testing.T, path string, r agent.ServiceRenderer) *twin {
	t.Helper()
	l, err := openLab(path)
	if err != nil {
		if l != nil {
			l.close()
		}
		t.Fatal(err)
	}
	w, err := openTwin(l, "node-1", agent.Config{Services: config.Services{Renderer: builtin.Config{Choice: r, NAT44: nat44.Config{Sessions: sequenceSessions}}}, Limits: budget.Defaults()})
	if err == nil {
		w.exact = true
		w.sides[1].now = w.sim.Now // its retries go by the same clock, which pauses
		err = errors.Join(w.restartAgents(), w.patient())
	}
	if err != nil {
		w.shut()
		t.Fatal(err)
	}
	return w
}

// shut ends a twin and its VPP.
func (w *twin) shut() {
	w.close()
	w.lab.close()
}

// sequenceCase is one random cluster.
type sequenceCase struct {
	*randomCase
	world  *generate.World
	counts *sequenceCounts
	flows  []opening  // of flows that concern the node
	dials  []opening  // of Services
	tried  []opening  // that were sent
	alone  bool       // nothing is left of earlier clusters
	passed bool       // time did
	beside *rand.Rand // of fragments, so that other moves are the same without them
	id     uint16     // of the last datagram in fragments
	lines  []string   // what was done
}

// newSequenceCase chooses a cluster with at least two pods on the node.
func newSequenceCase(w *twin, seed uint64, counts *sequenceCounts) *sequenceCase {
	kinds := generate.AllKinds()
	kinds.Hosts = false // their objects are not bound to the pods of the test
	world := generate.NewWorld(seed, kinds)
	for again := uint64(1); localPods(world, w.node) < 2; again++ {
		world = generate.NewWorld(seed+again<<32, kinds)
	}
	rng := rand.New(rand.NewPCG(seed, 5))
	return &sequenceCase{
		randomCase: &randomCase{twin: w, rng: rng, port: uint16(33000 + seed*137%25000)}, world: world, counts: counts,
		beside: rand.New(rand.NewPCG(seed, 6)), id: uint16(seed * 97),
	}
}

func localPods(w *generate.World, node string) (n int) {
	for _, o := range w.Objects() {
		if p, is := o.(*corev1.Pod); is && p.Spec.NodeName == node && !p.Spec.HostNetwork && p.Status.PodIP != "" {
			n++
		}
	}
	return n
}

func (c *sequenceCase) note(format string, args ...any) {
	c.lines = append(c.lines, fmt.Sprintf(format, args...))
}

// story is what was done; with CONTIV_VPP_TRACE the objects as well.
func (c *sequenceCase) story() string {
	const last = 60
	text := "  " + strings.Join(c.lines[max(0, len(c.lines)-last):], "\n  ")
	if os.Getenv("CONTIV_VPP_TRACE") != "" {
		text += "\n" + policy.YAML(c.world.Objects())
	}
	return text
}

// run plays the cluster. The error is the first difference.
func (c *sequenceCase) run() error {
	if err := c.begin(); err != nil {
		return err
	}
	for phase := range sequencePhases {
		if phase > 0 {
			if err := c.change(); err != nil {
				return err
			}
		}
		c.prepare()
		for range sequenceMoves {
			if err := errors.Join(c.move(), c.sendFragments()); err != nil {
				return err
			}
		}
		if err := c.compareSessions(); err != nil {
			return err
		}
	}
	return c.compareRoutes()
}

// begin removes the cluster before and makes this one. If it is to be alone, both VPPs forget all sessions.
func (c *sequenceCase) begin() error {
	var list []generate.Change
	for _, o := range c.world.Objects() {
		list = append(list, generate.Change{Key: policy.KeyOf(o), Object: o})
	}
	changes, err := c.read(list)
	if err != nil {
		return err
	}
	changes = append(changes, puts([]model.Object{serviceRanges})...)
	if err := errors.Join(c.become(nil), c.forget()); err != nil {
		return err
	}
	defer time.Sleep(settle)
	if !c.alone {
		return c.apply(changes)
	}
	for _, ch := range changes {
		c.objects[ch.Ref] = ch.Object
	}
	return c.restartAgents()
}

// forget lets both VPPs forget sessions: those of access lists and of cnat, whose scanner is late now and then, always. NAT44 forgets them,
// and all else, when it is disabled; agents that start again enable it. Nothing is mapped or translated now.
func (c *sequenceCase) forget() error {
	commands := []api.Message{&vlib.CliInband{Cmd: "clear acl-plugin sessions"}}
	if c.alone {
		commands = append(commands, &nat44_ed.Nat44EdPluginEnableDisable{})
	}
	if !c.lab.newerCNAT() {
		commands = append(commands, &cnat.CnatSessionPurge{})
	}
	var refused *vpp.Retval
	for _, m := range commands {
		if err := c.both(m); err != nil && (!errors.As(err, &refused) || errors.Is(err, errDisagree)) {
			return err
		}
	}
	return nil
}

var serviceRanges = &model.ServiceCIDR{
	Name: "kubernetes", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
}

// change changes the world: policies, pods and labels, or Services and their endpoints, until the change may concern a flow.
func (c *sequenceCase) change() error {
	const patient = 4
	var list []generate.Change
	for range 1 + c.rng.IntN(patient) {
		step := c.world.Step
		if c.chance(3) {
			step = c.world.StepServices
		}
		for _, ch := range step() {
			list = append(slices.DeleteFunc(list, func(was generate.Change) bool { return was.Key == ch.Key }), ch)
		}
	}
	changes, err := c.read(list)
	if err != nil {
		return err
	}
	for _, ch := range changes {
		verb := "put"
		if ch.Object == nil {
			verb = "remove"
		}
		c.note("%s %s", verb, ch.Ref)
	}
	c.counts.changes += len(changes)
	return c.apply(changes)
}

// read are changes as the agent hears them; Services have more than those of the world.
func (c *sequenceCase) read(list []generate.Change) ([]event.Change, error) {
	changes, err := hear.All(list)
	for i, ch := range changes {
		if svc, is := ch.Object.(*model.Service); is {
			changes[i].Object = furnished(svc)
		}
	}
	return changes, err
}

// furnished is a Service of both families; one in four has affinity, one in three an external IP.
func furnished(svc *model.Service) *model.Service {
	s := *svc
	n := number(s.ClusterIPs[0])
	s.ClusterIPs = []netip.Addr{s.ClusterIPs[0], netip.MustParseAddr(fmt.Sprintf("fd00:96::%x", n))}
	if (n+int(s.Ports[0].Port))%4 == 0 {
		s.SessionAffinityTimeout = 3 * time.Hour
	}
	if n%3 == 0 {
		s.ExternalIPs = []netip.Addr{netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", n)), netip.MustParseAddr(fmt.Sprintf("2001:db8:cb::%x", n))}
	}
	return &s
}

// number is the last byte of an address.
func number(a netip.Addr) int {
	b := a.As16()
	return int(b[15])
}
