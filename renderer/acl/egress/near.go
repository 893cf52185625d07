package egress

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/denial"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
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

// vicinities has the vicinities of one round, and memory that calls reuse.
type vicinities struct {
	near   map[*endpoint.Program]*vicinity
	locals []netip.Addr // addresses of local pods, sorted, while near is made
	hits   []*match.Clause
	early  []netip.Addr
}

// vicinityOf returns the vicinity of a program.
func (e *Evaluator) vicinityOf(p *endpoint.Program) *vicinity {
	if v := e.near[p]; v != nil {
		return v
	}
	if len(e.near) == 0 {
		e.locals = e.locals[:0]
		for _, i := range e.pods.Ifaces {
			e.locals = append(e.locals, i.Addrs...)
		}
		slices.SortFunc(e.locals, netip.Addr.Compare)
	}
	v := &vicinity{alike: true}
	e.near[p] = v
	for c := range p.Steps.Each {
		if slices.ContainsFunc(c.Matches, func(m *match.Match) bool { return m.Dst.Nets != nil && !slices.ContainsFunc(m.Dst.Nets, e.holdsPod) }) {
			continue
		}
		v.clauses = append(v.clauses, c)
		v.alike = v.alike && !slices.ContainsFunc(c.Matches, func(m *match.Match) bool { return m.Dst.Intricate() })
	}
	return v
}

// holdsPod reports whether a local pod has one of the addresses.
func (e *Evaluator) holdsPod(n netip.Prefix) bool {
	i, _ := slices.BinarySearchFunc(e.locals, n.Addr(), netip.Addr.Compare)
	return i < len(e.locals) && n.Contains(e.locals[i])
}

// residue returns nil if the program allows everything there. Equal matching clauses give the same residue.
func (e *Evaluator) residue(j *outbound, i *endpoint.Iface) *residue {
	targets := e.pods.Node.Early(e.early[:0], i.Addrs)
	e.early = targets
	if len(targets) == 0 || j.p.Free { // exits do not concern local pods
		return nil
	}
	v := e.vicinityOf(j.p)
	if !v.alike || len(targets) > 1 {
		return e.freshResidue(j, v.clauses, targets)
	}
	to, hits := netip.PrefixFrom(targets[0], targets[0].BitLen()), e.hits[:0]
	for _, c := range v.clauses {
		if !c.Misses(e.pods.Sets, to) {
			hits = append(hits, c)
		}
	}
	e.hits = hits
	if f := match.FamilyOf(targets[0]); !v.known || v.family != f || !slices.Equal(v.hits, hits) {
		v.known, v.family, v.hits = true, f, slices.Clone(hits)
		v.last = e.freshResidue(j, v.hits, targets)
	}
	return v.last
}

// freshResidue computes which packets to the addresses some clauses of a program deny.
func (e *Evaluator) freshResidue(j *outbound, clauses []*match.Clause, targets []netip.Addr) *residue {
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
			denied = append(denied, denial.Of(e.pods.Sets, slices.Values(clauses), src, dst)...)
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
