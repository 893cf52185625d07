package policy

import (
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// Apply handles one change of an object; kinds that do not concern policies change nothing. The remaining parts of a refused policy
// take the policy's place.
func (p *Processor) Apply(ch event.Change) {
	if p.stream != nil { // the external calculation graph handles them
		return
	}
	switch ch.Ref.Kind {
	case model.KindPod:
		pod, _ := ch.Object.(*model.Pod)
		p.setPod(model.PodID{Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}, pod)
	case model.KindNamespace, model.KindServiceAccount:
		p.setParent(ch)
	case model.KindEndpointSlice:
		slice, _ := ch.Object.(*model.EndpointSlice)
		p.graph.SetSlice(model.SliceID{Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}, slice)
	case model.KindNode:
		p.setNode(ch)
	case model.KindTier:
		p.setTier(ch)
	default:
		p.setItem(ch)
	}
}

func (p *Processor) setNode(ch event.Change) {
	name := model.NodeSetName(ch.Ref.Name)
	before := p.ranges[ch.Ref.Name]
	p.setPeer(ch)
	if node, _ := ch.Object.(*model.Node); node != nil {
		p.graph.SetNetworkSet(name, model.NodeSet(node))
		p.ranges[ch.Ref.Name] = node.PodCIDRs
		if !slices.Equal(before, node.PodCIDRs) {
			p.rangesMoved(ch.Ref.Name)
		}
		return
	}
	delete(p.ranges, ch.Ref.Name)
	if len(before) > 0 {
		p.rangesMoved(ch.Ref.Name)
	}
	p.graph.SetNetworkSet(name, nil)
}

// setTier stores a tier. Without an object it restores the built-in tier of that name, if one exists.
func (p *Processor) setTier(ch event.Change) {
	tier, _ := ch.Object.(*model.Tier)
	if tier == nil {
		list := model.BuiltinTiers()
		if at := slices.IndexFunc(list, func(t *model.Tier) bool { return t.Name == ch.Ref.Name }); at >= 0 {
			tier = list[at]
		}
	}
	p.graph.SetTier(ch.Ref.Name, tier)
}

// setItem stores an object whose name on the graph may change while its Ref stays the same, or whose kind alone identifies it.
func (p *Processor) setItem(ch event.Change) {
	old, now := p.items[ch.Ref], ch.Object
	switch now.(type) {
	case *model.Policy, *model.Profile, *model.NetworkSet, *model.HostEndpoint:
		p.items[ch.Ref] = now
	default:
		now = nil
		delete(p.items, ch.Ref)
	}
	if gone := identity(old); gone != nil && gone != identity(now) {
		p.give(gone, nil)
	}
	if now != nil {
		p.give(identity(now), now)
	}
	p.use(parentsOf(now), parentsOf(old))
}

// identity returns the name of an object on the graph; nil for no object.
func identity(o model.Object) any {
	switch o := o.(type) {
	case *model.Policy:
		return o.ID
	case *model.Profile:
		return profileName(o.Name)
	case *model.NetworkSet:
		return setName(o.Name)
	case *model.HostEndpoint:
		return o.ID
	}
	return nil
}

type (
	profileName string
	setName     string
)

// give adds an object to the graph under its name; nil removes it.
func (p *Processor) give(name any, o model.Object) {
	switch name := name.(type) {
	case model.PolicyID:
		obj, _ := o.(*model.Policy)
		if obj != nil && !obj.Listed() {
			obj = nil
		}
		p.gate.SetPolicy(name, obj)
		p.graph.SetPolicy(name, obj)
	case profileName:
		obj, _ := o.(*model.Profile)
		if obj == nil && name == profileAllow {
			obj = allowing()
		}
		p.graph.SetProfile(string(name), obj)
	case setName:
		obj, _ := o.(*model.NetworkSet)
		p.graph.SetNetworkSet(string(name), obj)
	case model.HostEndpointID:
		obj, _ := o.(*model.HostEndpoint)
		p.graph.SetHostEndpoint(name, obj)
	}
}

// parentsOf returns the profiles from which an object of setItem inherits labels.
func parentsOf(o model.Object) []string {
	if set, ok := o.(*model.NetworkSet); ok {
		return set.Profiles
	}
	return nil
}

// setPod stores a pod; nil removes it.
func (p *Processor) setPod(id model.PodID, pod *model.Pod) {
	old := p.pods[id]
	if !hasEndpoint(pod) {
		pod = nil
	}
	if old != nil && (pod == nil || pod.NodeName != old.NodeName) {
		p.graph.SetWorkload(workloadID(old), nil)
	}
	if pod == nil {
		delete(p.pods, id)
	} else {
		p.pods[id] = pod
		p.graph.SetWorkload(workloadID(pod), workload(pod))
	}
	p.place(id, old, pod)
	var was, now []string
	if old != nil {
		was = profilesOf(old)
	}
	if pod != nil {
		now = profilesOf(pod)
	}
	p.use(now, was)
}

// place records the local pods, and those of them that have no address yet.
func (p *Processor) place(id model.PodID, old, pod *model.Pod) {
	wasLocal := old != nil && old.NodeName == p.cfg.NodeName
	isLocal := pod != nil && pod.NodeName == p.cfg.NodeName
	if isLocal {
		p.local[id] = pod
	} else {
		delete(p.local, id)
	}
	if p.stray(id, pod) {
		p.nodeDirty = true
	}
	_, wasNew := p.unborn[id]
	isNew := isLocal && len(pod.IPs) == 0
	if isNew {
		p.unborn[id] = struct{}{}
	} else {
		delete(p.unborn, id)
	}
	p.askAgain = p.askAgain || wasNew != isNew
	p.nodeDirty = p.nodeDirty || wasLocal != isLocal || isLocal && wasLocal &&
		(!slices.Equal(old.IPs, pod.IPs) || !slices.Equal(old.ContainerPorts, pod.ContainerPorts) || !slices.Equal(old.Ports, pod.Ports))
}

func (p *Processor) parent(profile string) *parent {
	at := p.parents[profile]
	if at == nil {
		at = &parent{}
		p.parents[profile] = at
	}
	return at
}

func (p *Processor) setParent(ch event.Change) {
	profile := namespaceProfile + ch.Ref.Name
	if ch.Ref.Kind == model.KindServiceAccount {
		profile = accountProfile + ch.Ref.Namespace + "." + ch.Ref.Name
	}
	at := p.parent(profile)
	at.object, at.refused = ch.Object, ch.Err != nil
	p.settleProfile(profile, at)
}

// use counts the users of the profiles of namespaces and service accounts.
func (p *Processor) use(now, before []string) {
	if slices.Equal(now, before) {
		return
	}
	count := func(profiles []string, by int) {
		for _, name := range profiles {
			if !strings.HasPrefix(name, namespaceProfile) && !strings.HasPrefix(name, accountProfile) {
				continue
			}
			at := p.parent(name)
			had := at.users > 0
			if at.users += by; had != (at.users > 0) {
				p.settleProfile(name, at)
			}
		}
	}
	count(now, 1)
	count(before, -1)
}

// settleProfile puts the present form of the profile on the graph.
func (p *Processor) settleProfile(name string, at *parent) {
	if at.users == 0 && at.object == nil && !at.refused {
		delete(p.parents, name)
		p.graph.SetProfile(name, nil)
		return
	}
	p.graph.SetProfile(name, at.profile(name))
}

func (at *parent) profile(name string) *model.Profile {
	var labels map[string]string
	switch o := at.object.(type) {
	case *model.Namespace:
		labels = o.Labels
	case *model.ServiceAccount:
		labels = o.Labels
	}
	var out *model.Profile
	if ns, sa, ok := model.ProfileServiceAccount(name); ok {
		out = account(ns, sa, labels)
	} else {
		ns, _ := model.ProfileNamespace(name)
		out = namespace(ns, labels)
	}
	if at.refused {
		out.Rules = nil
	}
	return out
}
