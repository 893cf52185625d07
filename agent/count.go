package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// RuleCounters tells what the rules of ACLs judged, by acl_index, one counter per rule. An ACL that is not counted is left
// out. vpp.Stats is one.
type RuleCounters interface {
	ACLMatches(ctx context.Context, acls []uint32) (map[uint32][]vpp.Counter, error)
}

// countPatience bounds how long counters may take: what applies is told without them, too.
const countPatience = 3 * time.Second

// errChanging reports that what VPP counted and what is programmed are not of the same moment.
var errChanging = errors.New("access lists are just changing: ask again")

// counted is d with what VPP counted for the rules, or why not. Nothing is held up meanwhile; so that counters and rules
// belong together, lists have to be the same before and after the counters are read, and what the renderer says they are.
func (a *Agent) counted(ctx context.Context, pod model.PodID, d *policy.Description) *policy.Description {
	ctx, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	listed, counters, err := a.readCounters(ctx, d.Interfaces)
	if err == nil {
		var found *policy.Description
		err = errors.Join(a.controller.Ask(ctx, func(*controller.Controller) {
			if lists, same := a.join(listed, counters); same {
				found, _ = a.policies.DescribeCounted(pod, lists)
			}
		}))
		switch {
		case err == nil && found != nil:
			return found
		case err == nil:
			err = errChanging
		}
	}
	d.Uncounted = err.Error()
	return d
}

func (a *Agent) readCounters(ctx context.Context, interfaces []string) ([]vppagent.Listed, map[uint32][]vpp.Counter, error) {
	before, err := a.vppagent.Lists(ctx, interfaces...)
	if err != nil || len(before) == 0 {
		return nil, nil, err
	}
	var acls []uint32
	for _, l := range before {
		if !slices.Contains(acls, l.Index) {
			acls = append(acls, l.Index)
		}
	}
	counters, err := a.cfg.RuleCounters.ACLMatches(ctx, acls)
	if err != nil {
		return nil, nil, err
	}
	after, err := a.vppagent.Lists(ctx, interfaces...)
	if err == nil && !slices.Equal(before, after) {
		err = errChanging
	}
	return before, counters, err
}

// join is what the rules of the lists counted; false: what VPP has is not what it was asked for last. What others attached
// is behind ours, and left out; so is what source ranges put in front.
func (p *parts) join(listed []vppagent.Listed, counters map[uint32][]vpp.Counter) ([]policy.Counted, bool) {
	var out []policy.Counted
	fronted := map[string]bool{}
	for _, l := range listed {
		if l.Front {
			fronted[l.Interface] = true
			continue
		}
		if fronted[l.Interface] && !l.Output {
			l.Place--
		}
		wanted, _ := p.values.Sent(kv.InterfaceACLsKey(l.Interface)).(*contivacl.InterfaceACLs)
		names := wanted.GetInput()
		if l.Output {
			names = wanted.GetOutput()
		}
		if l.Place >= len(names) {
			continue
		}
		if l.Value == nil || l.Value.GetName() != names[l.Place] || !kv.Equal(l.Value, p.values.Sent(kv.ACLKey(names[l.Place]))) {
			return nil, false
		}
		c := policy.Counted{ID: l.Index, Interface: l.Interface, Output: l.Output, Place: l.Place}
		for i, n := range counters[l.Index] {
			if i < len(l.Value.GetRules()) { // VPP keeps what longer ones had
				c.Rules = append(c.Rules, policy.Hits(n))
			}
		}
		out = append(out, c)
	}
	return out, true
}
