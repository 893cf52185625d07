// Package cost turns a request into an estimate of the time that VPP's main thread takes for it. VPP forwards nothing meanwhile: the
// main thread is the only thread, or it holds all workers at the barrier.
//
// Invariant: an estimate depends on its arguments alone, and grows with each of them.
//
// The ACL plugin keeps one lookup context for each interface and direction (plugins/acl/lookup_context.c, 24.06 to 26.06). A context is a
// vector of all rules of its access lists, in order, and an entry of a hash table for each. Contexts share nothing. So the units are
//
//	write    a rule that a message carries: decoded, and its mask found
//	apply    a rule that a context gets; unapply: that it loses; move: that it keeps at another place in the vector
//	remake   a rule of a context, each time a list of it was applied or unapplied: the context's masks are counted anew
//	list     a list that is applied or unapplied, beside its rules
//	enable   a direction of an interface that gets its first list, or loses its last: features are set
//
// An entry of the hash table has the rules for addresses near each other. A rule with an entry for itself takes three to four times as long to apply.
// Tuple merge decides that by the rules before it; TestVPPNeighboursShareEntries in test/realvpp holds the agent's lists to it.
//
// NAT44 walks all sessions for each backend that it removes (nat44_ed.c, 24.06 to 26.06):
//
//	walk     a session that VPP looks at
//	end      a session that VPP removes
//
// and adds all its mappings to an interface that becomes outside:
//
//	receive  a mapping, for the first such interface; it takes longer for each further one
package cost

import (
	"strings"
	"time"
)

// Stall is the longest time for which one request, or several without a pause in between, may stop forwarding if an alternative exists.
const Stall = 3 * time.Millisecond

// Model has the times of one version of VPP for each unit. The zero value is the model of 25.10.
type Model struct {
	write, apply, unapply, move, remake float64 // nanoseconds
	list, enable                        float64
	walk, end, receive                  float64
	message                             float64 // of any request, without its rules
	named                               map[string]float64
}

// model2510 is measured on VPP 25.10, release build, and rounded up: a node has more interfaces, and colder caches, than TestVPPCost in
// vppagent, which holds all models against a real VPP.
var model2510 = Model{
	write: 110, apply: 80, unapply: 60, move: 30, remake: 3, list: 1_000, enable: 20_000, message: 5_000, walk: 10, end: 800, receive: 1_300,
	named: map[string]float64{
		"nat44_add_del_lb_static_mapping":       10_000,
		"nat44_lb_static_mapping_add_del_local": 20_000, // and WalkSessions, when one is removed
		"cnat_translation_update":               60_000,
		"cnat_translation_del":                  60_000,
		"ip_route_add_del":                      15_000,
	},
}

// For returns the model of a version in VPP's spelling, "v24.06-release"; for an unknown version that of 25.10.
func For(version string) Model {
	for prefix, m := range models {
		if strings.HasPrefix(version, prefix) {
			return m
		}
	}
	return model2510
}

// models are the models that differ from model2510; 26.06's does not differ.
var models = map[string]Model{"v24.06": model2510.Times(1.1)} // read only

func (m Model) orDefault() Model {
	if m.message == 0 {
		return model2510
	}
	return m
}

// Context has the number of rules of each access list of one interface and direction, in order.
type Context []int

// Rules returns the number of rules in a context.
func (c Context) Rules() int { return c.size(len(c)) }

// size returns the number of rules in a context up to list i.
func (c Context) size(i int) (n int) {
	for _, rules := range c[:i] {
		n += rules
	}
	return n
}

// Message returns the time for a request without rules, by its name in VPP's API.
func (m Model) Message(name string) time.Duration {
	m = m.orDefault()
	if ns, ok := m.named[name]; ok {
		return duration(ns)
	}
	return duration(m.message)
}

// WalkSessions returns the time for looking at so many NAT44 sessions; a removed backend takes all sessions once.
func (m Model) WalkSessions(sessions int) time.Duration {
	return duration(float64(sessions) * m.orDefault().walk)
}

// EndSessions returns the time for removing so many NAT44 sessions with their backend.
func (m Model) EndSessions(sessions int) time.Duration {
	return duration(float64(sessions) * m.orDefault().end)
}

// OutsideInterface returns the least time for an interface that becomes outside, or no longer is, when so many mappings exist.
func (m Model) OutsideInterface(mappings int) time.Duration {
	m = m.orDefault()
	return duration(m.message + float64(mappings)*m.receive)
}

// Write returns the time for writing the rules of an access list that no interface has.
func (m Model) Write(rules int) time.Duration {
	m = m.orDefault()
	return duration(m.message + float64(rules)*m.write)
}

// Replace returns the time for changing the number of rules of an access list that contexts have. at is its index in each context.
func (m Model) Replace(rules int, contexts []Context, at []int) time.Duration {
	m = m.orDefault()
	ns := m.message + float64(rules)*m.write
	for i, c := range contexts {
		ns += m.replace(c, at[i], rules)
	}
	return duration(ns)
}

// replace returns the time of hash_acl_delete and then hash_acl_add for one context (hash_lookup.c).
func (m Model) replace(c Context, at, rules int) float64 {
	all, before, old := c.Rules(), c.size(at), c[at]
	ns := 2*float64(len(c)-at)*m.list + float64(old)*m.unapply + float64(all-before-old)*m.move + float64(all-old)*m.remake
	after := all - old
	for i := len(c) - 1; i > at; i-- {
		after -= c[i]
		ns += float64(c[i])*m.unapply + float64(after)*m.remake
	}
	after += rules
	ns += float64(rules)*m.apply + float64(after)*m.remake
	for _, n := range c[at+1:] {
		after += n
		ns += float64(n)*m.apply + float64(after)*m.remake
	}
	return ns
}

// Switch returns the time for changing the access lists of an interface, input and output: VPP removes all and applies all, in
// both directions, regardless of common lists.
func (m Model) Switch(before, after [2]Context) time.Duration {
	m = m.orDefault()
	ns := m.message
	for dir := range before {
		b, a := before[dir], after[dir]
		ns += float64(len(b)+len(a)) * m.list
		if (len(b) == 0) != (len(a) == 0) {
			ns += m.enable
		}
		for i, n := range b {
			ns += float64(n)*m.unapply + float64(b.size(i))*m.remake
		}
		for i, n := range a {
			ns += float64(n)*m.apply + float64(a.size(i+1))*m.remake
		}
	}
	return duration(ns)
}

func duration(ns float64) time.Duration { return time.Duration(ns) }

// Times returns a model in which every operation takes the given multiple of the time.
func (m Model) Times(factor float64) Model {
	m = m.orDefault()
	for _, ns := range []*float64{&m.write, &m.apply, &m.unapply, &m.move, &m.remake, &m.list, &m.enable, &m.walk, &m.end, &m.receive, &m.message} {
		*ns *= factor
	}
	named := make(map[string]float64, len(m.named))
	for name, ns := range m.named {
		named[name] = ns * factor
	}
	m.named = named
	return m
}
