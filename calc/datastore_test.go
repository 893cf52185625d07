package calc_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/model"
)

// kv is a change of Felix's datastore, in its own encoding.
type kv struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Deleted bool   `json:"deleted"`
}

// datastore gives a graph what is in Felix's datastore; profiles are put together from their two keys.
type datastore struct {
	graph  *calc.Graph
	rules  map[string]*model.ProfileRules
	labels map[string]map[string]string
}

func newDatastore(g *calc.Graph) *datastore {
	return &datastore{graph: g, rules: map[string]*model.ProfileRules{}, labels: map[string]map[string]string{}}
}

func (d *datastore) apply(c kv) error {
	p := strings.Split(strings.TrimPrefix(c.Key, "/calico/"), "/")
	for i := range p {
		p[i] = strings.ReplaceAll(p[i], "%2f", "/")
	}
	switch {
	case p[0] == "v1" && p[1] == "host" && p[3] == "workload":
		id := model.WorkloadID{Node: p[2], Orchestrator: p[4], Workload: p[5], Endpoint: p[7]}
		w, err := decodeWorkload(id, c)
		d.graph.SetWorkload(id, w)
		return err
	case p[0] == "v1" && p[1] == "host" && p[3] == "endpoint":
		id := model.HostEndpointID{Node: p[2], Name: p[4]}
		h, err := decodeHostEndpoint(id, c)
		d.graph.SetHostEndpoint(id, h)
		return err
	case p[0] == "v1" && p[1] == "host" && p[3] == "bird_ip":
		a, _ := netip.ParseAddr(c.Value)
		d.graph.SetHostIP(p[2], a)
	case p[0] == "v1" && p[1] == "host" && p[3] == "config":
		d.graph.SetHostConfig(p[2], p[4], c.Value)
	case p[0] == "v1" && p[1] == "host" && p[3] == "wireguard":
		w, err := decodeWireguard(c)
		d.graph.SetWireguard(p[2], w)
		return err
	case p[0] == "v1" && p[1] == "config":
		d.graph.SetConfig(p[2], c.Value)
	case p[0] == "v1" && p[1] == "Ready":
	case p[0] == "v1" && p[1] == "policy" && p[2] == "profile":
		return d.profileRules(p[3], c)
	case p[0] == "v1" && p[1] == "policy" && p[2] == "tier":
		return d.tier(p[3], p[4:], c)
	case p[0] == "v1" && p[1] == "ipam":
		return d.pool(p[4], c)
	case p[0] == "ipam":
		return d.block(p[5], c)
	case p[0] == "resources" && p[3] == "profiles":
		return d.profileLabels(p[4], c)
	case p[0] == "resources" && p[3] == "nodes":
		return d.node(p[4], c)
	case p[0] == "resources" && p[3] == "kubernetesendpointslices":
		return d.slice(model.SliceID{Namespace: p[4], Name: p[5]}, c)
	default:
		return fmt.Errorf("key %s is not known to the test", c.Key)
	}
	return nil
}

type portJSON struct {
	Name, Protocol string
	Port           uint16
}

func namedPorts(list []portJSON) (out []model.NamedPort) {
	for _, p := range list {
		proto, _ := model.ParseProtocol(strings.ToUpper(p.Protocol))
		out = append(out, model.NamedPort{Name: p.Name, Protocol: proto, Port: p.Port})
	}
	return out
}

func decodeWorkload(id model.WorkloadID, c kv) (*model.WorkloadEndpoint, error) {
	if c.Deleted {
		return nil, nil
	}
	var v struct {
		State, Name, Mac string
		Profiles         []string       `json:"profile_ids"`
		IPv4Nets         []netip.Prefix `json:"ipv4_nets"`
		IPv6Nets         []netip.Prefix `json:"ipv6_nets"`
		Labels           map[string]string
		Ports            []portJSON
	}
	err := json.Unmarshal([]byte(c.Value), &v)
	return &model.WorkloadEndpoint{
		ID: id, State: v.State, Interface: v.Name, MAC: v.Mac, Profiles: v.Profiles,
		Nets: append(v.IPv4Nets, v.IPv6Nets...), Labels: v.Labels, Ports: namedPorts(v.Ports),
	}, err
}

func decodeHostEndpoint(id model.HostEndpointID, c kv) (*model.HostEndpoint, error) {
	if c.Deleted {
		return nil, nil
	}
	var v struct {
		Name     string
		IPv4     []netip.Addr `json:"expected_ipv4_addrs"`
		IPv6     []netip.Addr `json:"expected_ipv6_addrs"`
		Labels   map[string]string
		Profiles []string `json:"profile_ids"`
		Ports    []portJSON
	}
	err := json.Unmarshal([]byte(c.Value), &v)
	return &model.HostEndpoint{
		ID: id, Interface: v.Name, Addrs: append(v.IPv4, v.IPv6...), Profiles: v.Profiles, Labels: v.Labels,
		Ports: namedPorts(v.Ports),
	}, err
}

