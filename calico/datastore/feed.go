package datastore

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/model"
)

// Profiles joins the two parts of profiles, labels and rules, which have separate keys. The zero value is empty.
type Profiles struct {
	parts map[string]profileParts
}

type profileParts struct {
	labels map[string]string
	rules  *model.ProfileRules
}

// Apply handles an update of a profile's rules, or of the resource with its labels. It returns the joined profile; nil:
// both parts are deleted. ok is false for updates of other kinds. It ignores KeyProfileLabels, whose labels repeat the
// resource's: Felix v3.31 also reads the resource.
func (x *Profiles) Apply(u Update) (name string, p *model.Profile, ok bool) {
	parts := x.parts[u.Key.Name]
	switch {
	case u.Key.Kind == KeyProfileRules:
		parts.rules, _ = u.Value.(*model.ProfileRules)
	case u.Key.Kind == KeyResource && u.Key.Type == ResourceProfiles:
		labels, _ := u.Value.(Labels)
		parts.labels = labels
	default:
		return "", nil, false
	}
	if parts.labels == nil && parts.rules == nil {
		delete(x.parts, u.Key.Name)
		return u.Key.Name, nil, true
	}
	if x.parts == nil {
		x.parts = map[string]profileParts{}
	}
	x.parts[u.Key.Name] = parts
	return u.Key.Name, &model.Profile{Name: u.Key.Name, Labels: parts.labels, Rules: parts.rules}, true
}

// Feed passes the datastore's updates to a calculation graph.
type Feed struct {
	graph    *calc.Graph
	profiles Profiles
}

// NewFeed returns a Feed of g. All other callers may only call InSync of g.
func NewFeed(g *calc.Graph) *Feed { return &Feed{graph: g} }

// Apply passes an update to the graph. It ignores kinds that nothing depends on.
func (f *Feed) Apply(u Update) {
	g := f.graph
	switch k := u.Key; k.Kind {
	case KeyWorkload:
		passValue(g.SetWorkload, model.WorkloadID{Node: k.Node, Orchestrator: k.Orchestrator, Workload: k.Workload, Endpoint: k.Name}, u.Value)
	case KeyHostEndpoint:
		passValue(g.SetHostEndpoint, model.HostEndpointID{Node: k.Node, Name: k.Name}, u.Value)
	case KeyNetworkSet:
		passValue(g.SetNetworkSet, k.Name, u.Value)
	case KeyTier:
		passValue(g.SetTier, k.Name, u.Value)
	case KeyTieredPolicy, KeyPolicy:
		passValue(g.SetPolicy, k.PolicyID(), u.Value)
	case KeyProfileRules:
		f.profile(u)
	case KeyPool:
		passValue(g.SetPool, dashed(k.CIDR), u.Value)
	case KeyBlock:
		passValue(g.SetBlock, k.CIDR, u.Value)
	case KeyHostIP:
		a, _ := u.Value.(netip.Addr)
		g.SetHostIP(k.Node, a)
	case KeyConfig:
		text, _ := u.Value.(string)
		g.SetConfig(k.Name, text)
	case KeyHostConfig:
		text, _ := u.Value.(string)
		g.SetHostConfig(k.Node, k.Name, text)
	case KeyWireguard:
		passValue(g.SetWireguard, k.Node, u.Value)
	case KeyResource:
		f.resource(u)
	}
}

func (f *Feed) resource(u Update) {
	switch k := u.Key; k.Type {
	case ResourceProfiles:
		f.profile(u)
	case ResourceNodes:
		passValue(f.graph.SetHost, k.Name, u.Value)
	case ResourceEndpointSlices:
		passValue(f.graph.SetSlice, model.SliceID{Namespace: k.Namespace, Name: k.Name}, u.Value)
	case ResourceServices:
		passValue(f.graph.SetService, model.ServiceID{Namespace: k.Namespace, Name: k.Name}, u.Value)
	case ResourceBGPConfigurations:
		if k.Name == "default" {
			c, _ := u.Value.(*model.BGPConfig)
			f.graph.SetBGPConfig(c)
		}
	}
}

func (f *Feed) profile(u Update) {
	if name, p, ok := f.profiles.Apply(u); ok {
		f.graph.SetProfile(name, p)
	}
}

// passValue calls f with a value, or with nil for a delete.
func passValue[K, V any](f func(K, *V), k K, value any) {
	v, _ := value.(*V)
	f(k, v)
}
