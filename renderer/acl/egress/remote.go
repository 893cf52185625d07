package egress

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/group"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// measure counts the parts of weight. The counts are valid until the program's steps change.
func (j *outbound) measure() {
	j.clauses, j.sets, j.blind = 0, nil, j.p.Steps.IgnoresSources()
	for i := range j.p.Steps {
		for k := range j.p.Steps[i].Clauses {
			j.clauses++
			for _, m := range j.p.Steps[i].Clauses[k].Matches {
				j.sets = append(j.sets, m.Dst.Sets...)
			}
		}
	}
}

// weight estimates the number of rules in remote, as a power of two, so that it does not change with every member of a set.
func (j *outbound) weight(sets match.Sets) int {
	n := j.clauses
	for _, id := range j.sets {
		if s := sets[id]; s != nil {
			n += s.Size(match.V4) + s.Size(match.V6)
		}
	}
	return bits.Len(uint(n * len(j.sources)))
}

// writeRemote makes the segments of a program for the outputs to destinations other than local pods.
func (e *Evaluator) writeRemote(j *outbound) {
	old := j.remote
	j.remote = nil
	for i := range j.p.Steps {
		s := &j.p.Steps[i]
		if len(j.sources) == 0 || j.p.Free { // exits are at the end of the lists anyway
			break
		}
		role, sc := "r\x00"+j.p.Key+"\x00"+s.Role, table.Scope{Egress: true, Sources: j.sources}
		switch {
		case j.last && s.Clauses[0].Verb == match.Deny:
		case j.last && s.Lone():
			continue // the end of the list decides the same
		case j.last:
			role, sc.Sources = s.Role, nil // other packets here may pass anyway
		}
		seg := e.pods.Segs.Take(role, sc, s.Clauses)
		j.remote = append(j.remote, seg)
	}
	for _, seg := range old {
		e.pods.Segs.Drop(seg)
	}
	e.pods.Leaving = e.pods.Leaving || !slices.Equal(old, j.remote)
}

// chooseLast picks the program that is last where packets leave: the one whose table shrinks most by it. With exits those are last.
func (e *Evaluator) chooseLast(others bool) {
	var last *outbound
	best := -1
	for _, j := range e.outbound {
		if others { // they may be NAT's
			break
		}
		if w := j.weight(e.pods.Sets); w > best || w == best && j.p.Key < last.p.Key {
			last, best = j, w
		}
	}
	for _, j := range e.outbound {
		if j.last != (j == last) {
			j.last, e.pods.Leaving = j == last, true
			e.writeRemote(j)
		}
	}
}

func (e *Evaluator) sortedOutbound() []*outbound {
	return slices.SortedFunc(maps.Values(e.outbound), func(a, b *outbound) int { return cmp.Compare(a.p.Key, b.p.Key) })
}

// RemotePlaces returns the tables of all programs for where packets leave. Programs have separate sources, so that their order has no effect,
// except for the last. Too many tables (some room is kept) are joined by parts of programs; a part keeps its name whatever its content.
func (e *Evaluator) RemotePlaces(exits bool) []lists.Place {
	var parts [group.Parts][]lists.Place
	var last, all []lists.Place
	for _, j := range e.sortedOutbound() {
		for _, seg := range j.remote {
			for _, t := range seg.Tables {
				at := lists.Place{Table: t.Name, Denies: t.Denies(), Egress: true}
				if j.last {
					at.Sources = j.sources
					last = append(last, at)
					continue
				}
				parts[j.p.Part()] = append(parts[j.p.Part()], at)
				all = append(all, at)
			}
		}
	}
	room, share := e.most-10, 1 // number of parts in one pack
	if exits {
		room, share = room-2, 2
	}
	if len(all)+len(last) > room {
		all = nil
		for n := 0; n < group.Parts; n += share {
			if part := slices.Concat(parts[n : n+share]...); len(part) > 0 {
				all = append(all, e.packs.Join("remote-part-"+strconv.Itoa(n), part))
			}
		}
	}
	return append(all, e.packs.Packed(last)...)
}

// RemoteUses returns the steps of all programs that the outputs of the uplink, the overlay and the host link evaluate. The steps of the last program
// are at the end. It also returns the programs that have a step with ports of SCTP.
func (e *Evaluator) RemoteUses() (uses []table.Use, asking map[*endpoint.Program]bool) {
	asking = map[*endpoint.Program]bool{}
	for _, last := range []bool{false, true} {
		for _, j := range e.sortedOutbound() {
			for _, seg := range j.remote {
				if j.last == last {
					uses = append(uses, table.Use{Seg: seg, Verb: seg.Clauses[0].Verb})
					asking[j.p] = asking[j.p] || seg.AsksPorts
				}
			}
		}
	}
	return uses, asking
}
