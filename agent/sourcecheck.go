package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	rendereracl "github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/vpp"
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

// drops returns a copy for readers, sorted by number, most first.
func (s *sourceCounts) drops() []SourceDrops {
	var out []SourceDrops
	for _, pod := range slices.Sorted(maps.Keys(s.pods)) {
		out = append(out, SourceDrops{pod, s.pods[pod]})
	}
	slices.SortStableFunc(out, func(a, b SourceDrops) int { return cmp.Compare(b.Packets, a.Packets) })
	return out
}

// countSourceDrops counts until ctx ends.
func (a *Agent) countSourceDrops(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	counts := &sourceCounts{last: map[uint32]uint64{}, pods: map[string]uint64{}}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := a.readSourceDrops(ctx, counts); err != nil {
			a.log.Debug("counting the drops of source checks failed", "err", err)
		}
	}
}

// readSourceDrops adds VPP's counts since the last read.
func (a *Agent) readSourceDrops(ctx context.Context, counts *sourceCounts) error {
	ctx, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	var pods map[string]string // by interface; "": none is behind it
	if err := a.controller.Ask(ctx, func(*controller.Controller) {
		pods = a.policies.PodsByInterface()
		for _, name := range a.policies.OutsideInterfaces() {
			pods[name] = ""
		}
	}); err != nil {
		return err
	}
	lists, err := a.vppagent.Lists(ctx, slices.Sorted(maps.Keys(pods))...)
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
	matches, err := a.cfg.RuleCounters.ACLMatches(ctx, indices)
	if err != nil {
		return err
	}
	for _, l := range lists {
		if counters, counted := matches[l.Index]; counted {
			a.metrics.sourceDrops.Add(float64(counts.addCount(pods[l.Interface], l.Index, denied(l.Value.GetRules(), counters))))
		}
	}
	drops := counts.drops()
	a.sourceDrops.Store(&drops)
	return nil
}

// denied returns the packets that the denying rules matched.
func denied(rules []*acl.ACL_Rule, counters []vpp.Counter) (n uint64) {
	for i, r := range rules {
		if i < len(counters) && r.GetAction() == acl.ACL_Rule_DENY {
			n += counters[i].Packets
		}
	}
	return n
}

// sourceDropsNow returns the drops of existing pods; the drops of deleted pods are only in the metric.
func (p *parts) sourceDropsNow() []SourceDrops {
	drops := p.sourceDrops.Load()
	if drops == nil || len(*drops) == 0 {
		return nil
	}
	here := map[string]bool{"": true}
	for _, pod := range p.policies.PodsByInterface() {
		here[pod] = true
	}
	return slices.DeleteFunc(slices.Clone(*drops), func(d SourceDrops) bool { return !here[d.Pod] })
}
