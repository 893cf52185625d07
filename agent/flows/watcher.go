// Package flows turns what a running VPP shows of packets and connections into flows with the names of objects, and the policy that decided.
//
//	dropped packets ───────┐
//	sessions of lists ─────┤
//	records of flowprobe ──┤─ observations ─▶ loop: rules and names ─▶ flows.Store ─▶ Answer
//	translated connections ┘
//
// Invariant: reads that stop VPP take at most 0.5 % of its time for each source; a source that has more than the watcher reads says so.
package flows

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv-agent/contiv-agent/agent/flows/tally"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/sessions"
)

// Bounds of what is read and kept.
const (
	// MostFlows is how many flows a watcher keeps.
	MostFlows      = 4096
	mostDropped    = 20000 // packets between two reads
	mostSessions   = 10000 // of access lists: VPP 25.10 ends when the text of its answer has no room in the API's memory (16 MB)
	sampledPlaces  = 8     // of the table of sessions at each read, if there are more: VPP does not forward for 1 to 3 ms for each
	mostTranslated = 120_000
	mostOfAddress  = 60_000 // translated connections of one inside address, which VPP lists without a pause
	mostSelected   = 1000   // flows in an answer
	atOnce         = 1000   // connections that are explained before the agent's loop does other work
	mostAsks       = 100    // answered before the watcher does other work
	// VPP does not forward while it prints or lists sessions: that may take 0.5 % of its time.
	restFactor = 200
	// DropsEvery is how often an agent reads dropped packets: a reader that asks as often sees a denial well within a second.
	DropsEvery = 250 * time.Millisecond
)

// The sources of flows, as Source.Name and flows.Flow.SeenBy.
const (
	ByCapture  = "capture"
	BySessions = "sessions"
	ByNAT      = "nat44"
	ByProbe    = "flowprobe"
)

// Config configures a Watcher.
type Config struct {
	Node       string
	Every      time.Duration // how often sources are read, at most
	DropsEvery time.Duration // how often dropped packets are read, if that is more often; 0: as the others
	Folder     string        // VPP's /tmp, as this process sees it
	Name       string        // differs from that of other agents with the same /tmp; letters and digits
	Logger     *slog.Logger
	Now        func() time.Time
	// Beside run as long as the watcher, and end when ctx ends: servers of its flows to other programs. The error of one ends the agent.
	Beside []func(ctx context.Context, w *Watcher, l Loop) error
	Probe  *Probe // nil: sessions of access lists show connections
	// Bounds of what is read at a time; 0: the defaults. Tests make them small.
	Sessions   uint64
	Translated sessions.Bounds
}

// Most is how many flows an answer has at most: the latest ones.
const Most = mostSelected

// Source is the state of a source of flows.
type Source struct {
	Name    string `json:"name"`
	Seen    uint64 `json:"seen"`              // packets or connections
	Missed  uint64 `json:"missed,omitempty"`  // reads that could not show all
	Problem string `json:"problem,omitempty"` // of the latest read; "": none
	// Present is how many connections VPP had at the latest read, and Read how many of these the agent read. Both are 0 for a source that has no table.
	Present uint64 `json:"present,omitempty"`
	Read    uint64 `json:"read,omitempty"`
}

// Share is the part of the connections in VPP that the latest read had; 1 if VPP has none.
func (s *Source) Share() float64 {
	if s.Present == 0 {
		return 1
	}
	return min(1, float64(s.Read)/float64(s.Present))
}

// Partial returns the sources whose latest read had a part of the connections in VPP. It does not wait for the loop. A nil Watcher has none.
func Partial(w *Watcher) []Source {
	if w == nil {
		return nil
	}
	if partial := w.partial.Load(); partial != nil {
		return *partial
	}
	return nil
}

// Answer has flows, and how complete they are.
type Answer struct {
	Node      string       `json:"node"`
	Flows     []flows.Flow `json:"flows"`
	Next      uint64       `json:"next"` // ask for changes after this number to continue
	Sources   []Source     `json:"sources"`
	Forgotten uint64       `json:"forgotten,omitempty"` // flows that had no room
	Staged    []tally.Row  `json:"staged,omitempty"`
	Uncounted string       `json:"uncounted,omitempty"` // what Staged lacks
	Lost      uint64       `json:"-"`                   // changes after the number that was asked for, up to the latest flow that had no room
}

