package calc

import (
	"cmp"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/calc/labelindex"
	"github.com/contiv-agent/contiv-agent/calc/rulebook"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/selector"
)

// policyKey names a policy on the wire.
type policyKey struct{ tier, name string }

func (k policyKey) compare(o policyKey) int {
	return cmp.Or(strings.Compare(k.tier, o.tier), strings.Compare(k.name, o.name))
}

// policy is a policy and its state in the data plane.
type policy struct {
	*policyText                    // as it is now
	sent        *policyText        // as the data plane has it; nil if it does not
	selector    *selector.Selector // nil if the policy was deleted
	sets        []*ipset           // sets that it holds
	matches     int                // number of local endpoints it applies to
	handle      uint32             // the number of its selector in the index of local endpoints
	closed      bool               // send it as a policy that denies everything
	sentClosed  bool               // sent is closed
}

// policyText is one version of a policy.
type policyText struct {
	object model.Policy // without its rules
	rules  rulebook.Rulebook
	name   string // the name on Felix's wire
}

func (t *policyText) policyKey() policyKey { return policyKey{t.object.Tier, t.name} }

// needed reports whether the data plane must have the policy.
func (p *policy) needed() bool {
	return p.selector != nil && (p.matches > 0 || p.object.Everywhere)
}

// tier is a tier's object, if it has one, and the tier's policies.
type tier struct {
	object   *model.Tier
	policies map[*policy]bool
}

// profile is a profile and its state in the data plane.
type profile struct {
	object *model.Profile
	users  int // number of local endpoints that name it
	sent   *felix.Profile
	sets   []*ipset
}

// policies finds the policies and profiles that are active on this node, and converts their rules.
type policies struct {
	sets      *sets
	scan      scanner      // scratch
	unpacked  []model.Rule // scratch
	packed    []byte       // scratch
	selectors selectorCache
	local     *labelindex.Index // local endpoints × policies' selectors
	byID      map[model.PolicyID]*policy
	byHandle  []*policy
	handles   labelindex.Handles
	onWire    map[policyKey]*policy
	tiers     map[string]*tier
	profiles  map[string]*profile
	dirty     map[model.PolicyID]*policy
	dirtyProf map[string]struct{}
	notes     map[model.Ref][]model.Note
	// epoch counts changes of policies and tiers that change endpoints' tiers although the same policies match.
	epoch uint64
	// stale is called with each local endpoint (by number) whose tiers may have changed.
	stale func(endpoint uint32)
}

func newPolicies(s *sets) *policies {
	x := &policies{
		sets: s, local: labelindex.New(), byID: map[model.PolicyID]*policy{}, onWire: map[policyKey]*policy{},
		tiers: map[string]*tier{}, profiles: map[string]*profile{}, dirty: map[model.PolicyID]*policy{},
		dirtyProf: map[string]struct{}{}, notes: map[model.Ref][]model.Note{},
	}
	x.scan.selectors, x.scan.known = &x.selectors, s.byID
	return x
}

// setPolicy puts a policy, or removes it if object is nil.
func (x *policies) setPolicy(id model.PolicyID, object *model.Policy) {
	p := x.byID[id]
	switch {
	case p == nil && object == nil:
		return
	case p == nil:
		p = &policy{handle: x.handles.Assign()}
		for int(p.handle) >= len(x.byHandle) {
			x.byHandle = append(x.byHandle, nil)
		}
		x.byHandle[p.handle] = p
		x.byID[id] = p
	}
	x.dirty[id] = p
	known := p.selector != nil
	if known && (object == nil || p.object.Tier != object.Tier) {
		x.leaveTier(p, p.object.Tier)
	}
	if object == nil {
		x.setSelector(p, nil)
		return
	}
	if !known || p.object.Tier != object.Tier {
		x.tier(object.Tier).policies[p] = true
	}
	old := p.policyText
	p.policyText = &policyText{*object, rulebook.Pack(object.InboundRules, object.OutboundRules, &x.packed), object.FelixName()}
	p.object.ID, p.object.InboundRules, p.object.OutboundRules = id, nil, nil
	sel, _ := x.selectorOf(object)
	x.setSelector(p, sel)
	if old != nil && !sameMetadata(old, p.policyText) { // also if the policy was removed and put again since the last flush
		x.epoch++
		x.eachEndpoint(p, x.stale)
	}
}

// selectorOf is the selector of a policy. For an invalid selector it returns the error and the widest selector it may
// have meant.
func (x *policies) selectorOf(object *model.Policy) (sel *selector.Selector, invalid string) {
	sel, err := x.selectors.parse(object.Selector)
	if err != nil {
		return widest(object.Namespace), err.Error()
	}
	return sel, ""
}

// widest is what a policy with an invalid selector applies to: every endpoint it may have meant.
func widest(namespace string) *selector.Selector {
	if namespace != "" {
		if sel, err := selector.Parse("projectcalico.org/namespace == '" + namespace + "'"); err == nil {
			return sel
		}
	}
	return selector.All()
}

