package calc

import (
	"cmp"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// tierShare is the tiers of all endpoints with the same policies. They are sorted and stored once.
type tierShare struct {
	matches []uint32
	epoch   uint64
	lists   tierLists
	hash    uint64
	users   int
}

// share returns the tiers of a local endpoint, and counts one user more.
func (x *endpoints) share(handle uint32) *tierShare {
	matches := x.policies.local.Matches(handle)
	hash := uint64(14695981039346656037) // FNV-1a, a word at a time
	for _, m := range matches {
		hash = (hash ^ uint64(m)) * 1099511628211
	}
	for _, s := range x.shared[hash] {
		if s.epoch == x.policies.epoch && slices.Equal(s.matches, matches) {
			s.users++
			return s
		}
	}
	s := &tierShare{
		matches: slices.Clone(matches), epoch: x.policies.epoch, lists: tiersOf(x.ordered(matches)), hash: hash, users: 1,
	}
	x.shared[hash] = append(x.shared[hash], s)
	return s
}

// unshare counts one user less.
func (x *endpoints) unshare(s *tierShare) {
	if s == nil {
		return
	}
	if s.users--; s.users > 0 {
		return
	}
	if left := slices.DeleteFunc(x.shared[s.hash], func(o *tierShare) bool { return o == s }); len(left) > 0 {
		x.shared[s.hash] = left
	} else {
		delete(x.shared, s.hash)
	}
}

// tierPolicies is one tier with those of its policies that apply to an endpoint, in order.
type tierPolicies struct {
	name     string
	object   *model.Tier // nil if the tier has no object
	policies []*policy
}

// ordered sorts the policies that apply to a local endpoint. Its cost depends on the endpoint's policies, not the
// node's.
func (x *endpoints) ordered(matches []uint32) []tierPolicies {
	list := make([]*policy, len(matches))
	for i, h := range matches {
		list[i] = x.policies.byHandle[h]
	}
	slices.SortFunc(list, x.policies.comparePolicies)
	var out []tierPolicies
	for _, p := range list {
		if n := len(out); n == 0 || out[n-1].name != p.object.Tier {
			out = append(out, tierPolicies{name: p.object.Tier, object: x.policies.tiers[p.object.Tier].object})
		}
		last := &out[len(out)-1]
		last.policies = append(last.policies, p)
	}
	return out
}

// comparePolicies sorts policies in the order of evaluation: by tier, by order, by name. A tier without an object sorts after
// those with one; no order sorts last.
func (x *policies) comparePolicies(a, b *policy) int {
	if a.object.Tier != b.object.Tier {
		return compareTiers(a.object.Tier, x.tiers[a.object.Tier].object, b.object.Tier, x.tiers[b.object.Tier].object)
	}
	return cmp.Or(a.object.Order.Compare(b.object.Order), strings.Compare(a.name, b.name), a.object.ID.Compare(b.object.ID))
}

func compareTiers(aName string, a *model.Tier, bName string, b *model.Tier) int {
	switch {
	case a == nil && b != nil:
		return 1
	case a != nil && b == nil:
		return -1
	case a != nil:
		if c := a.Order.Compare(b.Order); c != 0 {
			return c
		}
	}
	return strings.Compare(aName, bName)
}

// tierLists are an endpoint's tiers by the stage at which they are evaluated. Workloads have the normal ones only.
type tierLists struct {
	normal, untracked, preDNAT, forward []*felix.TierInfo
}

func tiersOf(tiers []tierPolicies) tierLists {
	var t tierLists
	for _, tier := range tiers {
		action := model.Action("")
		if tier.object != nil {
			action = tier.object.DefaultAction
		}
		// A later stage decides what these two stages do not: they never end in a drop.
		untracked, preDNAT := tierInfo(tier.name, model.TierPass), tierInfo(tier.name, model.TierPass)
		normal, forward := tierInfo(tier.name, action), tierInfo(tier.name, action)
		for _, p := range tier.policies {
			switch {
			case p.object.Untracked:
				list(untracked, p, true)
			case p.object.PreDNAT:
				list(preDNAT, p, false)
			default:
				list(normal, p, true)
				if p.object.ApplyOnForward {
					list(forward, p, true)
				}
			}
		}
		t.normal = appendUsed(t.normal, normal)
		t.untracked = appendUsed(t.untracked, untracked)
		t.preDNAT = appendUsed(t.preDNAT, preDNAT)
		t.forward = appendUsed(t.forward, forward)
	}
	return t
}

func tierInfo(name string, action model.Action) *felix.TierInfo {
	return &felix.TierInfo{Name: name, DefaultAction: string(action)}
}

// list adds a policy to the directions it governs. A policy that names no direction governs both.
func list(info *felix.TierInfo, p *policy, egress bool) {
	both := !p.object.Ingress && !p.object.Egress
	if p.object.Ingress || both {
		info.IngressPolicies = append(info.IngressPolicies, p.name)
	}
	if egress && (p.object.Egress || both) {
		info.EgressPolicies = append(info.EgressPolicies, p.name)
	}
}

func appendUsed(tiers []*felix.TierInfo, t *felix.TierInfo) []*felix.TierInfo {
	if len(t.IngressPolicies)+len(t.EgressPolicies) == 0 {
		return tiers
	}
	return append(tiers, t)
}