func decodeWireguard(c kv) (*model.Wireguard, error) {
	if c.Deleted {
		return nil, nil
	}
	var v struct {
		PublicKey, PublicKeyV6 string
		IPv4                   netip.Addr `json:"interfaceIPv4Addr"`
		IPv6                   netip.Addr `json:"interfaceIPv6Addr"`
	}
	err := json.Unmarshal([]byte(c.Value), &v)
	return &model.Wireguard{PublicKey: v.PublicKey, PublicKeyV6: v.PublicKeyV6, IPv4: v.IPv4, IPv6: v.IPv6}, err
}

type ruleJSON struct {
	Action, Protocol string
	SrcSelector      string `json:"src_selector"`
	DstSelector      string `json:"dst_selector"`
	NotSrcSelector   string `json:"!src_selector"`
	NotDstSelector   string `json:"!dst_selector"`
	SrcPorts         []any  `json:"src_ports"`
	DstPorts         []any  `json:"dst_ports"`
	NotSrcPorts      []any  `json:"!src_ports"`
	NotDstPorts      []any  `json:"!dst_ports"`
	SrcService       string `json:"src_service"`
	SrcServiceNS     string `json:"src_service_ns"`
	DstService       string `json:"dst_service"`
	DstServiceNS     string `json:"dst_service_ns"`
}

func portMatches(list []any) (out []model.PortMatch) {
	for _, p := range list {
		switch p := p.(type) {
		case float64:
			out = append(out, model.PortMatch{First: uint16(p), Last: uint16(p)})
		case string:
			out = append(out, model.PortMatch{Name: p})
		}
	}
	return out
}

func rules(list []ruleJSON) (out []model.Rule) {
	for _, r := range list {
		out = append(out, model.Rule{
			Action: model.Action(r.Action), Protocol: model.RuleProtocol{Name: r.Protocol},
			Source: model.Peer{
				Selector: r.SrcSelector, NotSelector: r.NotSrcSelector, Ports: portMatches(r.SrcPorts),
				NotPorts: portMatches(r.NotSrcPorts), Service: model.ServiceID{Namespace: r.SrcServiceNS, Name: r.SrcService},
			},
			Destination: model.Peer{
				Selector: r.DstSelector, NotSelector: r.NotDstSelector, Ports: portMatches(r.DstPorts),
				NotPorts: portMatches(r.NotDstPorts), Service: model.ServiceID{Namespace: r.DstServiceNS, Name: r.DstService},
			},
		})
	}
	return out
}

type rulesJSON struct {
	Inbound  []ruleJSON `json:"inbound_rules"`
	Outbound []ruleJSON `json:"outbound_rules"`
}

func (d *datastore) profileRules(name string, c kv) error {
	var v rulesJSON
	delete(d.rules, name)
	if !c.Deleted {
		if err := json.Unmarshal([]byte(c.Value), &v); err != nil {
			return err
		}
		d.rules[name] = &model.ProfileRules{Inbound: rules(v.Inbound), Outbound: rules(v.Outbound)}
	}
	d.profile(name)
	return nil
}

func (d *datastore) profileLabels(name string, c kv) error {
	delete(d.labels, name)
	if !c.Deleted {
		var v struct {
			Spec struct{ LabelsToApply map[string]string }
		}
		if err := json.Unmarshal([]byte(c.Value), &v); err != nil {
			return err
		}
		d.labels[name] = v.Spec.LabelsToApply
	}
	d.profile(name)
	return nil
}

func (d *datastore) profile(name string) {
	labels, known := d.labels[name]
	if !known && d.rules[name] == nil {
		d.graph.SetProfile(name, nil)
		return
	}
	d.graph.SetProfile(name, &model.Profile{Name: name, Labels: labels, Rules: d.rules[name]})
}

func (d *datastore) tier(name string, rest []string, c kv) error {
	if rest[0] == "metadata" {
		if c.Deleted {
			d.graph.SetTier(name, nil)
			return nil
		}
		var v struct {
			Order         *float64
			DefaultAction string
		}
		err := json.Unmarshal([]byte(c.Value), &v)
		t := &model.Tier{Name: name, DefaultAction: model.Action(v.DefaultAction)}
		if v.Order != nil {
			t.Order = model.OrderOf(*v.Order)
		}
		d.graph.SetTier(name, t)
		return err
	}
	id := model.PolicyID{Kind: model.KindTieredPolicy, Namespace: name, Name: rest[1]}
	if c.Deleted {
		d.graph.SetPolicy(id, nil)
		return nil
	}
	var v struct {
		rulesJSON
		Order     *float64
		Namespace string
		Selector  string
		Types     []string
		Untracked bool
		PreDNAT   bool     `json:"pre_dnat"`
		Hints     []string `json:"performance_hints"`
	}
	err := json.Unmarshal([]byte(c.Value), &v)
	p := &model.Policy{
		ID: id, Tier: name, Namespace: v.Namespace, Selector: v.Selector, InboundRules: rules(v.Inbound),
		OutboundRules: rules(v.Outbound), Untracked: v.Untracked, PreDNAT: v.PreDNAT, Everywhere: len(v.Hints) > 0,
	}
	if v.Order != nil {
		p.Order = model.OrderOf(*v.Order)
	}
	for _, t := range v.Types {
		p.Ingress = p.Ingress || t == "ingress"
		p.Egress = p.Egress || t == "egress"
	}
	d.graph.SetPolicy(id, p)
	return err
}

