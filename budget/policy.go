package budget

import (
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// A rule of a policy becomes the product of what its two sides name, in each family: addresses times ports, of the source and of the
// destination. The driver writes sets as their members, and a negation as what it leaves. It may put exceptions in front of a rule instead, which are
// fewer rules, but only while the pod has few others: what a policy asks for does not depend on other policies.
const (
	otherProtos = 258 // rules of a negated protocol: one for each other, or of negated ICMP: and some for its other types and codes
)

// side is how many things one side of a rule names.
type side struct {
	nets, members  pieces // ranges, and members of sets of addresses
	left, except   pieces // what excepted ranges and sets leave of all others; and they themselves
	depth          pieces // how often an address may be in ranges; 0: once
	anywhere       bool   // no range and no set
	ports, noPorts int
	named          pieces // members of sets of address and port
	asksNamed      bool   // there are such sets
}

// countPrefixes is how many prefixes of a family the side becomes. One that names only addresses of the other family has none.
func (s *side) countPrefixes(f int) int {
	n := s.nets[f] + s.members[f]
	if s.anywhere {
		n = 1
	}
	if n > 0 {
		n = plus(n, times(s.left[f], max(1, s.depth[f])))
	}
	return n
}

func (s *side) asksPorts() bool { return s.ports > 0 || s.asksNamed }

func (s *side) countRules(f int) int {
	named := times(s.named[f], max(1, s.depth[f]))
	if s.asksNamed && s.ports == 0 { // a set that is not known, or not for the protocol, denies all addresses
		return max(times(named, max(1, s.left[f])), s.countPrefixes(f))
	}
	return plus(times(s.countPrefixes(f), max(1, s.ports)+s.noPorts), named)
}

// protocols is what a rule says about protocols and families.
type protocols struct {
	any     bool // it names none
	negated bool // it excepts one
	version int  // 4 or 6; 0: both
}

// countACLRules is how many rules of access lists one rule becomes; at least one for each of its ports, which the agent keeps whatever it selects.
func countACLRules(src, dst *side, p protocols) int {
	n := 0
	for f, version := range [2]int{4, 6} {
		if p.version == 0 || p.version == version {
			n = plus(n, p.times(times(src.countRules(f), dst.countRules(f)), src, dst))
		}
	}
	for f := range families { // an exception in front does not look at the rule's family
		n = plus(n, src.except[f]+dst.except[f])
	}
	return max(1, src.ports, dst.ports, n)
}

// times is so many rules for each protocol that they match.
func (p protocols) times(n int, src, dst *side) int {
	switch {
	case !p.any:
		return n
	case p.negated:
		return times(n, otherProtos)
	case src.asksPorts() || dst.asksPorts():
		return times(n, 4) // TCP, UDP, SCTP, UDP-Lite
	case src.noPorts+dst.noPorts > 0:
		return times(n, otherProtos) // protocols without ports match, too
	}
	return n
}

// runs adds up rules and the access lists they are split into.
type runs struct {
	size Size
	verb string
	n    int // rules of the present run
}

func (r *runs) addRules(verb string, n int) {
	if verb != r.verb {
		r.endRun()
		r.verb = verb
	}
	r.n = plus(r.n, n)
	r.size[Rules] = plus(r.size[Rules], n)
	r.size[Memory] = plus(r.size[Memory], plus(writtenMemory, times(n, ruleMemory)))
}

func (r *runs) endRun() {
	if r.n > 0 {
		r.size[Tables] += Lists(r.n)
	}
	r.n, r.verb = 0, ""
}

// OfPolicy is what a policy asks for at least: its selectors count as if they selected nobody, since only the cluster's state says how
// many they select. WholeBytes says that VPP compares IPv6 prefixes by whole bytes (see WholeBytes).
func OfPolicy(p *model.Policy, wholeBytes bool) Size {
	var r runs
	for _, list := range [][]model.Rule{p.InboundRules, p.OutboundRules} {
		for i := range list {
			rl := &list[i]
			src, dst := peer(&rl.Source, wholeBytes), peer(&rl.Destination, wholeBytes)
			r.addRules(string(rl.Action), countACLRules(&src, &dst, protocols{
				any: rl.Protocol == model.RuleProtocol{} && rl.ICMP == nil, negated: rl.NotProtocol != model.RuleProtocol{} || rl.NotICMP != nil, version: int(rl.IPVersion),
			}))
		}
		r.endRun()
	}
	return r.size
}

func peer(p *model.Peer, wholeBytes bool) side {
	s := ofRanges(ofPrefixes(p.Nets), ofPrefixes(p.NotNets), wholeBytes)
	s.anywhere = len(p.Nets) == 0 && p.Selector == "" && p.Service.Name == ""
	s.ports, s.noPorts = len(p.Ports), len(p.NotPorts)
	return s
}

func ofRanges(nets, notNets []length, wholeBytes bool) side {
	return side{
		nets: sum(nets, written, wholeBytes), depth: depth(nets), left: sum(notNets, left, wholeBytes), except: sum(notNets, written, wholeBytes),
	}
}

// OfMessage is what a policy asks for as a driver gets it; members is how many members a set has.
func OfMessage(p *felix.Policy, members func(set string) *Members, wholeBytes bool) Size {
	m := sized{members, wholeBytes}
	var r runs
	for _, list := range [][]*felix.Rule{p.GetInboundRules(), p.GetOutboundRules()} {
		for _, rl := range list {
			src := m.side(rl.SrcNet, rl.NotSrcNet, rl.SrcIpSetIds, rl.NotSrcIpSetIds)
			src.ports, src.noPorts, src.named = len(rl.SrcPorts), len(rl.NotSrcPorts), m.piecesOf(rl.SrcNamedPortIpSetIds)
			dst := m.side(rl.DstNet, rl.NotDstNet, rl.DstIpSetIds, rl.NotDstIpSetIds)
			dst.ports, dst.noPorts, dst.named = len(rl.DstPorts), len(rl.NotDstPorts), m.piecesOf(rl.DstNamedPortIpSetIds)
			dst.named.addPieces(m.piecesOf(rl.DstIpPortSetIds))
			src.asksNamed, dst.asksNamed = len(rl.SrcNamedPortIpSetIds) > 0, len(rl.DstNamedPortIpSetIds)+len(rl.DstIpPortSetIds) > 0
			r.addRules(strings.ToLower(rl.Action), countACLRules(&src, &dst, protocols{
				any: rl.Protocol == nil && rl.Icmp == nil, negated: rl.NotProtocol != nil || rl.NotIcmp != nil, version: int(rl.IpVersion),
			}))
		}
		r.endRun()
	}
	return r.size
}

// Sets calls f with each set that a policy's rules name, once or more often.
func Sets(p *felix.Policy, f func(set string)) {
	for _, list := range [][]*felix.Rule{p.GetInboundRules(), p.GetOutboundRules()} {
		for _, m := range list {
			for _, ids := range [...][]string{
				m.SrcIpSetIds, m.DstIpSetIds, m.NotSrcIpSetIds, m.NotDstIpSetIds, m.SrcNamedPortIpSetIds, m.DstNamedPortIpSetIds, m.DstIpPortSetIds,
			} {
				for _, id := range ids {
					f(id)
				}
			}
		}
	}
}

// sized knows how large sets are, and what VPP compares.
type sized struct {
	members    func(string) *Members
	wholeBytes bool
}

func (m sized) side(nets, notNets, sets, notSets []string) side {
	s := ofRanges(ofTexts(nets), ofTexts(notNets), m.wholeBytes)
	s.members, s.anywhere = m.common(sets), len(nets)+len(sets) == 0
	for _, id := range notSets {
		s.left.addPieces(m.members(id).left(m.wholeBytes))
		s.except.addPieces(m.members(id).pieces(m.wholeBytes))
	}
	return s
}

func (m sized) piecesOf(sets []string) (n pieces) {
	for _, id := range sets {
		n.addPieces(m.members(id).pieces(m.wholeBytes))
	}
	return n
}

// common is how many prefixes are in all sets of each family at most: as many as the smallest set has, but a set with ranges holds parts that other
// sets name, so it bounds nothing.
func (m sized) common(sets []string) (n pieces) {
	most, bounded := pieces{}, [2]bool{}
	for _, id := range sets {
		set := m.members(id)
		got := set.pieces(m.wholeBytes)
		for f := range n {
			most[f] = max(most[f], got[f])
			if (set == nil || set.ranges[f] == 0) && (!bounded[f] || got[f] < n[f]) {
				n[f], bounded[f] = got[f], true
			}
		}
	}
	for f := range n {
		if !bounded[f] {
			n[f] = most[f]
		}
	}
	return n
}

// mostCount is where counting ends: no limit is higher.
const mostCount = 1 << 31

func times(a, b int) int { return min(a*b, mostCount) }
func plus(a, b int) int  { return min(a+b, mostCount) }
