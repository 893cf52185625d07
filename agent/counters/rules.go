// Package counters reads VPP's counters of access-list rules: those of a pod's policies, and those of source checks.
//
// Invariant: a count belongs to the rule that the renderer wanted when VPP counted; otherwise it is not shown.
package counters

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vpp/stats"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// RuleCounters reads the packets and bytes that each rule of the given ACLs matched, by acl_index, one counter per rule. An
// ACL that is not counted is missing. stats.Reader implements it.
type RuleCounters interface {
	ACLMatches(ctx context.Context, acls []uint32) (map[uint32][]stats.Counter, error)
}

// IfThere reads the counters of a VPP whose stats socket may not exist; without it no ACL is counted.
type IfThere struct{ stats.Reader }

// ACLMatches implements RuleCounters.
func (s IfThere) ACLMatches(ctx context.Context, acls []uint32) (map[uint32][]stats.Counter, error) {
	counters, err := s.Reader.ACLMatches(ctx, acls)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return counters, err
}

// countPatience bounds how long reading counters may take: descriptions are also returned without them.
const countPatience = 3 * time.Second

// ErrChanging means that counters and access lists are not from the same moment.
var ErrChanging = errors.New("access lists are changing: try again")

// Reader reads counters for descriptions of policies.
type Reader struct {
	Counters RuleCounters
	Lists    Lister
	Policies *policy.Processor
	Values   *controller.Values
	// InLoop calls a function in the controller's loop, which owns Policies and Values.
	InLoop func(context.Context, func()) error
}

// Lister lists the access lists of interfaces in VPP, by interface, direction and place; vppagent.Agent implements it.
type Lister interface {
	Lists(ctx context.Context, interfaces ...string) ([]vppagent.Listed, error)
}

// Describe returns d with VPP's counters of its rules, or the reason why not. It does not block the loop. Counters and rules
// belong together only if the lists are the same before and after the read, and equal to the renderer's.
func (r *Reader) Describe(ctx context.Context, pod model.PodID, d *policy.Description) *policy.Description {
	ctx, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	listed, counters, err := r.readCounters(ctx, d.Interfaces)
	if err == nil {
		var found *policy.Description
		err = errors.Join(r.InLoop(ctx, func() {
			if lists, same := r.joinCounters(listed, counters); same {
				found, _ = r.Policies.DescribeCounted(pod, lists)
			}
		}))
		switch {
		case err == nil && found != nil:
			return found
		case err == nil:
			err = ErrChanging
		}
	}
	d.Uncounted = err.Error()
	return d
}

func (r *Reader) readCounters(ctx context.Context, interfaces []string) ([]vppagent.Listed, map[uint32][]stats.Counter, error) {
	before, err := r.Lists.Lists(ctx, interfaces...)
	if err != nil || len(before) == 0 {
		return nil, nil, err
	}
	var acls []uint32
	for _, l := range before {
		if !slices.Contains(acls, l.Index) {
			acls = append(acls, l.Index)
		}
	}
	counters, err := r.Counters.ACLMatches(ctx, acls)
	if err != nil {
		return nil, nil, err
	}
	after, err := r.Lists.Lists(ctx, interfaces...)
	if err == nil && !slices.Equal(before, after) {
		err = ErrChanging
	}
	return before, counters, err
}

// joinCounters returns the counters of the lists' rules; false: VPP does not have the latest desired lists. Foreign lists are
// attached after ours, and skipped; rules of source ranges are before ours, and skipped.
func (r *Reader) joinCounters(listed []vppagent.Listed, counters map[uint32][]stats.Counter) ([]policy.Counted, bool) {
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
		wanted, _ := r.Values.Sent(kv.InterfaceACLsKey(l.Interface)).(*contivacl.InterfaceACLs)
		names := wanted.GetInput()
		if l.Output {
			names = wanted.GetOutput()
		}
		if l.Place >= len(names) {
			continue
		}
		if l.Value == nil || l.Value.GetName() != names[l.Place] || !kv.Equal(l.Value, r.Values.Sent(kv.ACLKey(names[l.Place]))) {
			return nil, false
		}
		c := policy.Counted{ID: l.Index, Interface: l.Interface, Output: l.Output, Place: l.Place}
		for i, n := range counters[l.Index] {
			if i < len(l.Value.GetRules()) { // VPP keeps counters of an earlier, longer list
				c.Rules = append(c.Rules, policy.Hits(n))
			}
		}
		out = append(out, c)
	}
	return out, true
}
