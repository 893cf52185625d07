package datastore

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

func (r *reader) workload(data []byte) *model.WorkloadEndpoint {
	var v WorkloadEndpoint
	r.unmarshal(data, &v)
	w := &model.WorkloadEndpoint{
		ID:    model.WorkloadID{Node: r.key.Node, Orchestrator: r.key.Orchestrator, Workload: r.key.Workload, Endpoint: r.key.Name},
		State: v.State, Interface: v.Name, Profiles: v.ProfileIDs, Labels: v.Labels, Annotations: v.Annotations,
		Nets:                append(r.family("ipv4_nets", true, v.IPv4Nets), r.family("ipv6_nets", false, v.IPv6Nets)...),
		AllowSpoofedSources: r.networks("allow_spoofed_source_ips", v.AllowSpoofedSources...),
		Ports:               r.namedPorts(v.Ports), QoS: r.qos(v.QoS),
	}
	if v.Name == "" {
		r.failField("name", "must not be empty")
	}
	if v.MAC != nil && *v.MAC != "" {
		mac, err := net.ParseMAC(*v.MAC)
		if err != nil {
			r.failField("mac", "%.100q is not a MAC address", *v.MAC)
		}
		w.MAC = mac.String()
	}
	for _, list := range []struct {
		field string
		nat   []IPNAT
	}{{"ipv4_nat", v.IPv4NAT}, {"ipv6_nat", v.IPv6NAT}} {
		for i, n := range list.nat {
			f := fieldAt(list.field, i)
			w.NAT = append(w.NAT, model.AddressPair{External: r.addr(f+".ext_ip", n.External), Internal: r.addr(f+".int_ip", n.Internal)})
		}
	}
	return w
}

// family reads networks that must have one family.
func (r *reader) family(field string, v4 bool, list []string) []netip.Prefix {
	out := r.networks(field, list...)
	for i, p := range out {
		if p.Addr().Is4() != v4 {
			r.failField(fieldAt(field, i), "%s is of the other family", list[i])
		}
	}
	return out
}

func (r *reader) namedPorts(list []EndpointPort) []model.NamedPort {
	var out []model.NamedPort
	for i, p := range list {
		proto, ok := endpointProtocol(p.Protocol)
		if !ok {
			r.failField(fieldAt("ports", i)+".protocol", "%.100q is not a protocol", p.Protocol)
		}
		out = append(out, model.NamedPort{Name: p.Name, Protocol: proto, Port: p.Port})
	}
	return out
}

// endpointProtocol reads a protocol: a number, or a name in any case.
func endpointProtocol(w Word) (model.Protocol, bool) {
	name, number, ok := protocolOf(w)
	switch name {
	case "":
		return model.Protocol(number), ok
	case "tcp":
		return model.TCP, true
	case "udp":
		return model.UDP, true
	case "sctp":
		return model.SCTP, true
	case "icmp":
		return model.ICMP, true
	case "icmpv6":
		return model.ICMPv6, true
	}
	return 136, ok // udplite
}

// protocolOf returns the lower-case name of a protocol, or its number.
func protocolOf(w Word) (name string, number uint8, ok bool) {
	if n, err := strconv.ParseUint(string(w), 10, 8); err == nil {
		return "", uint8(n), n > 0
	}
	name = strings.ToLower(string(w))
	return name, 0, slices.Contains([]string{"tcp", "udp", "icmp", "icmpv6", "sctp", "udplite"}, name)
}

func (r *reader) qos(q *QoSControls) *model.QoS {
	if q == nil {
		return nil
	}
	out := &model.QoS{
		Ingress: model.RateLimits{
			Bandwidth: q.IngressBandwidth, Burst: q.IngressBurst, PeakRate: q.IngressPeakrate, MinBurst: q.IngressMinburst,
			PacketRate: q.IngressPacketRate, PacketBurst: q.IngressPacketBurst, MaxConnections: q.IngressMaxConnections,
		},
		Egress: model.RateLimits{
			Bandwidth: q.EgressBandwidth, Burst: q.EgressBurst, PeakRate: q.EgressPeakrate, MinBurst: q.EgressMinburst,
			PacketRate: q.EgressPacketRate, PacketBurst: q.EgressPacketBurst, MaxConnections: q.EgressMaxConnections,
		},
	}
	if q.DSCP == nil {
		return out
	}
	out.HasDSCP = true
	if n, err := strconv.ParseUint(string(*q.DSCP), 10, 8); err == nil && n < 64 {
		out.DSCP = uint8(n)
	} else if out.DSCP, out.HasDSCP = dscpNamed(string(*q.DSCP)); !out.HasDSCP {
		r.failField("qosControls.dscp", "%.100q is not a code point", *q.DSCP)
	}
	return out
}

// dscpNamed returns the code point of a name: DF, EF, CS0 to CS6, AF11 to AF43 (RFC 2474, 2597, 3246; those Calico v3.31
// accepts).
func dscpNamed(name string) (uint8, bool) {
	name = strings.ToUpper(strings.TrimSpace(name))
	switch name {
	case "DF":
		return 0, true
	case "EF":
		return 46, true
	}
	for class := uint8(0); class < 7; class++ {
		if name == fmt.Sprintf("CS%d", class) {
			return class * 8, true
		}
		for drop := uint8(1); drop < 4 && class > 0 && class < 5; drop++ {
			if name == fmt.Sprintf("AF%d%d", class, drop) {
				return class*8 + drop*2, true
			}
		}
	}
	return 0, false
}

func (r *reader) hostEndpoint(data []byte) *model.HostEndpoint {
	var v HostEndpoint
	r.unmarshal(data, &v)
	return &model.HostEndpoint{
		ID: model.HostEndpointID{Node: r.key.Node, Name: r.key.Name}, Interface: v.Name, Profiles: v.ProfileIDs, Labels: v.Labels,
		Addrs: append(r.addrs("expected_ipv4_addrs", true, v.ExpectedIPv4Addrs), r.addrs("expected_ipv6_addrs", false, v.ExpectedIPv6Addrs)...),
		Ports: r.namedPorts(v.Ports), QoS: r.qos(v.QoS),
	}
}

func (r *reader) addrs(field string, v4 bool, list []string) []netip.Addr {
	var out []netip.Addr
	for i, text := range list {
		a := r.addr(fieldAt(field, i), text)
		if a.Is4() != v4 {
			r.failField(fieldAt(field, i), "%s is of the other family", text)
		}
		out = append(out, a)
	}
	return out
}

func (r *reader) networkSet(data []byte) *model.NetworkSet {
	var v NetworkSet
	r.unmarshal(data, &v)
	return &model.NetworkSet{Name: r.key.Name, Nets: r.networks("nets", v.Nets...), Labels: v.Labels, Profiles: v.ProfileIDs}
}