// Watcher reads VPP and keeps flows. The loop of Run owns all but the channel, the index and the nodes.
type Watcher struct {
	Config
	asks    chan ask
	waiting []ask // for a change
	drops   *capture.Drops
	store   *flows.Store
	sources []Source
	next    [3]time.Time // when each source is read again
	rules   rules
	known   known
	index   index
	nodes   map[string]*model.Node
	staged  *tally.Tally
	changes changes
	meter   *Meter // nil: nothing is counted
	partial atomic.Pointer[[]Source]
}

type ask struct {
	after  uint64
	filter *flows.Filter
	most   int
	ended  <-chan struct{} // not nil: the answer waits for a change; closed when the caller no longer waits
	answer chan Answer
}

// New returns a watcher that has seen nothing.
func New(cfg Config) *Watcher {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Sessions = cmp.Or(cfg.Sessions, mostSessions)
	cfg.Translated = cmp.Or(cfg.Translated, sessions.Bounds{All: mostTranslated, One: mostOfAddress})
	w := &Watcher{
		Config: cfg, asks: make(chan ask), drops: capture.NewDrops(cfg.Folder, cfg.Name, mostDropped), store: flows.NewStore(MostFlows),
		sources: []Source{{Name: ByCapture}, {Name: BySessions}, {Name: ByNAT}}, rules: rules{}, index: index{}, nodes: map[string]*model.Node{}, staged: tally.New(cfg.Now),
		known: known{sampler: &capture.Sampler{}, seed: maphash.MakeSeed()},
	}
	if cfg.Probe != nil {
		w.sources[1].Name = ByProbe
	}
	return w
}

// Drops returns the capture of dropped packets, which a capture of a pod's packets interrupts; nil: there is none.
func (w *Watcher) Drops() *capture.Drops {
	if w == nil {
		return nil
	}
	return w.drops
}

// ErrOff means that the agent does not watch flows.
var ErrOff = errors.New("this agent does not watch flows: run it with --flows")

// Ask returns the flows that changed after a number and match the filter, the latest if they are many.
func (w *Watcher) Ask(ctx context.Context, after uint64, filter *flows.Filter) (*Answer, error) {
	return w.sendAsk(ctx, ask{after: after, filter: filter, most: mostSelected})
}

// All returns all flows that changed after a number.
func (w *Watcher) All(ctx context.Context, after uint64) (*Answer, error) {
	return w.sendAsk(ctx, ask{after: after, most: MostFlows})
}

// Follow waits until a flow has changed after a number, and returns all flows that have.
func (w *Watcher) Follow(ctx context.Context, after uint64) (*Answer, error) {
	return w.sendAsk(ctx, ask{after: after, most: MostFlows, ended: ctx.Done()})
}

func (w *Watcher) sendAsk(ctx context.Context, a ask) (*Answer, error) {
	if w == nil {
		return nil, ErrOff
	}
	a.answer = make(chan Answer, 1)
	select {
	case w.asks <- a:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case answer := <-a.answer:
		return &answer, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Run watches until ctx ends. A nil Watcher does nothing.
func (w *Watcher) Run(ctx context.Context, l Loop) error {
	if w == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.watch(ctx, l) })
	if w.Probe != nil {
		g.Go(func() error { return w.Probe.Collector.Run(ctx) })
	}
	for _, serve := range w.Beside {
		g.Go(func() error { return serve(ctx, w, l) })
	}
	return g.Wait()
}

// watch reads dropped packets at each tick. The other sources are read beside it, and their connections are explained by parts: with full tables both
// take seconds, and neither a denial nor a reader waits for that.
func (w *Watcher) watch(ctx context.Context, l Loop) error {
	parts := time.Duration(1)
	if w.DropsEvery > 0 {
		parts = (w.Every + w.DropsEvery - 1) / w.DropsEvery
	}
	tick := time.NewTicker(w.Every / parts)
	defer tick.Stop()
	reads, reading := make(chan *tables, 1), false
	defer func() {
		if reading {
			<-reads
		}
	}()
	always := make(chan struct{})
	close(always)
	var pending []observation
	for part := parts; ; {
		var more <-chan struct{}
		if len(pending) > 0 {
			more = always
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-w.asks:
			w.answerOrHold(a)
			continue
		case <-more:
			pending = w.addPending(ctx, l, pending)
		case t := <-reads:
			reading = false
			pending = w.addTables(ctx, l, t)
		case <-tick.C:
			w.lookAtDrops(ctx, l)
			if part--; part <= 0 && !reading && len(pending) == 0 {
				part, reading = parts, true
				t := w.dueTables()
				go func() {
					t.readDue(ctx, l, w)
					reads <- t
				}()
			}
		}
		waiting := w.waiting
		w.waiting = nil
		for _, a := range waiting {
			w.answerOrHold(a)
		}
		// Those who ask already are next: select takes any ready case, and would let them wait for part after part.
		for n, asked := 0, true; asked && n < mostAsks; n++ {
			select {
			case a := <-w.asks:
				w.answerOrHold(a)
			default:
				asked = false
			}
		}
	}
}

