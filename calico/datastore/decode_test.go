package datastore

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv-agent/contiv-agent/model"
)

func nets(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// wholePolicy has every field once.
const wholePolicy = `{"namespace":"prod","order":10.5,"selector":"a == 'b'","untracked":true,"pre_dnat":true,"apply_on_forward":true,
	"annotations":{"x":"y"},"types":["ingress","Egress"],"performance_hints":["AssumeNeededOnEveryNode"],
	"inbound_rules":[{"action":"allow","ip_version":4,"protocol":"TCP","!protocol":17,"icmp_type":8,"icmp_code":0,"!icmp_type":3,
		"src_net":"10.0.0.1","src_nets":["10.1.2.3/16"],"src_selector":"s","src_ports":[80,"90:95","http"],"src_service":"svc","src_service_ns":"ns",
		"dst_net":"fd00::/64","dst_nets":["10.2.0.0/16"],"dst_selector":"d","dst_ports":[81],"dst_service":"dsvc","dst_service_ns":"dns",
		"!src_net":"10.3.0.0/16","!src_nets":["10.4.0.0/16"],"!src_selector":"ns","!src_ports":[82],
		"!dst_net":"10.5.0.0/16","!dst_nets":["10.6.0.0/16"],"!dst_selector":"nd","!dst_ports":[83],
		"orig_src_selector":"os","orig_src_namespace_selector":"osn","orig_dst_selector":"od","orig_dst_namespace_selector":"odn",
		"!orig_src_selector":"nos","!orig_dst_selector":"nod","orig_src_service_acct_names":["sa"],"orig_src_service_acct_selector":"sas",
		"orig_dst_service_acct_names":["da"],"orig_dst_service_acct_selector":"das",
		"http":{"methods":["GET"],"paths":[{"exact":"/a"},{"prefix":"/b"}]},"log_prefix":"p","metadata":{"annotations":{"k":"v"}}}],
	"outbound_rules":[{"action":"next-tier"},{"action":"log"},{"action":"deny","protocol":1}]}`

func wholePolicyModel(id model.PolicyID, tier string) *model.Policy {
	return &model.Policy{
		ID: id, Tier: tier, Order: model.OrderOf(10.5), Namespace: "prod", Selector: "a == 'b'", Ingress: true, Egress: true,
		Untracked: true, PreDNAT: true, ApplyOnForward: true, Everywhere: true,
		InboundRules: []model.Rule{{
			Action: "allow", IPVersion: 4, Protocol: model.RuleProtocol{Name: "tcp"}, NotProtocol: model.RuleProtocol{Number: 17},
			ICMP: &model.ICMPMatch{Type: 8, HasCode: true}, NotICMP: &model.ICMPMatch{Type: 3},
			Source: model.Peer{
				Nets: nets("10.1.0.0/16", "10.0.0.1/32"), NotNets: nets("10.4.0.0/16", "10.3.0.0/16"), Selector: "s", NotSelector: "ns",
				Ports:    []model.PortMatch{{First: 80, Last: 80}, {First: 90, Last: 95}, {Name: "http"}},
				NotPorts: []model.PortMatch{{First: 82, Last: 82}}, Service: model.ServiceID{Namespace: "ns", Name: "svc"},
				OriginalSelector: "os", OriginalNamespaceSelector: "osn", OriginalNotSelector: "nos", ServiceAccountNames: []string{"sa"}, ServiceAccountSelector: "sas",
			},
			Destination: model.Peer{
				Nets: nets("10.2.0.0/16", "fd00::/64"), NotNets: nets("10.6.0.0/16", "10.5.0.0/16"), Selector: "d", NotSelector: "nd",
				Ports: []model.PortMatch{{First: 81, Last: 81}}, NotPorts: []model.PortMatch{{First: 83, Last: 83}},
				Service:          model.ServiceID{Namespace: "dns", Name: "dsvc"},
				OriginalSelector: "od", OriginalNamespaceSelector: "odn", OriginalNotSelector: "nod", ServiceAccountNames: []string{"da"}, ServiceAccountSelector: "das",
			},
			HTTP:        &model.HTTPMatch{Methods: []string{"GET"}, Paths: []model.HTTPPath{{Exact: "/a"}, {Prefix: "/b"}}},
			Annotations: map[string]string{"k": "v"},
		}},
		OutboundRules: []model.Rule{{Action: "next-tier"}, {Action: "log"}, {Action: "deny", Protocol: model.RuleProtocol{Number: 1}}},
	}
}

func TestDecode(t *testing.T) {
	const workload, host = "/calico/v1/host/n1/workload/k8s/prod%2fweb-0/endpoint/eth0", "/calico/v1/host/n1/endpoint/h"
	const resource = "/calico/resources/v3/projectcalico.org/"
	wid := model.WorkloadID{Node: "n1", Orchestrator: "k8s", Workload: "prod/web-0", Endpoint: "eth0"}
	for _, c := range []struct {
		key, value string
		want       any
	}{
		{
			workload, `{"state":"active","name":"cali1","active_instance_id":"","mac":"EE:ee:EE:ee:EE:ee","profile_ids":["kns.prod"],
			"ipv4_nets":["10.65.0.2/32","10.65.0.3"],"ipv6_nets":["fd00::2/128"],"ipv4_nat":[{"int_ip":"10.65.0.2","ext_ip":"1.2.3.4"}],
			"ipv6_nat":[{"int_ip":"fd00::2","ext_ip":"fd01::2"}],"labels":{"a":"b"},"ipv4_gateway":"10.0.0.1","generate_name":"web-",
			"ports":[{"name":"http","protocol":"tcp","port":8080},{"name":"dns","protocol":17,"port":53},{"name":"x","protocol":"SCTP","port":9}],
			"allow_spoofed_source_ips":["8.8.8.0/24"],"annotations":{"k":"v"},"qosControls":{"ingressBandwidth":1000000,"egressMaxConnections":5,"dscp":"EF"}}`,
			&model.WorkloadEndpoint{
				ID: wid, State: "active", Interface: "cali1", MAC: "ee:ee:ee:ee:ee:ee", Profiles: []string{"kns.prod"},
				Nets: nets("10.65.0.2/32", "10.65.0.3/32", "fd00::2/128"), Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"k": "v"},
				NAT:                 []model.AddressPair{{External: addr("1.2.3.4"), Internal: addr("10.65.0.2")}, {External: addr("fd01::2"), Internal: addr("fd00::2")}},
				Ports:               []model.NamedPort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: 53}, {Name: "x", Protocol: model.SCTP, Port: 9}},
				AllowSpoofedSources: nets("8.8.8.0/24"),
				QoS:                 &model.QoS{Ingress: model.RateLimits{Bandwidth: 1e6}, Egress: model.RateLimits{MaxConnections: 5}, DSCP: 46, HasDSCP: true},
			},
		},
		{workload, `{"name":"cali1","mac":null,"labels":null}`, &model.WorkloadEndpoint{ID: wid, Interface: "cali1"}},
		{
			host, `{"name":"eth0","expected_ipv4_addrs":["10.0.0.1"],"expected_ipv6_addrs":["fd00::1"],"labels":{"a":"b"},"profile_ids":["p"],
			"ports":[{"name":"ssh","protocol":"tcp","port":22}],"qosControls":{"dscp":8}}`,
			&model.HostEndpoint{
				ID: model.HostEndpointID{Node: "n1", Name: "h"}, Interface: "eth0", Addrs: []netip.Addr{addr("10.0.0.1"), addr("fd00::1")}, Profiles: []string{"p"},
				Labels: map[string]string{"a": "b"}, Ports: []model.NamedPort{{Name: "ssh", Protocol: model.TCP, Port: 22}}, QoS: &model.QoS{DSCP: 8, HasDSCP: true},
			},
		},
		{
			"/calico/v1/netset/prod%2fext", `{"nets":["10.1.2.3/8","fd00::1"],"labels":{"a":"b"},"profile_ids":["kns.prod"]}`,
			&model.NetworkSet{Name: "prod/ext", Nets: nets("10.0.0.0/8", "fd00::1/128"), Labels: map[string]string{"a": "b"}, Profiles: []string{"kns.prod"}},
		},
		{"/calico/v1/policy/tier/sec/metadata", `{"order":10,"defaultAction":"Pass"}`, &model.Tier{Name: "sec", Order: model.OrderOf(10), DefaultAction: model.TierPass}},
		{"/calico/v1/policy/tier/sec/metadata", `{}`, &model.Tier{Name: "sec"}},
		{
			"/calico/v1/policy/tier/sec/policy/prod%2fsec.web", wholePolicy,
			wholePolicyModel(model.PolicyID{Kind: model.KindTieredPolicy, Namespace: "sec", Name: "prod/sec.web"}, "sec"),
		},
		{
			"/calico/v1/policy/NetworkPolicy/prod/web", strings.Replace(wholePolicy, `"order"`, `"tier":"sec","order"`, 1),
			wholePolicyModel(model.PolicyID{Kind: model.KindCalicoNetworkPolicy, Namespace: "prod", Name: "web"}, "sec"),
		},
		{
			"/calico/v1/policy/GlobalNetworkPolicy//x", `{"selector":"all()"}`,
			&model.Policy{ID: model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: "x"}, Tier: "default", Selector: "all()"},
		},
		{
			"/calico/v1/policy/profile/kns.prod/rules", `{"inbound_rules":[{"action":"allow"}],"outbound_rules":[{}]}`,
			&model.ProfileRules{Inbound: []model.Rule{{Action: "allow"}}, Outbound: []model.Rule{{}}},
		},
		{"/calico/v1/policy/profile/kns.prod/labels", `{"pcns.a":"b"}`, Labels{"pcns.a": "b"}},
		{resource + "profiles/kns.prod", `{"kind":"Profile","spec":{"labelsToApply":{"pcns.a":"b"},"ingress":[{"action":"Allow"}]}}`, Labels{"pcns.a": "b"}},
		{resource + "profiles/kns.prod", `{}`, Labels{}},
		{
			"/calico/v1/ipam/v4/pool/10.65.0.0-16", `{"cidr":"10.65.0.0/16","ipip":"tunl0","ipip_mode":"crosssubnet","vxlan_mode":"Always","masquerade":true}`,
			&model.Pool{ID: "10.65.0.0-16", CIDR: nets("10.65.0.0/16")[0], Masquerade: true, IPIPMode: "cross-subnet", VXLANMode: "always"},
		},
		{
			"/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-30", `{"cidr":"10.65.0.0/30","affinity":"host:n1","allocations":[0,null,1,2],"unallocated":[1],
			"attributes":[{"handle_id":"x","secondary":{"node":"n1"}},{"secondary":{"node":"n2"}},{"secondary":null}]}`,
			&model.Block{CIDR: nets("10.65.0.0/30")[0], Node: "n1", Borrowed: []model.BorrowedAddr{{Addr: addr("10.65.0.2"), Node: "n2"}}},
		},
		{"/calico/ipam/v2/assignment/ipv6/block/fd00::-126", `{"cidr":"fd00::/126","affinity":null,"allocations":[]}`, &model.Block{CIDR: nets("fd00::/126")[0]}},
		{"/calico/v1/host/n1/bird_ip", `10.0.0.1`, addr("10.0.0.1")},
		{"/calico/v1/host/n1/config/X", `y z`, "y z"},
		{"/calico/v1/config/X", ``, ""},
		{"/calico/v1/Ready", `true`, true},
		{"/calico/v1/Ready", `false`, false},
		{
			"/calico/v1/host/n1/wireguard", `{"interfaceIPv4Addr":"10.0.0.1","publicKey":"k","interfaceIPv6Addr":"fd00::1","publicKeyV6":"k6"}`,
			&model.Wireguard{PublicKey: "k", PublicKeyV6: "k6", IPv4: addr("10.0.0.1"), IPv6: addr("fd00::1")},
		},
		{
			resource + "nodes/n1", `{"metadata":{"name":"n1","labels":{"a":"b"}},"spec":{"bgp":{"asNumber":"1.2","ipv4Address":"10.0.0.1/24","ipv6Address":"fd00::1/64",
			"ipv4IPIPTunnelAddr":"10.1.0.1"},"ipv4VXLANTunnelAddr":"10.1.0.2","ipv6VXLANTunnelAddr":"fd01::2",
			"wireguard":{"interfaceIPv4Address":"10.1.0.3","interfaceIPv6Address":"fd01::3"},"addresses":[{"address":"10.0.0.1/24"},{"address":"n1","type":"Hostname"},{"address":"1.2.3.4"}]}}`,
			&model.Host{
				Name: "n1", Labels: map[string]string{"a": "b"}, ASNumber: "65538", IPv4: addr("10.0.0.1"), Net4: netip.MustParsePrefix("10.0.0.1/24"),
				IPv6: addr("fd00::1"), Net6: netip.MustParsePrefix("fd00::1/64"), IPIP: addr("10.1.0.1"), VXLAN4: addr("10.1.0.2"), VXLAN6: addr("fd01::2"),
				Wireguard4: addr("10.1.0.3"), Wireguard6: addr("fd01::3"), Addrs: []netip.Addr{addr("10.0.0.1"), addr("1.2.3.4")},
			},
		},
		{
			resource + "nodes/n1", `{"spec":{"bgp":{"asNumber":64512},"addresses":[{"address":"1.2.3.4","type":"ExternalIP"},{"address":"10.0.0.2","type":"InternalIP"},{"address":"fd00::9","type":"ExternalIP"}]}}`,
			&model.Host{Name: "n1", ASNumber: "64512", IPv4: addr("10.0.0.2"), IPv6: addr("fd00::9"), Addrs: []netip.Addr{addr("1.2.3.4"), addr("10.0.0.2"), addr("fd00::9")}},
		},
		{
			resource + "kubernetesendpointslices/prod/web-x", `{"metadata":{"labels":{"kubernetes.io/service-name":"web"}},"endpoints":[{"addresses":["fd00::5"]}],"ports":[{"name":"http","port":80,"protocol":"TCP"}]}`,
			&model.EndpointSlice{
				ID: model.SliceID{Namespace: "prod", Name: "web-x"}, Service: model.ServiceID{Namespace: "prod", Name: "web"}, IPv6: true,
				Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 80}}, Endpoints: []model.Endpoint{{Addr: addr("fd00::5"), Ready: true, Serving: true}},
			},
		},
		{resource + "kubernetesendpointslices/prod/names", `{"addressType":"FQDN","endpoints":[{"addresses":["example.org"]}]}`, nil},
		{
			resource + "kubernetesservice/prod/web", `{"spec":{"clusterIPs":["10.96.0.1"],"clusterIP":"10.96.0.1","ports":[{"port":80,"protocol":"TCP"}],"selector":{"a":"b"}}}`,
			&model.Service{ID: model.ServiceID{Namespace: "prod", Name: "web"}, ClusterIPs: []netip.Addr{addr("10.96.0.1")}, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}},
		},
		{
			resource + "bgpconfigurations/default", `{"spec":{"serviceClusterIPs":[{"cidr":"10.96.0.0/16"}],"serviceExternalIPs":[{"cidr":"1.2.3.0/24"}],
			"serviceLoadBalancerIPs":[{"cidr":"1.2.4.0/24"}],"localWorkloadPeeringIPV4":"10.0.0.1","localWorkloadPeeringIPV6":"fd00::1"}}`,
			&model.BGPConfig{
				ServiceClusterIPs: nets("10.96.0.0/16"), ServiceExternalIPs: nets("1.2.3.0/24"), ServiceLoadBalancerIPs: nets("1.2.4.0/24"),
				WorkloadPeering4: addr("10.0.0.1"), WorkloadPeering6: addr("fd00::1"),
			},
		},
	} {
		u, err := Decode(c.key, []byte(c.value))
		if err != nil {
			t.Errorf("%s: %v", c.key, err)
		}
		opts := []cmp.Option{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}
		if diff := cmp.Diff(c.want, u.Value, opts...); diff != "" || u.Key.String() != c.key {
			t.Errorf("%s is %s (-want +got):\n%s", c.key, u.Key, diff)
		}
		if u, err := Decode(c.key, nil); u.Value != nil || err != nil || u.Key.String() != c.key {
			t.Errorf("%s gone: %+v, %v", c.key, u, err)
		}
	}
}

