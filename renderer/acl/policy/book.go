package policy

import (
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Book has the policies and profiles that Felix sent, as they were read. It records which of them changed.
type Book struct {
	policies map[ID]*rules
	profiles map[string]*rules
	reader   reader
	naming   int // number of policies and profiles whose ingress rules name served ports
	// Changed since the last call of Settled.
	newPolicies map[ID]struct{}
	newProfiles map[string]struct{}
}

// NewBook returns a book without policies.
func NewBook() *Book {
	return &Book{policies: map[ID]*rules{}, profiles: map[string]*rules{}, newPolicies: map[ID]struct{}{}, newProfiles: map[string]struct{}{}}
}

// OnUpdate takes the payload of a message about a policy or a profile, and reads the rules. It reports whether the ports changed that ingress
// rules name.
func (b *Book) OnUpdate(payload any) (ports bool) {
	switch m := payload.(type) {
	case *felix.ToDataplane_ActivePolicyUpdate:
		id := ID{m.ActivePolicyUpdate.GetId().GetTier(), m.ActivePolicyUpdate.GetId().GetName()}
		p, cause := m.ActivePolicyUpdate.GetPolicy(), dataplane.Cause{Kind: dataplane.CauseRule, Tier: id.Tier, Policy: id.Name}
		return b.replacePolicy(id, b.reader.readRules("p\x00"+id.Tier+"\x00"+id.Name, p.GetInboundRules(), p.GetOutboundRules(), cause, b.policies[id]))
	case *felix.ToDataplane_ActivePolicyRemove:
		return b.replacePolicy(ID{m.ActivePolicyRemove.GetId().GetTier(), m.ActivePolicyRemove.GetId().GetName()}, nil)
	case *felix.ToDataplane_ActiveProfileUpdate:
		name, p := m.ActiveProfileUpdate.GetId().GetName(), m.ActiveProfileUpdate.GetProfile()
		cause := dataplane.Cause{Kind: dataplane.CauseProfileRule, Profile: name}
		return b.replaceProfile(name, b.reader.readRules("f\x00"+name, p.GetInboundRules(), p.GetOutboundRules(), cause, b.profiles[name]))
	case *felix.ToDataplane_ActiveProfileRemove:
		return b.replaceProfile(m.ActiveProfileRemove.GetId().GetName(), nil)
	}
	return false
}

// replacePolicy replaces the rules of a policy; nil: none. It reports whether the named ports changed.
func (b *Book) replacePolicy(id ID, now *rules) (ports bool) {
	ports = b.countPorts(b.policies[id], now)
	b.newPolicies[id] = struct{}{}
	if b.policies[id] = now; now == nil {
		delete(b.policies, id)
	}
	return ports
}

// replaceProfile replaces the rules of a profile; nil: none. It reports whether the named ports changed.
func (b *Book) replaceProfile(name string, now *rules) (ports bool) {
	ports = b.countPorts(b.profiles[name], now)
	b.newProfiles[name] = struct{}{}
	if b.profiles[name] = now; now == nil {
		delete(b.profiles, name)
	}
	return ports
}

// countPorts counts rules that name served ports, and reports whether the ports differ; nil: none.
func (b *Book) countPorts(before, now *rules) bool {
	var keys [2]string
	for i, p := range [2]*rules{before, now} {
		if p == nil || p.served == nil {
			continue
		}
		keys[i] = p.served.Key()
		b.naming += 2*i - 1
	}
	return keys[0] != keys[1]
}

// Served returns the ports of TCP and UDP that the ingress rules of a spec's policies and profiles name.
func (b *Book) Served(s *Spec) (tcp, udp []match.Span) {
	if b.naming == 0 {
		return nil, nil
	}
	join := func(p *rules) {
		if p != nil && p.served != nil {
			tcp, udp = append(tcp, p.served.Of(match.TCP)...), append(udp, p.served.Of(match.UDP)...)
		}
	}
	s.Each(func(id ID) { join(b.policies[id]) }, func(name string) { join(b.profiles[name]) })
	return tcp, udp
}

// Changed reports whether a policy or profile changed.
func (b *Book) Changed() bool { return len(b.newPolicies)+len(b.newProfiles) > 0 }

// EachChanged calls f for each policy that changed and g for each profile, with what is not understood in their rules.
func (b *Book) EachChanged(f func(id ID, problems []string), g func(profile string, problems []string)) {
	for id := range b.newPolicies {
		f(id, b.policies[id].unread())
	}
	for name := range b.newProfiles {
		g(name, b.profiles[name].unread())
	}
}

// unread returns what is not understood in rules; nil: there are none.
func (r *rules) unread() []string {
	if r == nil {
		return nil
	}
	return r.problems
}

// Settled forgets which policies and profiles changed.
func (b *Book) Settled() {
	clear(b.newPolicies)
	clear(b.newProfiles)
}
