package counters

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	rendereracl "github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/vpp/stats"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// SourceDrops are the packets that a source check dropped since the agent began to count: the check of a pod, or of packets from outside the
// node.
type SourceDrops struct {
	Pod     string `json:"pod,omitempty"` // namespace/name; "": packets from outside, under an address that only this node has
	Packets uint64 `json:"packets"`
}

// sourceCounts adds up the drops of source checks. VPP counts per rule, and starts at zero with new rules. It belongs to one
// goroutine.
type sourceCounts struct {
	last map[uint32]uint64 // by ACL
	pods map[string]uint64
}

// addCount adds VPP's count of a pod's ACL, and returns the number of new packets.
func (s *sourceCounts) addCount(pod string, index uint32, now uint64) uint64 {
	more := now
	if was, known := s.last[index]; known && was <= now {
		more = now - was
	}
	if s.last[index] = now; more > 0 {
		s.pods[pod] += more
	}
	return more
}

// sorted returns a copy for readers, sorted by number, most first.
func (s *sourceCounts) sorted() []SourceDrops {
	var out []SourceDrops
	for _, pod := range slices.Sorted(maps.Keys(s.pods)) {
		out = append(out, SourceDrops{pod, s.pods[pod]})
	}
	slices.SortStableFunc(out, func(a, b SourceDrops) int { return cmp.Compare(b.Packets, a.Packets) })
	return out
}

// SourceChecks adds up what the source checks of this node drop.
type SourceChecks struct {
	*Reader
	counts  *sourceCounts
	drops   atomic.Pointer[[]SourceDrops] // nil: not counted
	dropped prometheus.Counter
}

// NewSourceChecks returns source checks that have counted nothing.
func NewSourceChecks(r *Reader) *SourceChecks {
	return &SourceChecks{
		Reader: r, counts: &sourceCounts{last: map[uint32]uint64{}, pods: map[string]uint64{}},
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "contiv_source_check_dropped_packets_total",
			Help: "Packets dropped because of their source: of a pod, not the pod's address; from outside the node, an address that only this node has.",
		}),
	}
}

// Register registers the metric.
func (s *SourceChecks) Register(r prometheus.Registerer) error { return r.Register(s.dropped) }

// Run counts until ctx ends.
func (s *SourceChecks) Run(ctx context.Context, every time.Duration, log *slog.Logger) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := s.Count(ctx); err != nil {
			log.Debug("counting the drops of source checks failed", "err", err)
		}
	}
}

// Count adds VPP's counts since the last call. It must not run beside Run.
func (s *SourceChecks) Count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	var pods map[string]string // by interface; "": none is behind it
	if err := s.InLoop(ctx, func() {
		pods = s.Policies.PodsByInterface()
		names, _ := s.Policies.InterfacesAt(netip.Addr{})
		for _, name := range names {
			pods[name] = ""
		}
	}); err != nil {
		return err
	}
	lists, err := s.Lists.Lists(ctx, slices.Sorted(maps.Keys(pods))...)
	if err != nil {
		return err
	}
	lists = slices.DeleteFunc(lists, func(l vppagent.Listed) bool { return l.Output || !rendereracl.IsSourceCheck(l.Value.GetName()) })
	if len(lists) == 0 {
		return nil
	}
	var indices []uint32
	for _, l := range lists {
		indices = append(indices, l.Index)
	}
	matches, err := s.Counters.ACLMatches(ctx, indices)
	if err != nil {
		return err
	}
	for _, l := range lists {
		if counters, counted := matches[l.Index]; counted {
			s.dropped.Add(float64(s.counts.addCount(pods[l.Interface], l.Index, denied(l.Value.GetRules(), counters))))
		}
	}
	drops := s.counts.sorted()
	s.drops.Store(&drops)
	return nil
}

// denied returns the packets that the denying rules matched.
func denied(rules []*acl.ACL_Rule, counters []stats.Counter) (n uint64) {
	for i, r := range rules {
		if i < len(counters) && r.GetAction() == acl.ACL_Rule_DENY {
			n += counters[i].Packets
		}
	}
	return n
}

// Pods returns the pods that exist, as SourceDrops names them. It must be called in the loop.
func (s *SourceChecks) Pods() map[string]bool {
	if s.Counters == nil || s.Policies == nil {
		return nil // not counted
	}
	here := map[string]bool{"": true}
	for _, pod := range s.Policies.PodsByInterface() {
		here[pod] = true
	}
	return here
}

// Drops returns the drops of pods that exist (Pods); the drops of deleted pods are only in the metric. It is safe for concurrent use.
func (s *SourceChecks) Drops(here map[string]bool) []SourceDrops {
	drops := s.drops.Load()
	if drops == nil || len(*drops) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(*drops), func(d SourceDrops) bool { return !here[d.Pod] })
}
