package calc_test

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

// mirror is a dataplane driver that only remembers, and complains about whatever a driver could not do.
type mirror struct {
	things   map[string]proto.Message // by kind and identifier
	sets     map[string]map[string]bool
	kinds    map[string]felix.IPSetUpdate_IPSetType
	inSync   int
	problems []string
}

func newMirror() *mirror {
	return &mirror{
		things: map[string]proto.Message{}, sets: map[string]map[string]bool{},
		kinds: map[string]felix.IPSetUpdate_IPSetType{},
	}
}

func (m *mirror) fail(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

// apply takes messages one by one. Strict, it checks that everything a message needs is there, at every message.
func (m *mirror) apply(messages []*felix.ToDataplane, strict bool) {
	for _, msg := range messages {
		m.one(msg)
		if strict {
			m.references(msg)
		}
	}
}

func (m *mirror) one(msg *felix.ToDataplane) {
	switch p := msg.Payload.(type) {
	case *felix.ToDataplane_InSync:
		m.inSync++
	case *felix.ToDataplane_IpsetUpdate:
		u := p.IpsetUpdate
		set := map[string]bool{}
		for _, text := range u.Members {
			if set[text] {
				m.fail("set %s: member %s twice", u.Id, text)
			}
			set[text] = true
		}
		m.sets[u.Id], m.kinds[u.Id] = set, u.Type
	case *felix.ToDataplane_IpsetDeltaUpdate:
		m.delta(p.IpsetDeltaUpdate)
	case *felix.ToDataplane_IpsetRemove:
		if m.sets[p.IpsetRemove.Id] == nil {
			m.fail("removal of unknown set %s", p.IpsetRemove.Id)
		}
		delete(m.sets, p.IpsetRemove.Id)
		delete(m.kinds, p.IpsetRemove.Id)
	default:
		m.thing(msg)
	}
}

func (m *mirror) delta(d *felix.IPSetDeltaUpdate) {
	set := m.sets[d.Id]
	if set == nil {
		m.fail("delta for unknown set %s", d.Id)
		return
	}
	if len(d.AddedMembers)+len(d.RemovedMembers) == 0 {
		m.fail("empty delta for %s", d.Id)
	}
	for _, text := range d.AddedMembers {
		if set[text] {
			m.fail("set %s: %s added again", d.Id, text)
		}
		set[text] = true
	}
	for _, text := range d.RemovedMembers {
		if !set[text] {
			m.fail("set %s: %s removed but not there", d.Id, text)
		}
		delete(set, text)
	}
}

// thing takes updates and removes of everything that is a value under a key: the kind is the message's name, the key
// its first field that says which one.
func (m *mirror) thing(msg *felix.ToDataplane) {
	payload := msg.ProtoReflect()
	field := payload.WhichOneof(payload.Descriptor().Oneofs().ByName("payload"))
	body := payload.Get(field).Message()
	name := string(body.Descriptor().Name())
	if kind, ok := strings.CutSuffix(name, "Remove"); ok {
		key := kind + " " + keyOf(body)
		if m.things[key] == nil {
			m.fail("removal of unknown %s", key)
		}
		delete(m.things, key)
		return
	}
	kind := strings.TrimSuffix(name, "Update")
	value := proto.Clone(body.Interface())
	key := kind + " " + keyOf(body)
	if old := m.things[key]; old != nil && proto.Equal(old, value) {
		m.fail("%s sent again unchanged", key)
	}
	m.things[key] = value
}

func keyOf(body protoreflect.Message) string {
	for _, name := range []protoreflect.Name{"id", "dst", "node", "hostname"} {
		if f := body.Descriptor().Fields().ByName(name); f != nil {
			if f.Kind() == protoreflect.MessageKind {
				return prototext.MarshalOptions{}.Format(body.Get(f).Message().Interface())
			}
			return body.Get(f).String()
		}
	}
	return ""
}

// normalize takes away what is not compared: rule identifiers, hints, where configuration came from; and spellings.
func normalize(value proto.Message) {
	switch v := value.(type) {
	case *felix.ConfigUpdate:
		v.SourceToRawConfig = nil
		// Felix does not tell when a parameter changes between absence and its default; this one is in the data.
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

// references checks that nothing there refers to what is not there.
func (m *mirror) references(msg *felix.ToDataplane) {
	if d := msg.GetIpsetDeltaUpdate(); d != nil {
		return
	}
	for key, value := range m.things {
		switch v := value.(type) {
		case *felix.ActivePolicyUpdate:
			m.rules(key, v.Policy.InboundRules, v.Policy.OutboundRules)
		case *felix.ActiveProfileUpdate:
			m.rules(key, v.Profile.InboundRules, v.Profile.OutboundRules)
		case *felix.WorkloadEndpointUpdate:
			m.endpoint(key, v.Endpoint.ProfileIds, v.Endpoint.Tiers)
		case *felix.HostEndpointUpdate:
			e := v.Endpoint
			m.endpoint(key, e.ProfileIds, e.Tiers, e.UntrackedTiers, e.PreDnatTiers, e.ForwardTiers)
		}
	}
}

func (m *mirror) rules(key string, lists ...[]*felix.Rule) {
	for _, r := range slices.Concat(lists...) {
		for _, ids := range [][]string{
			r.SrcIpSetIds, r.DstIpSetIds, r.NotSrcIpSetIds, r.NotDstIpSetIds, r.DstIpPortSetIds, r.SrcNamedPortIpSetIds,
			r.DstNamedPortIpSetIds, r.NotSrcNamedPortIpSetIds, r.NotDstNamedPortIpSetIds,
		} {
			for _, id := range ids {
				if m.sets[id] == nil {
					m.fail("%s names set %s, which is not there", key, id)
				}
			}
		}
	}
}

func (m *mirror) endpoint(key string, profiles []string, tiers ...[]*felix.TierInfo) {
	for _, name := range profiles {
		if m.things["ActiveProfile "+prototext.MarshalOptions{}.Format(&felix.ProfileID{Name: name})] == nil {
			m.fail("%s names profile %s, which is not there", key, name)
		}
	}
	for _, t := range slices.Concat(tiers...) {
		for _, name := range slices.Concat(t.IngressPolicies, t.EgressPolicies) {
			id := prototext.MarshalOptions{}.Format(&felix.PolicyID{Tier: t.Name, Name: name})
			if m.things["ActivePolicy "+id] == nil {
				m.fail("%s names policy %s, which is not there", key, id)
			}
		}
	}
}

// dump is the state, one line per thing.
func (m *mirror) dump() []string {
	var out []string
	for id, set := range m.sets {
		members := slices.Sorted(maps.Keys(set))
		out = append(out, fmt.Sprintf("set %s %v %v", id, m.kinds[id], members))
	}
	for key, value := range m.things {
		value = proto.Clone(value)
		normalize(value)
		// The text form is unstable on purpose (spaces); one form per process is all that is needed here.
		out = append(out, key+" => "+prototext.MarshalOptions{}.Format(value))
	}
	slices.Sort(out)
	return out
}

func (m *mirror) check(t *testing.T, what string) {
	t.Helper()
	for i, p := range m.problems {
		if i == 5 {
			t.Errorf("%s: %d more problems", what, len(m.problems)-i)
			break
		}
		t.Errorf("%s: %s", what, p)
	}
	m.problems = nil
}
