package hostile

import (
	"fmt"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

func putChange(o model.Object) event.Change { return event.Change{Ref: o.Ref(), Object: o} }

// World is the node, its namespaces, the victim's pods (server, client, other) and the tenant's (pod-0 and on).
func World() []event.Change {
	out := []event.Change{
		putChange(&model.Node{
			Name: "node-1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}, InternalIPs: []netip.Addr{netip.MustParseAddr("192.168.16.1")},
		}),
		putChange(&model.Namespace{Name: "victim"}), putChange(&model.Namespace{Name: evil}),
	}
	pod := func(ns, name string, last int, label string) {
		out = append(out, putChange(&model.Pod{
			ID: model.PodID{Namespace: ns, Name: name}, NodeName: "node-1", IPs: []netip.Addr{PodIP(last)}, Labels: map[string]string{"n": label},
		}))
	}
	pod("victim", "server", 2, "server")
	pod("victim", "client", 3, "client")
	pod("victim", "other", 4, "other")
	for i := range pods {
		pod(evil, fmt.Sprintf("pod-%d", i), 10+i, fmt.Sprint(i))
	}
	return out
}

// PodIP is the address of the pod with a number: 2 the server, 3 the client, 4 the other, from 10 on the tenant's.
func PodIP(last int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 1, byte(last)}) }

// Policy is the victim's: its client reaches its server at a TCP port.
func Policy(port uint16) event.Change {
	return putChange(&model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "victim", Name: "server"}, Tier: model.TierDefault, Order: model.OrderKubernetes(),
		Namespace: "victim", Selector: model.LabelNamespace + " == 'victim' && n == 'server'", Ingress: true,
		InboundRules: []model.Rule{{
			Action: model.ActionAllow, Protocol: model.RuleProtocol{Name: "tcp"},
			Source:      model.Peer{Selector: model.LabelNamespace + " == 'victim' && n == 'client'"},
			Destination: model.Peer{Ports: []model.PortMatch{{First: port, Last: port}}},
		}},
	})
}
