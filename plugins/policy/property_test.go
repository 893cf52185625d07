package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// state is the driver's view after all messages: IP sets by their members, everything else by its last message.
type state struct {
	Sent *sent
	Sets map[string]map[string]bool
	Node dataplane.Node
}

// collector is a driver that accumulates the state from its calls.
type collector struct {
	recorder
	sets map[string]map[string]bool
}

func (c *collector) OnUpdate(m *felix.ToDataplane) {
	switch m := m.Payload.(type) {
	case *felix.ToDataplane_IpsetUpdate:
		set := map[string]bool{}
		for _, member := range m.IpsetUpdate.Members {
			set[member] = true
		}
		c.sets[m.IpsetUpdate.Id] = set
	case *felix.ToDataplane_IpsetDeltaUpdate:
		for _, member := range m.IpsetDeltaUpdate.AddedMembers {
			c.sets[m.IpsetDeltaUpdate.Id][member] = true
		}
		for _, member := range m.IpsetDeltaUpdate.RemovedMembers {
			delete(c.sets[m.IpsetDeltaUpdate.Id], member)
		}
	case *felix.ToDataplane_IpsetRemove:
		delete(c.sets, m.IpsetRemove.Id)
	}
}

func newCollector() (*Processor, *collector) {
	c := &collector{sets: map[string]map[string]bool{}}
	return New(Config{NodeName: "node-1"}, c), c
}

func (c *collector) state(p *Processor) state { return state{p.sent, c.sets, c.node} }

// objects draws changes of a few objects of all kinds, so that the objects refer to each other.
func objects() *rapid.Generator[event.Change] {
	return rapid.Custom(func(t *rapid.T) event.Change {
		pick := func(what string, words ...string) string { return rapid.SampledFrom(words).Draw(t, what) }
		label := func() map[string]string { return map[string]string{"app": pick("label", "web", "client", "db")} }
		ns, name := pick("namespace", "prod", "dev"), pick("name", "a", "b")
		selector := func() string {
			return pick("selector", "all()", "app == 'web'", "pcns.app == 'db'", "has(app)", "app = broken", "pcsa.app == 'web'")
		}
		var o model.Object
		switch pick("kind", "pod", "pod", "policy", "policy", "namespace", "account", "tier", "set", "host", "node", "slice") {
		case "pod":
			p := &model.Pod{
				ID: model.PodID{Namespace: ns, Name: name}, NodeName: pick("node", "node-1", "node-1", "node-2"), Labels: label(),
				IPs: []netip.Addr{addr("10.1.1." + pick("ip", "2", "3"))}, ServiceAccount: pick("account", "", "a"),
				Finished: rapid.Bool().Draw(t, "finished"), HostNetwork: rapid.Bool().Draw(t, "host network"),
				Ports: []model.NamedPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
			}
			if rapid.Bool().Draw(t, "no address") {
				p.IPs = nil
			}
			o = p
		case "policy":
			p := &model.Policy{
				ID:   model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: ns, Name: name},
				Tier: pick("tier", model.TierDefault, "sec"), Namespace: ns, Selector: selector(),
				Ingress: rapid.Bool().Draw(t, "ingress"), Egress: rapid.Bool().Draw(t, "egress"),
				InboundRules: []model.Rule{{Source: model.Peer{Selector: selector()}, Destination: model.Peer{Ports: []model.PortMatch{{Name: "http"}}}}},
			}
			if rapid.Bool().Draw(t, "service") {
				p.OutboundRules = []model.Rule{{Destination: model.Peer{Service: model.ServiceID{Namespace: ns, Name: name}}}}
			}
			o = p
		case "namespace":
			o = &model.Namespace{Name: ns, Labels: label()}
		case "account":
			o = &model.ServiceAccount{Namespace: ns, Name: name, Labels: label()}
		case "tier":
			o = &model.Tier{Name: pick("tier", model.TierDefault, "sec"), Order: model.OrderOf(float64(rapid.IntRange(1, 3).Draw(t, "order")))}
		case "set":
			o = &model.NetworkSet{Name: ns + "/" + name, Labels: label(), Profiles: []string{"kns." + ns}, Nets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
		case "host":
			o = &model.HostEndpoint{ID: model.HostEndpointID{Node: pick("node", "node-1", "node-2"), Name: name}, Labels: label()}
		case "node":
			o = &model.Node{Name: name, Labels: label(), InternalIPs: []netip.Addr{addr("192.168.16.1")}}
		default:
			o = &model.EndpointSlice{
				ID: model.SliceID{Namespace: ns, Name: name}, Service: model.ServiceID{Namespace: ns, Name: pick("service", "a", "b")},
				Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 80}}, Endpoints: []model.Endpoint{{Addr: addr("10.1.1.7")}},
			}
		}
		ch := event.Change{Ref: o.Ref(), Object: o}
		switch pick("what", "put", "put", "put", "remove", "refuse") {
		case "remove":
			ch.Object = nil
		case "refuse":
			ch.Err = errors.New("refused")
			if _, is := o.(*model.Policy); !is {
				ch.Object = nil
			}
		}
		return ch
	})
}

// The driver's state depends on the present objects only: not on the order of changes, nor on the times of flushes.
func TestPathIndependence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		long, longDriver := newCollector()
		last := map[model.Ref]event.Change{}
		for i, ch := range rapid.SliceOfN(objects(), 1, 40).Draw(t, "changes") {
			long.Apply(ch)
			last[ch.Ref] = ch
			if rapid.Bool().Draw(t, fmt.Sprint("flush ", i)) {
				_ = long.Flush()
			}
			if rapid.IntRange(0, 9).Draw(t, fmt.Sprint("locate ", i)) == 0 {
				l := located("10.1.1.2", "tap9")
				l.Names = map[string]string{"prod/a": "tap8"}
				long.Located(l)
			}
		}
		fresh, freshDriver := newCollector()
		for _, ch := range last { // in random order
			fresh.Apply(ch)
		}
		for _, p := range []*Processor{long, fresh} {
			l := located("10.1.1.2", "tap1", "10.1.1.3", "tap2")
			l.Names = map[string]string{"prod/a": "tap3", "prod/b": "tap4"}
			p.Located(l)
			_ = p.Flush()
		}
		opts := cmp.Options{
			protocmp.Transform(), cmp.AllowUnexported(sent{}, model.WireName{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
		}
		if diff := cmp.Diff(freshDriver.state(fresh), longDriver.state(long), opts); diff != "" {
			t.Fatalf("-at once +step by step\n%s", diff)
		}
		for _, ch := range last { // removing all of them leaves nothing
			long.Apply(event.Change{Ref: ch.Ref})
		}
		_ = long.Flush()
		empty := state{newSent(), nil, longDriver.node}
		if diff := cmp.Diff(empty, longDriver.state(long), opts); diff != "" || len(long.items)+len(long.parents)+len(long.pods)+len(long.local)+len(long.unborn) > 0 {
			t.Fatalf("left behind: -want +got\n%s %v %v %v", diff, long.items, long.parents, long.pods)
		}
	})
}