// answerOrHold answers, or keeps the ask of a caller that waits for a change.
func (w *Watcher) answerOrHold(a ask) {
	if a.ended != nil && w.store.Number() <= a.after {
		select {
		case <-a.ended:
		default:
			w.waiting = append(w.waiting, a)
		}
		return
	}
	answer := Answer{
		Node: w.Node, Flows: w.store.Select(a.after, a.filter, a.most), Next: w.store.Number(), Sources: slices.Clone(w.sources),
		Forgotten: w.store.Forgotten(), Lost: w.store.Lost(a.after),
	}
	answer.Staged, answer.Uncounted = w.staged.Rows()
	a.answer <- answer
}

// Look reads each source whose pause is over, and adds its flows. It must not run beside Run.
func (w *Watcher) Look(ctx context.Context, l Loop) {
	w.lookAtDrops(ctx, l)
	t := w.dueTables()
	t.readDue(ctx, l, w)
	for pending := w.addTables(ctx, l, t); len(pending) > 0; {
		pending = w.addPending(ctx, l, pending)
	}
}

// lookAtDrops reads dropped packets alone.
func (w *Watcher) lookAtDrops(ctx context.Context, l Loop) {
	seen, err := w.readDropped(ctx, l)
	if w.noteResult(&w.sources[0], len(seen), err); len(seen) > 0 {
		w.addFlows(ctx, l, seen, false)
	}
}

// addFlows adds the flows of observations. all: those of tables, so lists that are in use are used now.
func (w *Watcher) addFlows(ctx context.Context, l Loop, seen []observation, all bool) {
	var found []flows.Flow
	var headers []space.Header
	var staged reading
	if err := l.InLoop(ctx, func() {
		if len(seen) > 0 {
			if all { // after a time without connections, or for drops alone, lists in use would be dropped
				w.rules.dropUnused()
			}
			found, headers = w.explain(&l, seen)
		}
		staged = w.newReading(&l)
	}); err != nil {
		return // the agent ends
	}
	if staged.due {
		w.staged.Read(staged.version, staged.objects)
	}
	for i := range found {
		w.staged.Mark(&found[i], headers[i])
		w.store.Add(found[i])
	}
}

// stopsVPP reports whether VPP does not forward while the source is read.
func (s *Source) stopsVPP() bool { return s.Name == BySessions || s.Name == ByNAT }

// errFull means that VPP dropped more packets than the capture holds.
var errFull = errors.New("VPP drops more packets than the agent captures: only the first after each read are shown")

func (w *Watcher) noteResult(s *Source, seen int, err error) {
	s.Seen += uint64(seen)
	problem := ""
	if err != nil {
		problem = err.Error()
		s.Missed++
		w.meter.countIncomplete(s.Name)
	}
	if problem != s.Problem && problem != "" {
		w.Logger.Warn("flows", "source", s.Name, "err", problem)
	}
	s.Problem = problem
}

// observation is a packet or a connection before names and reasons.
type observation struct {
	source, destination netip.AddrPort
	protocol            uint8
	flags               uint8
	input               bool   // of the interface that saw it
	dropped             string // why VPP dropped it: "node: error"; "": it passed
	byList              bool   // an access list dropped it
	twoWay              bool   // packets of both directions passed
	assumed             bool   // no session says which end opened the connection: ports do
	translation         *flows.Translation
	counts              flows.Counts
	seenBy              string
}

// dialled is the destination before NAT; zero without NAT.
func (o *observation) dialled() netip.AddrPort {
	if o.translation == nil {
		return netip.AddrPort{}
	}
	return o.translation.Dialled
}

func (w *Watcher) readDropped(ctx context.Context, l Loop) ([]observation, error) {
	c, err := w.drops.Read(ctx, l.Do)
	var out []observation
	for _, p := range c.Packets {
		o := observation{
			source: netip.AddrPortFrom(p.Src, p.SrcPort), destination: netip.AddrPortFrom(p.Dst, p.DstPort), protocol: p.Protocol, flags: p.Flags,
			counts: flows.Counts{Packets: 1, Bytes: uint64(p.Bytes)}, seenBy: ByCapture,
		}
		o.dropped, o.byList, o.input = droppedBy(p.Node, p.Error)
		out = append(out, o)
	}
	if err == nil && c.Full {
		err = errFull
	}
	return out, err
}
