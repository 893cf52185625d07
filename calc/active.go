package calc

import (
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// flushPolicy brings one policy up to date. It returns the message to send, if any, and the wire name the policy gave
// up, if any (another policy may have that name now).
func (x *policies) flushPolicy(p *policy) (update *felix.ToDataplane, left policyKey) {
	if p.sent != nil && (!p.needed() || p.sent.policyKey() != p.policyKey()) {
		left = p.sent.policyKey()
		if x.onWire[left] == p {
			delete(x.onWire, left)
		}
		p.sent = nil
	}
	id := p.object.ID
	if !p.needed() {
		delete(x.notes, id.Ref())
		x.swap(&p.sets, nil)
		if p.selector == nil {
			delete(x.byID, id)
			x.byHandle[p.handle] = nil
			x.handles.GiveBack(p.handle)
			x.epoch++ // another policy may get its number
		}
		return nil, left
	}
	x.onWire[p.policyKey()] = p
	if p.sent == p.policyText && p.sentClosed == p.closed {
		return nil, left // only the number of matching endpoints changed
	}
	msg := x.policyMessage(p.policyText, p.closed)
	if !p.closed { // a closed one keeps its sets: their sizes say when it may be opened again
		x.swap(&p.sets, x.scan.sets)
	}
	delete(x.notes, id.Ref())
	x.noteReasons(id.Ref(), x.scan.notes)
	known := p.sent != nil && p.sentClosed == p.closed && proto.Equal(x.policyMessage(p.sent, p.closed), msg)
	p.sent, p.sentClosed = p.policyText, p.closed
	if known {
		return nil, left
	}
	u := &felix.ActivePolicyUpdate{Id: &felix.PolicyID{Tier: p.object.Tier, Name: p.name}, Policy: msg}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: u}}, left
}

// policyMessage is a policy as the data plane gets it. If closed, it has one rule for each direction, which denies. It leaves
// the sets that the rules name, and the problems found, in x.scan.
func (x *policies) policyMessage(t *policyText, closed bool) *felix.Policy {
	x.scan.beginPolicy()
	o := &t.object
	var in, out []model.Rule
	if closed {
		in = []model.Rule{{Action: model.ActionDeny, Origin: ClosedRule}}
		out = in
	} else {
		in, out = t.rules.Unpack(&x.unpacked)
	}
	sel, invalid := x.selectorOf(o)
	if invalid != "" {
		// The endpoints it was meant for are unknown: it applies to all possible ones, and allows nothing.
		x.scan.notes = append(x.scan.notes, invalid)
		in, out = denials(in), denials(out)
	}
	msg := &felix.Policy{
		InboundRules: x.scan.scan(in), OutboundRules: x.scan.scan(out),
		Untracked: o.Untracked, PreDnat: o.PreDNAT, Namespace: o.Namespace, OriginalSelector: sel.String(),
	}
	if o.Everywhere {
		msg.PerfHints = []string{"AssumeNeededOnEveryNode"}
	}
	return msg
}

// ClosedRule is the RuleId of the only rule of a closed policy.
const ClosedRule = "rule of a refused policy"

// denials keeps the rules that deny, as scan does for rules that cannot be understood.
func denials(rules []model.Rule) (list []model.Rule) {
	for _, r := range rules {
		if r.Action.Passes() {
			r.Action = model.ActionDeny
		}
		if r.Action.Denies() {
			list = append(list, r)
		}
	}
	return list
}

func (x *policies) noteReasons(ref model.Ref, reasons []string) {
	for _, reason := range reasons {
		x.notes[ref] = append(x.notes[ref], model.Note{Ref: ref, Reason: reason, Refused: true})
	}
}

// swap acquires the sets that rules name now, then releases those they named before: a set in both lists stays.
func (x *policies) swap(held *[]*ipset, want []*ipset) {
	var next []*ipset
	if len(want) > 0 {
		next = make([]*ipset, len(want))
	}
	for i, s := range want {
		next[i] = x.sets.acquire(s)
	}
	for _, s := range *held {
		x.sets.releaseSet(s)
	}
	*held = next
}

func (x *policies) flushProfiles() (updates, removes []*felix.ToDataplane) {
	for _, name := range sortedKeys(x.dirtyProf) {
		p := x.profiles[name]
		if p == nil {
			continue
		}
		ref := model.Ref{Kind: "Profile", Name: name}
		delete(x.notes, ref)
		if p.users > 0 {
			if u := x.scanProfile(name, ref, p); u != nil {
				updates = append(updates, u)
			}
			continue
		}
		x.swap(&p.sets, nil)
		if p.sent != nil {
			p.sent = nil
			removes = append(removes, profileRemove(name))
		}
		if p.object == nil {
			delete(x.profiles, name)
		}
	}
	clear(x.dirtyProf)
	return updates, removes
}

// scanProfile converts a profile's rules. A profile without rules denies, because endpoints that name a profile depend
// on it.
func (x *policies) scanProfile(name string, ref model.Ref, p *profile) *felix.ToDataplane {
	deny := []model.Rule{{Action: model.ActionDeny}}
	in, out := deny, deny
	if p.object != nil && p.object.Rules != nil {
		in, out = p.object.Rules.Inbound, p.object.Rules.Outbound
	}
	x.scan.beginPolicy()
	msg := &felix.Profile{InboundRules: x.scan.scan(in), OutboundRules: x.scan.scan(out)}
	x.swap(&p.sets, x.scan.sets)
	x.noteReasons(ref, x.scan.notes)
	if p.sent != nil && proto.Equal(p.sent, msg) {
		return nil
	}
	p.sent = msg
	u := &felix.ActiveProfileUpdate{Id: &felix.ProfileID{Name: name}, Profile: msg}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ActiveProfileUpdate{ActiveProfileUpdate: u}}
}

func policyRemove(k policyKey) *felix.ToDataplane {
	r := &felix.ActivePolicyRemove{Id: &felix.PolicyID{Tier: k.tier, Name: k.name}}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ActivePolicyRemove{ActivePolicyRemove: r}}
}

func profileRemove(name string) *felix.ToDataplane {
	r := &felix.ActiveProfileRemove{Id: &felix.ProfileID{Name: name}}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ActiveProfileRemove{ActiveProfileRemove: r}}
}
