package endpoint

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/group"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// programOf returns the program with a key, and makes it if absent.
func (g *Pods) programOf(key string, s *policy.Spec) *Program {
	p := g.Programs[key]
	if p == nil {
		p = &Program{Key: key, Spec: *s, Users: map[*Iface]struct{}{}, part: group.PartOf(key)}
		g.Programs[key] = p
		s.Each(func(id policy.ID) { g.ofPolicy.Add(id, p) }, func(name string) { g.ofProfile.Add(name, p) })
		g.Stale[p] = struct{}{}
	}
	return p
}

// sourcesChanged marks a program whose users, or their addresses, changed; nil: none.
func (g *Pods) sourcesChanged(p *Program) {
	if p != nil && p.Spec.Egress {
		g.Changed[p] = struct{}{}
	}
}

// Refresh flattens the stale programs, and those whose policies changed, and drops the programs without users. Behind puts a program of
// egress behind the rules of host endpoints.
func (g *Pods) Refresh(behind func(policy.Steps) policy.Steps) {
	mark := func(programs map[*Program]struct{}) {
		for p := range programs {
			g.Stale[p] = struct{}{}
		}
	}
	g.Book.EachChanged(func(id policy.ID, _ []string) { mark(g.ofPolicy[id]) }, func(name string, _ []string) { mark(g.ofProfile[name]) })
	for p := range g.Stale {
		if len(p.Users) > 0 {
			g.flattenProgram(p, behind)
		}
	}
	g.dropUnused()
	clear(g.Stale)
}

// flattenProgram makes a program's steps anew.
func (g *Pods) flattenProgram(p *Program, behind func(policy.Steps) policy.Steps) {
	steps := g.Flatten(&p.Spec)
	p.Free = steps.Opens()
	if p.Spec.Egress && !p.Spec.Down {
		steps = behind(steps)
	}
	if p.Steps != nil && slices.EqualFunc(steps, p.Steps, policy.Step.Identical) {
		return
	}
	p.Steps = steps
	p.Open = p.Steps.Opens()
	g.Changed[p] = struct{}{}
	old := p.Uses
	p.Uses = make([]table.Use, 0, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		c := &s.Clauses[len(s.Clauses)-1]
		switch {
		case p.Open && i < len(p.Steps)-1: // all later steps allow everything
		case p.Open || s.Lone():
			p.Uses = append(p.Uses, table.Use{Seg: nil, Verb: c.Verb, Cause: c.Cause})
		default:
			p.Uses = append(p.Uses, table.Use{Seg: g.takeSegment(p, s), Verb: c.Verb, Cause: nil})
		}
	}
	for _, u := range old {
		g.dropSegment(p, u.Seg)
	}
	if !slices.Equal(old, p.Uses) {
		g.RelistUsers(p)
	}
}

// takeSegment returns the segment of a step, and counts one more use by a program.
func (g *Pods) takeSegment(p *Program, s *policy.Step) *table.Segment {
	seg := g.Segs.Take(s.Role, table.Scope{Egress: p.Spec.Egress}, s.Clauses)
	g.ofSegment.Add(seg, p)
	return seg
}

// dropSegment removes one use of a segment; nil: none.
func (g *Pods) dropSegment(p *Program, seg *table.Segment) {
	if seg == nil {
		return
	}
	if !slices.ContainsFunc(p.Uses, func(u table.Use) bool { return u.Seg == seg }) {
		g.ofSegment.Remove(seg, p)
	}
	g.Segs.Drop(seg)
}

// dropUnused drops programs without users. It runs after their replacements were made, because both share segments.
func (g *Pods) dropUnused() {
	for _, p := range g.left {
		if len(p.Users) > 0 || g.Programs[p.Key] != p {
			continue
		}
		delete(g.Programs, p.Key)
		delete(g.Stale, p)
		p.Spec.Each(func(id policy.ID) { g.ofPolicy.Remove(id, p) }, func(name string) { g.ofProfile.Remove(name, p) })
		uses := p.Uses
		p.Uses = nil
		for _, u := range uses {
			g.dropSegment(p, u.Seg)
		}
	}
	g.left = nil
}

// UsersOf calls f for each interface whose programs use a segment, at least once.
func (g *Pods) UsersOf(seg *table.Segment, f func(*Iface)) {
	for p := range g.ofSegment[seg] {
		for i := range p.Users {
			f(i)
		}
	}
}
