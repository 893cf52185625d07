package hostile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// bound is an object that asks for all that the limit of one object admits, or for more.
type bound struct {
	limit  budget.Dimension
	object func(more int) []event.Change // more: 0 or 1 thing more than the limit admits
	asks   [2]int                        // by more
	open   netip.AddrPort                // from where the policy lets in, and to which port; invalid: the object is a Service
}

func bounds() []bound {
	none := func(*model.Service) {}
	return []bound{
		{budget.Rules, func(more int) []event.Change {
			return sized(append([]model.Rule{tcp(16, hosts(4096)...)}, slices.Repeat([]model.Rule{tcp(1, hosts(1)...)}, more)...))
		}, [2]int{1 << 16, 1<<16 + 1}, netip.AddrPortFrom(outside(4095), 31)},
		{budget.Tables, func(more int) []event.Change {
			rules := make([]model.Rule, 1024+more)
			for i, net := range hosts(len(rules)) {
				if rules[i] = tcp(1, net); i%2 > 0 {
					rules[i].Action = model.ActionDeny
				}
			}
			return sized(rules)
		}, [2]int{1024, 1025}, netip.AddrPortFrom(outside(1022), 1)},
		{budget.Memory, func(more int) []event.Change {
			var rules []model.Rule
			for _, net := range hosts(1<<15 + more) {
				rules = append(rules, tcp(1, net))
			}
			return sized(rules)
		}, [2]int{1 << 17, 1<<17 + 4}, netip.AddrPortFrom(outside(1<<15-1), 1)},
		{budget.RangeRules, func(more int) []event.Change {
			return service(256+more, 1, func(s *model.Service) {
				s.Type, s.LoadBalancerIPs = model.LoadBalancer, []model.LoadBalancerIP{{Addr: netip.MustParseAddr("198.18.66.1")}}
				s.LoadBalancerSourceRanges = hosts(1)
			})
		}, [2]int{8192, 8224}, netip.AddrPort{}},
		{budget.Backends, func(more int) []event.Change { return service(128+more, 2048, none) }, [2]int{1 << 18, 129 * 2048}, netip.AddrPort{}},
	}
}

// TestLimitsOfAnObject: an object that asks for exactly as much as one object may is programmed, one that asks for more is refused with the reason,
// and a neighbour that changes in the same moment is served in both cases.
func TestLimitsOfAnObject(t *testing.T) {
	if pace.Fewer(2, 2) == 1 {
		t.Skip("the largest objects: make wide does this without the race detector")
	}
	for _, b := range bounds() {
		for more := range 2 {
			t.Run(fmt.Sprintf("%s, %d", b.limit, b.asks[more]), func(t *testing.T) {
				n := newNodeOn(t, budget.Defaults().Within(memory), "25.10-release")
				n.feed(append(b.object(more), n.policy(n.port+10)))
				if why := n.verdicts(); why != "" {
					t.Errorf("the neighbour: %s", why)
				}
				state, reasons := n.sized()
				want := fmt.Sprintf("asks for %d %s, and an object may have", b.asks[1], b.limit)
				if refused := strings.Contains(reasons, want) && strings.Contains(reasons, "--"+b.limit.Flag()); refused != (more > 0) || (state == "CONFIGURED") != (more == 0) {
					t.Errorf("%s: %q", state, reasons)
				}
				if !b.open.IsValid() {
					return
				}
				probe := packet.NewTCP(netip.AddrPortFrom(b.open.Addr(), 40000), netip.AddrPortFrom(PodIP(10), b.open.Port()))
				fate := n.vpp.Send(cni.Uplink, probe)
				if passes := len(fate.Out) > 0 && fate.Out[0].Interface == "pod-"+evil+"/pod-0"; passes != (more == 0) {
					t.Errorf("a packet of the last address passes %t: %v", passes, fate)
				}
			})
		}
	}
}

// sized is the state of the object of a bound, and the reasons for it.
func (n *node) sized() (state, reasons string) {
	st := n.agent.Status()
	for _, p := range st.Policies {
		if strings.Contains(p.Object, evil+"/sized") {
			return p.State, strings.Join(p.Reasons, " ")
		}
	}
	for _, s := range st.Services {
		if s.Name == evil+"/sized" {
			return s.State, strings.Join(s.Reasons, " ")
		}
	}
	return "", ""
}

// outside is address number i outside the cluster.
func outside(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(20 + i>>16), byte(i >> 8), byte(i), 7})
}

// sized is a policy of the tenant for pod-0.
func sized(rules []model.Rule) []event.Change {
	return []event.Change{putChange(&model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: evil, Name: "sized"}, Tier: model.TierDefault, Order: model.OrderKubernetes(),
		Namespace: evil, Selector: model.LabelNamespace + " == 'evil' && n == '0'", Ingress: true, InboundRules: rules,
	})}
}

func tcp(ports int, nets ...netip.Prefix) model.Rule {
	r := model.Rule{Action: model.ActionAllow, Protocol: model.RuleProtocol{Name: "tcp"}, Source: model.Peer{Nets: nets}}
	for i := range ports {
		r.Destination.Ports = append(r.Destination.Ports, model.PortMatch{First: uint16(2*i + 1), Last: uint16(2*i + 1)})
	}
	return r
}

func hosts(n int) (out []netip.Prefix) {
	for i := range n {
		out = append(out, netip.PrefixFrom(outside(i), 32))
	}
	return out
}

// service is a Service of the tenant with ports, and with endpoints if there are any.
func service(ports, endpoints int, change func(*model.Service)) []event.Change {
	s := &model.Service{ID: model.ServiceID{Namespace: evil, Name: "sized"}, Type: model.ClusterIP, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.66.9")}}
	slice := &model.EndpointSlice{ID: model.SliceID{Namespace: evil, Name: "sized-1"}, Service: model.ServiceID{Namespace: evil, Name: "sized"}}
	for i := range ports {
		name := fmt.Sprintf("p%d", i)
		s.Ports = append(s.Ports, model.ServicePort{Name: name, Protocol: model.TCP, Port: uint16(1000 + i)})
		slice.Ports = append(slice.Ports, model.EndpointPort{Name: name, Protocol: model.TCP, Port: 80})
	}
	for i := range endpoints {
		slice.Endpoints = append(slice.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), Ready: true, Serving: true})
	}
	change(s)
	return []event.Change{putChange(s), putChange(slice)}
}