func (d *datastore) pool(id string, c kv) error {
	if c.Deleted {
		d.graph.SetPool(id, nil)
		return nil
	}
	var v struct {
		CIDR       netip.Prefix
		IPIPMode   string `json:"ipip_mode"`
		VXLANMode  string `json:"vxlan_mode"`
		Masquerade bool
	}
	err := json.Unmarshal([]byte(c.Value), &v)
	d.graph.SetPool(id, &model.Pool{
		ID: id, CIDR: v.CIDR, Masquerade: v.Masquerade, IPIPMode: v.IPIPMode, VXLANMode: v.VXLANMode,
	})
	return err
}

func (d *datastore) block(key string, c kv) error {
	i := strings.LastIndexByte(key, '-')
	cidr, err := netip.ParsePrefix(key[:i] + "/" + key[i+1:])
	if err != nil {
		return err
	}
	if c.Deleted {
		d.graph.SetBlock(cidr, nil)
		return nil
	}
	var v struct {
		CIDR        netip.Prefix
		Affinity    string
		Allocations []*int
		Attributes  []struct{ Secondary map[string]string }
	}
	if err := json.Unmarshal([]byte(c.Value), &v); err != nil {
		return err
	}
	b := &model.Block{CIDR: v.CIDR, Node: strings.TrimPrefix(v.Affinity, "host:")}
	addr := v.CIDR.Addr()
	for _, a := range v.Allocations {
		if a != nil {
			if node := v.Attributes[*a].Secondary["node"]; node != "" && node != b.Node {
				b.Borrowed = append(b.Borrowed, model.BorrowedAddr{Addr: addr, Node: node})
			}
		}
		addr = addr.Next()
	}
	d.graph.SetBlock(cidr, b)
	return nil
}

func (d *datastore) node(name string, c kv) error {
	if c.Deleted {
		d.graph.SetHost(name, nil)
		return nil
	}
	var v struct {
		Spec struct {
			BGP struct {
				IPv4Address, IPv6Address, IPv4IPIPTunnelAddr string
				ASNumber                                     uint32
			}
			IPv4VXLANTunnelAddr, IPv6VXLANTunnelAddr string
			Wireguard                                struct{ InterfaceIPv4Address, InterfaceIPv6Address string }
		}
	}
	if err := json.Unmarshal([]byte(c.Value), &v); err != nil {
		return err
	}
	h := &model.Host{Name: name}
	h.IPv4, h.Net4 = addrAndNet(v.Spec.BGP.IPv4Address)
	h.IPv6, h.Net6 = addrAndNet(v.Spec.BGP.IPv6Address)
	h.IPIP, _ = netip.ParseAddr(v.Spec.BGP.IPv4IPIPTunnelAddr)
	h.VXLAN4, _ = netip.ParseAddr(v.Spec.IPv4VXLANTunnelAddr)
	h.VXLAN6, _ = netip.ParseAddr(v.Spec.IPv6VXLANTunnelAddr)
	h.Wireguard4, _ = netip.ParseAddr(v.Spec.Wireguard.InterfaceIPv4Address)
	h.Wireguard6, _ = netip.ParseAddr(v.Spec.Wireguard.InterfaceIPv6Address)
	if n := v.Spec.BGP.ASNumber; n != 0 {
		h.ASNumber = strconv.Itoa(int(n))
	}
	d.graph.SetHost(name, h)
	return nil
}

func addrAndNet(text string) (netip.Addr, netip.Prefix) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr(), p
	}
	a, _ := netip.ParseAddr(text)
	return a, netip.Prefix{}
}

func (d *datastore) slice(id model.SliceID, c kv) error {
	if c.Deleted {
		d.graph.SetSlice(id, nil)
		return nil
	}
	var v struct {
		Metadata  struct{ Labels map[string]string }
		Endpoints []struct{ Addresses []netip.Addr }
		Ports     []portJSON
	}
	if err := json.Unmarshal([]byte(c.Value), &v); err != nil {
		return err
	}
	s := &model.EndpointSlice{
		ID: id, Service: model.ServiceID{Namespace: id.Namespace, Name: v.Metadata.Labels["kubernetes.io/service-name"]},
	}
	for _, p := range v.Ports {
		proto, _ := model.ParseProtocol(p.Protocol)
		s.Ports = append(s.Ports, model.EndpointPort{Name: p.Name, Protocol: proto, Port: p.Port})
	}
	for _, e := range v.Endpoints {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: e.Addresses[0]})
	}
	d.graph.SetSlice(id, s)
	return nil
}
