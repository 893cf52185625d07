package acl

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/denial"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
)

// vicinity has the clauses of a program for packets to local pods. It is valid for one round of evaluation.
type vicinity struct {
	clauses []*match.Clause // clauses that may match them: few of a long program
	alike   bool            // whether a clause matches packets to an address depends only on whether it names the address
	hits    []*match.Clause // clauses that match packets to the address of last
	family  match.Family
	last    *residue
	known   bool // last is computed
}

// vicinityOf returns the vicinity of a program.
func (r *Renderer) vicinityOf(p *program) *vicinity {
	if v := r.near[p]; v != nil {
		return v
	}
	if len(r.near) == 0 {
		r.pods = r.pods[:0]
		for _, i := range r.ifaces {
			r.pods = append(r.pods, i.addrs...)
		}
		slices.SortFunc(r.pods, netip.Addr.Compare)
	}
	v := &vicinity{alike: true}
	r.near[p] = v
	for c := range p.steps.Each {
		if slices.ContainsFunc(c.Matches, func(m *match.Match) bool { return m.Dst.Nets != nil && !slices.ContainsFunc(m.Dst.Nets, r.holdsPod) }) {
			continue
		}
		v.clauses = append(v.clauses, c)
		v.alike = v.alike && !slices.ContainsFunc(c.Matches, func(m *match.Match) bool { return m.Dst.Intricate() })
	}
	return v
}

// holdsPod reports whether a local pod has one of the addresses.
func (r *Renderer) holdsPod(n netip.Prefix) bool {
	i, _ := slices.BinarySearchFunc(r.pods, n.Addr(), netip.Addr.Compare)
	return i < len(r.pods) && n.Contains(r.pods[i])
}

// residue returns nil if the program allows everything there. Equal matching clauses give the same residue.
func (r *Renderer) residue(j *outbound, i *iface) *residue {
	targets := r.node.Early(r.targets[:0], i.addrs)
	r.targets = targets
	if len(targets) == 0 || j.p.free { // exits do not concern local pods
		return nil
	}
	v := r.vicinityOf(j.p)
	if !v.alike || len(targets) > 1 {
		return r.freshResidue(j, v.clauses, targets)
	}
	to, hits := netip.PrefixFrom(targets[0], targets[0].BitLen()), r.hits[:0]
	for _, c := range v.clauses {
		if !c.Misses(r.sets, to) {
			hits = append(hits, c)
		}
	}
	r.hits = hits
	if f := match.FamilyOf(targets[0]); !v.known || v.family != f || !slices.Equal(v.hits, hits) {
		v.known, v.family, v.hits = true, f, slices.Clone(hits)
		v.last = r.freshResidue(j, v.hits, targets)
	}
	return v.last
}

// freshResidue computes which packets to the addresses some clauses of a program deny.
func (r *Renderer) freshResidue(j *outbound, clauses []*match.Clause, targets []netip.Addr) *residue {
	froms := []netip.Addr{{}}
	if !j.blind {
		froms = j.sources
	}
	res := &residue{}
	for _, src := range froms {
		var denied []denial.Rect
		for _, dst := range targets {
			if src.IsValid() && match.FamilyOf(src) != match.FamilyOf(dst) {
				continue
			}
			denied = append(denied, denial.Of(r.sets, slices.Values(clauses), src, dst)...)
		}
		if len(denied) > 0 {
			res.lines = append(res.lines, residueLine{src, denied})
		}
	}
	if len(res.lines) == 0 {
		return nil
	}
	res.sign()
	return res
}

// reused is memory that calls reuse.
type reused struct {
	hits    []*match.Clause
	targets []netip.Addr
}
