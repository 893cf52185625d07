package core

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// Limits of discovery/v1 EndpointSlice.
const (
	maxEndpoints = 1000
	maxPorts     = 20000
	maxHints     = 8
)

// EndpointSlice reads an EndpointSlice; host names (address type FQDN) convert to nothing, without an error.
func EndpointSlice(o *discoveryv1.EndpointSlice) (*model.EndpointSlice, *check.Problems) {
	ps := &problems{check.Problems{Ref: Namespaced(model.KindEndpointSlice, &o.ObjectMeta)}}
	if o.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, nil
	}
	ps.Names(&o.ObjectMeta, check.Subdomain)
	s := &model.EndpointSlice{
		ID:   model.SliceID{Namespace: ps.Ref.Namespace, Name: o.Name},
		IPv6: o.AddressType == discoveryv1.AddressTypeIPv6,
	}
	if !s.IPv6 && o.AddressType != discoveryv1.AddressTypeIPv4 {
		ps.Add("addressType", "must be IPv4, IPv6 or FQDN", string(o.AddressType))
	}
	if name := o.Labels[discoveryv1.LabelServiceName]; name != "" {
		s.Service = model.ServiceID{Namespace: ps.Ref.Namespace, Name: name}
	}
	// Not an API field: an unreadable time only loses a latency measurement.
	if t, err := time.Parse(time.RFC3339Nano, o.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
		s.TriggerTime = t.UTC()
	}
	s.Ports = ps.slicePorts(o.Ports)
	s.Endpoints = ps.endpoints(o.Endpoints, s)
	return s, &ps.Problems
}

// slicePorts reads the ports that have a number. Like kube-proxy it drops a port without a number or with 0, which is legal
// in slices that belong to no Service.
func (ps *problems) slicePorts(list []discoveryv1.EndpointPort) []model.EndpointPort {
	if len(list) > maxPorts {
		ps.Add("ports", "must have at most "+strconv.Itoa(maxPorts)+" entries", len(list))
		return nil
	}
	var out []model.EndpointPort
	seen := map[string]bool{}
	for i := range list {
		in, f := &list[i], check.ElementPath("ports", i)
		p := model.EndpointPort{Protocol: model.TCP}
		if in.Name != nil {
			p.Name = *in.Name
		}
		if p.Name != "" {
			check.Label(&ps.Problems, f+".name", p.Name)
		}
		if seen[p.Name] {
			ps.Add(f+".name", "must be unique within the slice", p.Name)
		}
		seen[p.Name] = true
		if in.Protocol != nil {
			p.Protocol = ps.Protocol(f+".protocol", *in.Protocol)
		}
		if in.Port != nil && *in.Port != 0 {
			p.Port = ps.ReadPort(f+".port", *in.Port)
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b model.EndpointPort) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (ps *problems) endpoints(list []discoveryv1.Endpoint, s *model.EndpointSlice) []model.Endpoint {
	if len(list) > maxEndpoints {
		ps.Add("endpoints", "must have at most "+strconv.Itoa(maxEndpoints)+" entries", len(list))
		return nil
	}
	var out []model.Endpoint
	for i := range list {
		out = append(out, ps.endpoint(check.ElementPath("endpoints", i), &list[i], s))
	}
	slices.SortStableFunc(out, func(a, b model.Endpoint) int {
		return cmp.Or(a.Addr.Compare(b.Addr), a.Pod.Compare(b.Pod))
	})
	return out
}

func (ps *problems) endpoint(f string, in *discoveryv1.Endpoint, s *model.EndpointSlice) model.Endpoint {
	is := func(b *bool, missing bool) bool {
		if b == nil {
			return missing
		}
		return *b
	}
	e := model.Endpoint{
		Addr:        ps.endpointAddrs(f+".addresses", in.Addresses, s),
		Ready:       is(in.Conditions.Ready, true),
		Serving:     is(in.Conditions.Serving, true),
		Terminating: is(in.Conditions.Terminating, false),
	}
	if in.NodeName != nil && *in.NodeName != "" {
		e.NodeName = *in.NodeName
		check.Subdomain(&ps.Problems, f+".nodeName", e.NodeName)
	}
	if in.Zone != nil {
		e.Zone = *in.Zone
	}
	if t := in.TargetRef; t != nil && t.Kind == "Pod" && t.Name != "" {
		e.Pod = model.PodID{Name: t.Name, Namespace: cmp.Or(t.Namespace, s.ID.Namespace)}
	}
	if h := in.Hints; h != nil {
		for _, z := range h.ForZones {
			e.ForZones = append(e.ForZones, z.Name)
		}
		for _, n := range h.ForNodes {
			e.ForNodes = append(e.ForNodes, n.Name)
		}
		e.ForZones, e.ForNodes = ps.hints(f+".hints.forZones", e.ForZones), ps.hints(f+".hints.forNodes", e.ForNodes)
	}
	return e
}

// endpointAddrs checks all addresses of an endpoint and returns the first one, as kube-proxy does.
func (ps *problems) endpointAddrs(f string, list []string, s *model.EndpointSlice) (first netip.Addr) {
	if len(list) == 0 || len(list) > 100 {
		ps.Add(f, "must have 1 to 100 entries", len(list))
		return
	}
	for i, text := range list {
		a := ps.HostAddr(check.ElementPath(f, i), text)
		if a.IsValid() && a.Is6() != s.IPv6 {
			ps.Add(check.ElementPath(f, i), "must be of the slice's addressType", text)
		}
		if i == 0 {
			first = a
		}
	}
	return first
}

func (ps *problems) hints(f string, list []string) []string {
	if len(list) > maxHints {
		ps.Add(f, "must have at most "+strconv.Itoa(maxHints)+" entries", len(list))
	}
	if slices.Contains(list, "") {
		ps.Add(f, "must not name an empty zone or node", nil)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func itoa(n uint16) string { return strconv.Itoa(int(n)) }
