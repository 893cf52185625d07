// Package mirror turns Felix's dataplane messages into the state of a dataplane driver after them, and reports messages
// that no driver could carry out. It is for tests. Invariant: two streams that describe the same state give the same
// dump, whatever their order.
package mirror

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Mirror is a dataplane driver that only records, and reports what a driver could not do.
type Mirror struct {
	Things   map[string]proto.Message   // everything but sets, by kind and identifier: "ActivePolicy tier:..."
	Sets     map[string]map[string]bool // members of each IP set
	InSyncs  int                        // number of InSync messages
	Problems []string                   // messages no driver could carry out, since the last Check

	kinds map[string]felix.IPSetUpdate_IPSetType
}

// New returns the state before the first message.
func New() *Mirror {
	return &Mirror{
		Things: map[string]proto.Message{}, Sets: map[string]map[string]bool{},
		kinds: map[string]felix.IPSetUpdate_IPSetType{},
	}
}

func (m *Mirror) addProblem(format string, args ...any) {
	m.Problems = append(m.Problems, fmt.Sprintf(format, args...))
}

// Apply applies messages one by one. If strict, it checks after every message that everything referred to exists.
func (m *Mirror) Apply(messages []*felix.ToDataplane, strict bool) {
	for _, msg := range messages {
		m.one(msg)
		if strict {
			m.references(msg)
		}
	}
}

func (m *Mirror) one(msg *felix.ToDataplane) {
	switch p := msg.Payload.(type) {
	case *felix.ToDataplane_InSync:
		m.InSyncs++
	case *felix.ToDataplane_IpsetUpdate:
		u := p.IpsetUpdate
		set := map[string]bool{}
		for _, text := range u.Members {
			if set[text] {
				m.addProblem("set %s: member %s twice", u.Id, text)
			}
			set[text] = true
		}
		m.Sets[u.Id], m.kinds[u.Id] = set, u.Type
	case *felix.ToDataplane_IpsetDeltaUpdate:
		m.delta(p.IpsetDeltaUpdate)
	case *felix.ToDataplane_IpsetRemove:
		if m.Sets[p.IpsetRemove.Id] == nil {
			m.addProblem("removal of unknown set %s", p.IpsetRemove.Id)
		}
		delete(m.Sets, p.IpsetRemove.Id)
		delete(m.kinds, p.IpsetRemove.Id)
	default:
		m.thing(msg)
	}
}

func (m *Mirror) delta(d *felix.IPSetDeltaUpdate) {
	set := m.Sets[d.Id]
	if set == nil {
		m.addProblem("delta for unknown set %s", d.Id)
		return
	}
	if len(d.AddedMembers)+len(d.RemovedMembers) == 0 {
		m.addProblem("empty delta for %s", d.Id)
	}
	for _, text := range d.AddedMembers {
		if set[text] {
			m.addProblem("set %s: %s added again", d.Id, text)
		}
		set[text] = true
	}
	for _, text := range d.RemovedMembers {
		if !set[text] {
			m.addProblem("set %s: %s removed, but not in the set", d.Id, text)
		}
		delete(set, text)
	}
}

// thing applies updates and removes of everything that is a value under a key. The kind is the message's name, the key
// its first identifying field.
func (m *Mirror) thing(msg *felix.ToDataplane) {
	payload := msg.ProtoReflect()
	field := payload.WhichOneof(payload.Descriptor().Oneofs().ByName("payload"))
	body := payload.Get(field).Message()
	name := string(body.Descriptor().Name())
	if kind, ok := strings.CutSuffix(name, "Remove"); ok {
		key := kind + " " + keyOf(body)
		if m.Things[key] == nil {
			m.addProblem("removal of unknown %s", key)
		}
		delete(m.Things, key)
		return
	}
	kind := strings.TrimSuffix(name, "Update")
	value := proto.Clone(body.Interface())
	key := kind + " " + keyOf(body)
	if old := m.Things[key]; old != nil && proto.Equal(old, value) {
		m.addProblem("%s sent again unchanged", key)
	}
	m.Things[key] = value
}

// keyOf is the identifier in a message.
func keyOf(body protoreflect.Message) string {
	fields := body.Descriptor().Fields()
	for _, name := range []protoreflect.Name{"id", "dst", "node", "hostname"} {
		if f := fields.ByName(name); f != nil {
			if f.Kind() == protoreflect.MessageKind {
				return Text(body.Get(f).Message().Interface())
			}
			return body.Get(f).String()
		}
	}
	if ns, name := fields.ByName("namespace"), fields.ByName("name"); ns != nil && name != nil {
		return body.Get(ns).String() + "/" + body.Get(name).String()
	}
	return ""
}