// An error names key and field, and the value counts as deleted.
func TestDecodeErrors(t *testing.T) {
	const workload, policy, node = "/calico/v1/host/n1/workload/k8s/w/endpoint/e", "/calico/v1/policy/tier/sec/policy/p", "/calico/resources/v3/projectcalico.org/nodes/n"
	inbound := func(rule string) string { return `{"inbound_rules":[{},{},` + rule + `]}` }
	for _, c := range []struct{ key, value, want string }{
		{workload, `{`, "unexpected end of JSON input"},
		{workload, `null`, "must not be null"},
		{workload, `[]`, "must not be a JSON array"},
		{workload, `{"name":"x"} {}`, "invalid character '{' after top-level value"},
		{workload, `{}`, "name: must not be empty"},
		{workload, `{"name":7}`, "name: must not be a JSON number"},
		{workload, `{"name":"x","mac":"zz"}`, `mac: "zz" is not a MAC address`},
		{workload, `{"name":"x","ipv4_nets":["10.0.0.1/32","10.0.0.0/33"]}`, `ipv4_nets[1]: "10.0.0.0/33" is not a network`},
		{workload, `{"name":"x","ipv4_nets":["fd00::1/128"]}`, `ipv4_nets[0]: fd00::1/128 is of the other family`},
		{workload, `{"name":"x","ipv4_nets":["::ffff:1.2.3.4/128"]}`, `ipv4_nets[0]: "::ffff:1.2.3.4/128" is not a network`},
		{workload, `{"name":"x","ipv6_nets":"fd00::1"}`, "ipv6_nets: must not be a JSON string"},
		{workload, `{"name":"x","ipv4_nat":[{"int_ip":"x","ext_ip":"1.2.3.4"}]}`, `ipv4_nat[0].int_ip: "x" is not an IP address`},
		{workload, `{"name":"x","ports":[{"name":"a","protocol":"tcp","port":1},{"name":"a","protocol":"tcp","port":70000}]}`, "ports[1].port: must not be a JSON number 70000"},
		{workload, `{"name":"x","ports":[{"name":"a","protocol":"ip","port":1}]}`, `ports[0].protocol: "ip" is not a protocol`},
		{workload, `{"name":"x","ports":[{"name":"a","protocol":300,"port":1}]}`, "ports[0].protocol: must be a string or 0 to 255, not 300"},
		{workload, `{"name":"x","qosControls":{"dscp":64}}`, `qosControls.dscp: "64" is not a code point`},
		{workload, `{"name":"x","qosControls":{"dscp":"AF44"}}`, `qosControls.dscp: "AF44" is not a code point`},
		{"/calico/v1/host/n1/endpoint/h", `{"expected_ipv6_addrs":["1.2.3.4"]}`, "expected_ipv6_addrs[0]: 1.2.3.4 is of the other family"},
		{"/calico/v1/netset/n", `{"nets":["x"]}`, `nets[0]: "x" is not a network`},
		{"/calico/v1/policy/tier/t/metadata", `{"defaultAction":"Allow"}`, `defaultAction: "Allow" must be Deny or Pass`},
		{"/calico/v1/policy/tier/t/metadata", `{"order":"1"}`, "order: must not be a JSON string"},
		{policy, inbound(`{"action":"reject"}`), `inbound_rules[2].action: "reject" must be allow, deny, log or next-tier`},
		{policy, inbound(`{"ip_version":5}`), "inbound_rules[2].ip_version: 5 must be 4 or 6"},
		{policy, inbound(`{"protocol":0}`), `inbound_rules[2].protocol: "0" is not a protocol`},
		{policy, inbound(`{"!protocol":"x"}`), `inbound_rules[2].!protocol: "x" is not a protocol`},
		{policy, inbound(`{"icmp_type":255}`), "inbound_rules[2].icmp_type: 255 must be 0 to 254"},
		{policy, inbound(`{"icmp_type":1,"icmp_code":256}`), "inbound_rules[2].icmp_code: 256 must be 0 to 255"},
		{policy, inbound(`{"!icmp_code":1}`), "inbound_rules[2].!icmp_code: needs a type"},
		{policy, inbound(`{"src_tag":"x"}`), "inbound_rules[2].src_tag: tags are not supported any more"},
		{policy, inbound(`{"src_net":"x"}`), `inbound_rules[2].src_net: "x" is not a network`},
		{policy, inbound(`{"!dst_nets":["10.0.0.0/8","x"]}`), `inbound_rules[2].!dst_nets[1]: "x" is not a network`},
		{policy, inbound(`{"dst_ports":[80,70000]}`), "inbound_rules[2].dst_ports[1]: must be a string or 0 to 65535, not 70000"},
		{policy, inbound(`{"dst_ports":["90:80"]}`), `inbound_rules[2].dst_ports[0]: "90:80" is not a port, a range of ports, or the name of one`},
		{policy, inbound(`{"dst_ports":["a b"]}`), `inbound_rules[2].dst_ports[0]: "a b" is not a port, a range of ports, or the name of one`},
		{policy, inbound(`{"http":{"methods":"GET"}}`), "inbound_rules[2].http.methods: must not be a JSON string"},
		{policy, `{"types":["ingress","both"]}`, `types[1]: "both" must be ingress or egress`},
		{"/calico/v1/policy/profile/p/labels", `{"a":1}`, "must not be a JSON number"},
		{"/calico/v1/ipam/v4/pool/10.0.0.0-8", `{"cidr":"x"}`, `cidr: "x" is not a network`},
		{"/calico/v1/ipam/v4/pool/10.0.0.0-8", `{"cidr":"10.0.0.0/8","ipip_mode":"maybe"}`, `ipip_mode: "maybe" must be always, cross-subnet or empty`},
		{"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-31", `{"cidr":"10.0.0.0/31","allocations":[null,null,null]}`, "allocations: more entries than the block has addresses"},
		{"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-31", `{"cidr":"10.0.0.0/31","allocations":[null,3]}`, "allocations[1]: attribute 3 does not exist"},
		{"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-31", `{"cidr":"10.0.0.0/30"}`, "cidr: 10.0.0.0/30 differs from the range in the key"},
		{"/calico/v1/host/n1/bird_ip", "fe80::1%eth0", `"fe80::1%eth0" is not an IP address`},
		{node, `{"spec":{"bgp":{"ipv4Address":"x"}}}`, `spec.bgp.ipv4Address: "x" is not a network`},
		{node, `{"spec":{"bgp":{"asNumber":"x"}}}`, `spec.bgp.asNumber: strconv.ParseUint: parsing "x": invalid syntax`},
		{"/calico/resources/v3/projectcalico.org/kubernetesservice/prod/web", `{"spec":{"ports":[{"port":0}]}}`, "Service prod/web: spec.ports[0].port"},
	} {
		u, err := Decode(c.key, []byte(c.value))
		var e *Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), c.key+": "+c.want) || e.Key != c.key {
			t.Errorf("%s %s: %v, want %s", c.key, c.value, err, c.want)
		}
		if u.Value != nil || u.Key.String() != c.key {
			t.Errorf("%s: %+v, want a deletion", c.key, u)
		}
	}
}