// sameMetadata reports whether two versions of a policy have the same position and flags in an endpoint's tiers.
func sameMetadata(a, b *policyText) bool {
	return a.policyKey() == b.policyKey() && a.object.Order == b.object.Order &&
		a.object.Ingress == b.object.Ingress && a.object.Egress == b.object.Egress &&
		a.object.Untracked == b.object.Untracked && a.object.PreDNAT == b.object.PreDNAT &&
		a.object.ApplyOnForward == b.object.ApplyOnForward
}

// setSelector changes which endpoints a policy applies to; nil for none.
func (x *policies) setSelector(p *policy, sel *selector.Selector) {
	if p.selector != nil && sel != nil && p.selector.String() == sel.String() {
		return
	}
	if p.selector != nil {
		x.local.DropSelector(p.handle, func(ep uint32) {
			p.matches--
			x.stale(ep)
		})
	}
	p.selector = sel
	if sel != nil {
		x.local.AddSelector(p.handle, sel, func(ep uint32) {
			p.matches++
			x.stale(ep)
		})
	}
}

func (x *policies) eachEndpoint(p *policy, f func(endpoint uint32)) {
	if p.selector != nil {
		x.local.EachMatch(p.handle, f)
	}
}

// matched counts the policies that local endpoint ep began and ceased to match.
func (x *policies) matched(ep uint32, added, removed []uint32) {
	for _, h := range added {
		p := x.byHandle[h]
		if p.matches++; p.matches == 1 {
			x.dirty[p.object.ID] = p
		}
	}
	for _, h := range removed {
		p := x.byHandle[h]
		if p.matches--; p.matches == 0 {
			x.dirty[p.object.ID] = p
		}
	}
	if len(added)+len(removed) > 0 {
		x.stale(ep)
	}
}

func (x *policies) tier(name string) *tier {
	t := x.tiers[name]
	if t == nil {
		t = &tier{policies: map[*policy]bool{}}
		x.tiers[name] = t
	}
	return t
}

func (x *policies) leaveTier(p *policy, name string) {
	t := x.tiers[name]
	delete(t.policies, p)
	x.dropTier(name, t)
}

func (x *policies) dropTier(name string, t *tier) {
	if t.object == nil && len(t.policies) == 0 {
		delete(x.tiers, name)
	}
}

// setTier puts a tier, or removes it if object is nil.
func (x *policies) setTier(name string, object *model.Tier) {
	t := x.tier(name)
	if t.object == nil || object == nil || *t.object != *object {
		t.object = object
		x.epoch++
		for p := range t.policies {
			x.eachEndpoint(p, x.stale)
		}
	}
	x.dropTier(name, t)
}

func (x *policies) profile(name string) *profile {
	p := x.profiles[name]
	if p == nil {
		p = &profile{}
		x.profiles[name] = p
	}
	return p
}

// setProfile puts a profile, or removes it if object is nil.
func (x *policies) setProfile(name string, object *model.Profile) {
	x.profile(name).object = object
	x.dirtyProf[name] = struct{}{}
	labels := map[string]string(nil)
	if object != nil {
		labels = object.Labels
	}
	x.local.SetParent(name, labels, object != nil, x.matched)
	x.sets.setParent(name, labels, object != nil)
}

// useProfiles counts the profiles that a local endpoint names now, and uncounts those it named before.
func (x *policies) useProfiles(now, before []string) {
	for _, name := range now {
		x.profile(name).users++
		x.dirtyProf[name] = struct{}{}
	}
	for _, name := range before {
		x.profile(name).users--
		x.dirtyProf[name] = struct{}{}
	}
}

// flushAll converts what changed. The removes must be sent after the endpoints.
func (x *policies) flushAll() (updates, removes []*felix.ToDataplane) {
	updates, removes = x.flushPolicies()
	more, gone := x.flushProfiles()
	// Removals are in reverse order: profiles were added last.
	return append(updates, more...), append(gone, removes...)
}

func (x *policies) flushPolicies() (updates, removes []*felix.ToDataplane) {
	var removed []policyKey
	changed := make([]*policy, 0, len(x.dirty))
	for _, p := range x.dirty {
		changed = append(changed, p)
	}
	slices.SortFunc(changed, func(a, b *policy) int { return a.object.ID.Compare(b.object.ID) })
	for _, p := range changed {
		update, left := x.flushPolicy(p)
		if update != nil {
			updates = append(updates, update)
		}
		if left != (policyKey{}) {
			removed = append(removed, left)
		}
	}
	clear(x.dirty)
	slices.SortFunc(removed, policyKey.compare)
	for _, key := range slices.Compact(removed) {
		if x.onWire[key] == nil {
			removes = append(removes, policyRemove(key))
		}
	}
	return updates, removes
}