// Text is an identifier as in the keys of Things. It is stable within a process only.
func Text(id proto.Message) string { return prototext.MarshalOptions{}.Format(id) }

// normalize removes what is not compared: rule identifiers, hints, origins of configuration, and spellings.
func normalize(value proto.Message) {
	switch v := value.(type) {
	case *felix.ConfigUpdate:
		v.SourceToRawConfig = nil
		// Felix sends no change when a parameter changes between absent and its default; the recorded data has this
		// one.
		if v.Config["InterfacePrefix"] == "cali" {
			delete(v.Config, "InterfacePrefix")
		}
	case *felix.ActivePolicyUpdate:
		v.Policy.PerfHints = nil
		stripRules(v.Policy.InboundRules, v.Policy.OutboundRules)
	case *felix.ActiveProfileUpdate:
		stripRules(v.Profile.InboundRules, v.Profile.OutboundRules)
	case *felix.VXLANTunnelEndpointUpdate:
		if a, err := netip.ParseAddr(v.Ipv6Addr); err == nil {
			v.Ipv6Addr = a.String()
		}
	}
}

func stripRules(lists ...[]*felix.Rule) {
	for _, rules := range lists {
		for _, r := range rules {
			r.RuleId = ""
		}
	}
}

// references checks that everything referred to exists.
func (m *Mirror) references(msg *felix.ToDataplane) {
	if d := msg.GetIpsetDeltaUpdate(); d != nil {
		return
	}
	for key, value := range m.Things {
		switch v := value.(type) {
		case *felix.ActivePolicyUpdate:
			m.checkRuleSets(key, v.Policy.InboundRules, v.Policy.OutboundRules)
		case *felix.ActiveProfileUpdate:
			m.checkRuleSets(key, v.Profile.InboundRules, v.Profile.OutboundRules)
		case *felix.WorkloadEndpointUpdate:
			m.endpoint(key, v.Endpoint.ProfileIds, v.Endpoint.Tiers)
		case *felix.HostEndpointUpdate:
			e := v.Endpoint
			m.endpoint(key, e.ProfileIds, e.Tiers, e.UntrackedTiers, e.PreDnatTiers, e.ForwardTiers)
		}
	}
}

func (m *Mirror) checkRuleSets(key string, lists ...[]*felix.Rule) {
	for _, r := range slices.Concat(lists...) {
		for _, ids := range [][]string{
			r.SrcIpSetIds, r.DstIpSetIds, r.NotSrcIpSetIds, r.NotDstIpSetIds, r.DstIpPortSetIds, r.SrcNamedPortIpSetIds,
			r.DstNamedPortIpSetIds, r.NotSrcNamedPortIpSetIds, r.NotDstNamedPortIpSetIds,
		} {
			for _, id := range ids {
				if m.Sets[id] == nil {
					m.addProblem("%s names set %s, which does not exist", key, id)
				}
			}
		}
	}
}

func (m *Mirror) endpoint(key string, profiles []string, tiers ...[]*felix.TierInfo) {
	for _, name := range profiles {
		if m.Things["ActiveProfile "+Text(&felix.ProfileID{Name: name})] == nil {
			m.addProblem("%s names profile %s, which does not exist", key, name)
		}
	}
	for _, t := range slices.Concat(tiers...) {
		for _, name := range slices.Concat(t.IngressPolicies, t.EgressPolicies) {
			id := Text(&felix.PolicyID{Tier: t.Name, Name: name})
			if m.Things["ActivePolicy "+id] == nil {
				m.addProblem("%s names policy %s, which does not exist", key, id)
			}
		}
	}
}

// Dump is the state, one line per thing.
func (m *Mirror) Dump() []string {
	var out []string
	for id, set := range m.Sets {
		members := slices.Sorted(maps.Keys(set))
		out = append(out, fmt.Sprintf("set %s %v %v", id, m.kinds[id], members))
	}
	for key, value := range m.Things {
		value = proto.Clone(value)
		normalize(value)
		// The text form is unstable on purpose (spaces); it only needs to be the same within a process.
		out = append(out, key+" => "+Text(value))
	}
	slices.Sort(out)
	return out
}

// Check reports the problems since the last Check as test failures; what names the place.
func (m *Mirror) Check(t testing.TB, what string) {
	t.Helper()
	for i, p := range m.Problems {
		if i == 5 {
			t.Errorf("%s: %d more problems", what, len(m.Problems)-i)
			break
		}
		t.Errorf("%s: %s", what, p)
	}
	m.Problems = nil
}
