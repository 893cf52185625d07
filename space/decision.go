package space

import "slices"

// Rule decides about the headers of a box.
type Rule struct {
	Box
	Verdict uint8 // 1 to 255
}

// Decisions are verdicts about all headers: those of the first rule that has the header, or 0. The zero value decides nothing.
type Decisions pair

// List is the decisions of a list of rules, in which the first rule decides.
//
// Parts of the list are joined in an order that their content determines: where a list differs from an earlier one in one rule, all parts
// without this rule are known.
func (s *Space) List(rules []Rule) Decisions {
	var d Decisions
	four, six := make([]ref, 0, len(rules)), []ref{}
	for i := range rules {
		p := s.box(rules[i].Box, rules[i].Verdict)
		if p.v4 != 0 {
			four = append(four, p.v4)
		}
		if p.v6 != 0 {
			six = append(six, p.v6)
		}
	}
	d.v4, d.v6 = s.join(four), s.join(six)
	return d
}

// Part decides about the headers of a set.
type Part struct {
	Set     Set
	Verdict uint8 // 1 to 255
}

// Parts is the decisions of a list of sets, in which the first set with a header decides. It shares what List shares.
func Parts(s *Space, list []Part) Decisions {
	four, six := make([]ref, 0, len(list)), make([]ref, 0, len(list))
	for _, p := range list {
		if r := marked(s, p.Set.v4, p.Verdict); r != 0 {
			four = append(four, r)
		}
		if r := marked(s, p.Set.v6, p.Verdict); r != 0 {
			six = append(six, r)
		}
	}
	return Decisions{s.join(four), s.join(six)}
}

// mark is a diagram of a set, and the verdict about its headers.
type mark struct {
	set     ref
	verdict uint8
}

// marked is the diagram that has a verdict where the set has headers.
func marked(s *Space, r ref, verdict uint8) ref {
	key := mark{r, verdict}
	if to, known := s.marks[key]; known {
		return to
	}
	to := s.rewrite(r, map[ref]ref{}, func(v ref) ref { return v * ref(verdict) })
	s.marks[key] = to
	return to
}

// tree is the rule that is joined last of a part of a list, with what is before and behind it.
type tree struct {
	rule         ref
	weight       uint64
	before, rest int32 // -1: none
}

// join overrides later rules by earlier ones. The rules are the nodes of a Cartesian tree: the weight of a rule depends on its content alone.
func (s *Space) join(rules []ref) ref {
	nodes := make([]tree, len(rules))
	var spine []int32 // from the root to the last rule
	for i, r := range rules {
		nodes[i] = tree{r, mix(uint64(r)), -1, -1}
		for len(spine) > 0 && nodes[spine[len(spine)-1]].weight > nodes[i].weight {
			nodes[i].before = spine[len(spine)-1]
			spine = spine[:len(spine)-1]
		}
		if len(spine) > 0 {
			nodes[spine[len(spine)-1]].rest = int32(i)
		}
		spine = append(spine, int32(i))
	}
	if len(spine) == 0 {
		return 0
	}
	return s.joinTree(nodes, spine[0])
}

func (s *Space) joinTree(nodes []tree, at int32) ref {
	if at < 0 {
		return 0
	}
	n := &nodes[at]
	return s.overridden(s.overridden(s.joinTree(nodes, n.before), n.rule), s.joinTree(nodes, n.rest))
}

func (s *Space) overridden(a, b ref) ref {
	if r, ok := override.trivial(a, b); ok {
		return r
	}
	if r, known := s.lists[[2]ref{a, b}]; known {
		return r
	}
	r := s.combine(override, a, b)
	s.lists[[2]ref{a, b}] = r
	return r
}

// Override is the decisions of the first, and where they have none, those of the second.
func (s *Space) Override(a, b Decisions) Decisions {
	return Decisions{s.overridden(a.v4, b.v4), s.overridden(a.v6, b.v6)}
}

// Where returns the set of headers about which the verdict is one of these; 0 is no verdict.
func (s *Space) Where(d Decisions, verdicts ...uint8) Set {
	known := map[ref]ref{}
	in := func(v ref) ref {
		if slices.Contains(verdicts, uint8(v)) {
			return 1
		}
		return 0
	}
	return Set{s.rewrite(d.v4, known, in), s.rewrite(d.v6, known, in)}
}

// rewrite replaces the verdicts of a diagram.
func (s *Space) rewrite(r ref, known map[ref]ref, verdict func(ref) ref) ref {
	if r < firstNode {
		return verdict(r)
	}
	if to, ok := known[r]; ok {
		return to
	}
	from := len(s.stack)
	for i := range s.edgeCount(r) {
		e := s.edge(r, i)
		s.push(from, e.last, s.rewrite(e.to, known, verdict))
	}
	to := s.pop(s.level(r), from)
	known[r] = to
	return to
}

// Verdict is the verdict about a header; 0 is none.
func (s *Space) Verdict(d Decisions, h Header) uint8 { return uint8(s.find(pair(d), h)) }