func TestCodePoints(t *testing.T) {
	for name, want := range map[string]uint8{
		"DF": 0, "ef": 46, "AF11": 10, "AF12": 12, "AF13": 14, "AF21": 18, "AF33": 30, "AF43": 38, "CS0": 0, "CS1": 8, " cs6 ": 48,
	} {
		if got, ok := dscpNamed(name); !ok || got != want {
			t.Errorf("%s: %d, %t, want %d", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "CS7", "AF10", "AF01", "AF14", "AF51", "XX"} {
		if got, ok := dscpNamed(name); ok {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("/calico/v1/policy/tier/sec/policy/p", []byte(wholePolicy))
	f.Add("/calico/v1/host/n1/workload/k8s/w/endpoint/e", []byte(`{"name":"x","ipv4_nets":["10.0.0.1/32"]}`))
	f.Add("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-31", []byte(`{"cidr":"10.0.0.0/31","allocations":[null,0],"attributes":[{}]}`))
	f.Add("/calico/resources/v3/projectcalico.org/nodes/n", []byte(`{"spec":{"bgp":{"asNumber":"1.2"}}}`))
	f.Add("/calico/resources/v3/projectcalico.org/kubernetesservice/prod/web", []byte(`{"spec":{"ports":[{"port":1}]}}`))
	f.Add("/calico/resources/v3/projectcalico.org/kubernetesendpointslices/prod/web", []byte(`{"endpoints":[{"addresses":["1.2.3.4"]}]}`))
	f.Add("/calico/resources/v3/projectcalico.org/bgpconfigurations/default", []byte(`{"spec":{"serviceClusterIPs":[{"cidr":"x"}]}}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		u, err := Decode(key, value)
		if err != nil && (u.Value != nil || !errors.As(err, new(*Error)) && !errors.Is(err, ErrUnknownKey)) {
			t.Errorf("%q %q: %+v, %v", key, value, u, err)
		}
	})
}
