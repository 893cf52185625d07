package hostile

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
)

// largeSet is the tenant's policy for all its pods, and the members of its set on another node.
func largeSet(members int, egress bool) []event.Change {
	peer := model.Peer{Selector: model.LabelNamespace + " == 'evil' && has(member)"}
	p := &model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: evil, Name: "large"}, Tier: model.TierDefault, Order: model.OrderKubernetes(),
		Namespace: evil, Selector: model.LabelNamespace + " == 'evil' && has(n)", Ingress: !egress, Egress: egress,
	}
	if egress {
		p.OutboundRules = []model.Rule{{Action: model.ActionAllow, Destination: peer}}
	} else {
		p.InboundRules = []model.Rule{{Action: model.ActionAllow, Source: peer}}
	}
	out := []event.Change{putChange(p)}
	for i := range members {
		out = append(out, member(i))
	}
	return out
}

func member(i int) event.Change {
	return putChange(&model.Pod{
		ID: model.PodID{Namespace: evil, Name: fmt.Sprint("member-", i)}, NodeName: "node-2", Labels: map[string]string{"member": "yes"},
		IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 2, byte(2 * i >> 8), byte(2 * i)})},
	})
}

// gone removes a member.
func gone(i int) event.Change { return event.Change{Ref: member(i).Ref} }

// TestVictimOvertakes: a change of the tenant takes one message for each of its pods, and the agent pauses after each. Each change adds a member
// and removes another one. The change of the victim that follows is in force after three messages at most, before those of the tenant are complete.
func TestVictimOvertakes(t *testing.T) {
	for _, egress := range []bool{false, true} {
		t.Run(fmt.Sprintf("egress %v", egress), func(t *testing.T) { overtake(t, egress) })
	}
}

// changesBefore is the number of the tenant's changes before the victim's.
const changesBefore = 3

// TestVictimOvertakesService: all endpoints of a Service of the tenant with many ports change. The change of the victim that follows is in force after
// the messages for one port.
func TestVictimOvertakesService(t *testing.T) {
	const ports, endpoints = 20, 60
	crowd := func(base int) []event.Change {
		list := service(ports, endpoints, func(*model.Service) {})
		slice := list[1].Object.(*model.EndpointSlice)
		for i := range slice.Endpoints {
			slice.Endpoints[i].Addr = netip.AddrFrom4([4]byte{10, 9, byte(base), byte(1 + i)})
		}
		return list
	}
	n := dividing(t, crowd(1)...)
	messages, at := 0, -1
	n.vpp.After(func(r sim.Record) {
		if r.Name == "nat44_lb_static_mapping_add_del_local" {
			messages++
		}
		if at < 0 && n.passes("pod-victim/client", PodIP(3), PodIP(2), n.port) {
			at = messages
		}
	})
	err := n.agent.Feed(context.Background(),
		&event.Update{Source: source, Changes: crowd(2)}, &event.Update{Source: source, Changes: []event.Change{n.policy(90)}})
	if err != nil {
		t.Fatal(err)
	}
	n.vpp.After(nil)
	if messages != 2*ports*endpoints || at < 0 || at > 2*endpoints {
		t.Errorf("the victim's change is in force after %d of %d messages", at, messages)
	}
	if why := n.verdicts(); why != "" {
		t.Error(why)
	}
}

// dividing is a node whose agent divides every change that it can.
func dividing(t *testing.T, tenant ...event.Change) *node {
	v := sim.New(sim.Config{Seed: 1, PuntLocal: true, LogLimit: 1})
	t.Cleanup(v.Close)
	n := &node{t: t, vpp: v, port: 80}
	before := World()
	if err := cni.New(v, "node-1").Apply(before); err != nil {
		t.Fatal(err)
	}
	cfg := config(v.Dial, budget.Defaults().Within(memory))
	cfg.VPPAgent.Stall = time.Nanosecond
	a, err := agent.NewStepper(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	n.agent = a
	n.feed(append(append(before, n.policy(80)), tenant...))
	return n
}

func overtake(t *testing.T, egress bool) {
	n := dividing(t, largeSet(500, egress)...)
	switched, at, since := 0, -1, 0 // messages for pods of the tenant, and how many there were when the victim's change came into force
	n.vpp.After(func(r sim.Record) {
		if r.Name == "acl_interface_set_acl_list" {
			switched++
		}
		if since++; at < 0 && n.passes("pod-victim/client", PodIP(3), PodIP(2), n.port) {
			at = switched
		}
	})
	var events []event.Event
	for i := range changesBefore {
		events = append(events, &event.Update{Source: source, Changes: []event.Change{member(1000 + i), gone(i)}})
	}
	events = append(events, &event.Update{Source: source, Changes: []event.Change{n.policy(90)}})
	if err := n.agent.Feed(context.Background(), events...); err != nil {
		t.Fatal(err)
	}
	n.vpp.After(nil)
	if switched < pods {
		t.Fatalf("%d interfaces were switched: the tenant's change is in place", switched)
	}
	if at < 0 || at > 2+changesBefore {
		t.Errorf("the victim's change is in force after %d of %d switches", at, switched)
	}
	if why := n.verdicts(); why != "" {
		t.Error(why)
	}
}
