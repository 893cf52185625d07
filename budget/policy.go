package budget

import (
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// A rule of a policy becomes the product of what its two sides name: addresses times ports, of the source and of the destination. The
// driver writes sets as their members, and a negation as what it leaves, or beyond a bound as an exception for each part.
const (
	perExcept  = 32  // prefixes that one excepted range leaves of another at most, about
	mostExcept = 512 // beyond, the driver writes exceptions: renderer/acl, bearable
)

// side is how many things one side of a rule names.
type side struct {
	nets, except   int  // ranges, and excepted ranges
	members, not   int  // of sets of addresses, and of excepted sets
	sets           bool // there are sets
	ports, noPorts int
	named          int // members of sets of address and port
}

func (s *side) addresses() int {
	n := s.nets + s.members
	if n == 0 && !s.sets {
		n = 1
	}
	if out := s.except + s.not; out > 0 {
		n += min(times(out, perExcept), mostExcept+out)
	}
	return n
}

func (s *side) anyPort() bool { return s.ports+s.noPorts+s.named == 0 }

func (s *side) rules() int {
	if s.named > 0 && s.ports == 0 {
		return times(s.named, max(1, s.except))
	}
	return plus(times(s.addresses(), max(1, s.ports)+s.noPorts), s.named)
}

// rule is how many rules of access lists one rule becomes; at least one for each of its ports, which the agent keeps whatever it selects.
func rule(src, dst *side, anyProtocol bool) int {
	n := max(1, src.ports, dst.ports, times(src.rules(), dst.rules()))
	if anyProtocol && (!src.anyPort() || !dst.anyPort()) {
		n = times(n, 3) // TCP, UDP, SCTP
	}
	return n
}

// runs adds up rules and the access lists they are split into.
type runs struct {
	size Size
	verb string
	n    int // rules of the present run
}

func (r *runs) add(verb string, n int) {
	if verb != r.verb {
		r.end()
		r.verb = verb
	}
	r.n = plus(r.n, n)
	r.size[Rules] = plus(r.size[Rules], n)
	r.size[Memory] = plus(r.size[Memory], plus(writtenMemory, times(n, ruleMemory)))
}

func (r *runs) end() {
	if r.n > 0 {
		r.size[Tables] += Lists(r.n)
	}
	r.n, r.verb = 0, ""
}

// OfPolicy is what a policy asks for at least: its selectors count as if they selected nobody, since only the cluster's state says how
// many they select.
func OfPolicy(p *model.Policy) Size {
	var r runs
	for _, list := range [][]model.Rule{p.InboundRules, p.OutboundRules} {
		for i := range list {
			rl := &list[i]
			src, dst := peer(&rl.Source), peer(&rl.Destination)
			r.add(string(rl.Action), rule(&src, &dst, rl.Protocol == model.RuleProtocol{}))
		}
		r.end()
	}
	return r.size
}

func peer(p *model.Peer) side {
	s := side{nets: len(p.Nets), except: len(p.NotNets), ports: len(p.Ports), noPorts: len(p.NotPorts)}
	if p.Selector != "" || p.Service.Name != "" {
		s.sets = true
	}
	return s
}

// OfMessage is what a policy asks for as a driver gets it; members is how many members a set has.
func OfMessage(p *felix.Policy, members func(set string) int) Size {
	var r runs
	for _, list := range [][]*felix.Rule{p.GetInboundRules(), p.GetOutboundRules()} {
		for _, m := range list {
			src := side{
				nets: len(m.SrcNet), except: len(m.NotSrcNet), ports: len(m.SrcPorts), noPorts: len(m.NotSrcPorts),
				members: smallest(m.SrcIpSetIds, members), sets: len(m.SrcIpSetIds) > 0, not: all(m.NotSrcIpSetIds, members),
				named: all(m.SrcNamedPortIpSetIds, members),
			}
			dst := side{
				nets: len(m.DstNet), except: len(m.NotDstNet), ports: len(m.DstPorts), noPorts: len(m.NotDstPorts),
				members: smallest(m.DstIpSetIds, members), sets: len(m.DstIpSetIds) > 0, not: all(m.NotDstIpSetIds, members),
				named: all(m.DstNamedPortIpSetIds, members) + all(m.DstIpPortSetIds, members),
			}
			r.add(strings.ToLower(m.Action), rule(&src, &dst, m.Protocol == nil))
		}
		r.end()
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

func all(sets []string, members func(string) int) (n int) {
	for _, id := range sets {
		n += members(id)
	}
	return n
}

// smallest is the members of the smallest set: an address has to be in each of them.
func smallest(sets []string, members func(string) int) int {
	n := 0
	for i, id := range sets {
		if m := members(id); i == 0 || m < n {
			n = m
		}
	}
	return n
}

// mostCount is where counting ends: no limit is higher.
const mostCount = 1 << 31

func times(a, b int) int { return min(a*b, mostCount) }
func plus(a, b int) int  { return min(a+b, mostCount) }
