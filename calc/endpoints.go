package calc

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/calc/cidr"
	"github.com/contiv-agent/contiv-agent/calc/labelindex"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// endpointKey names a local endpoint on the wire: a workload by three names, a host endpoint by one.
type endpointKey struct {
	host                             bool
	orchestrator, workload, endpoint string
}

func workloadKey(id model.WorkloadID) endpointKey {
	return endpointKey{false, id.Orchestrator, id.Workload, id.Endpoint}
}

func hostKey(id model.HostEndpointID) endpointKey { return endpointKey{host: true, endpoint: id.Name} }

func (k endpointKey) compare(o endpointKey) int {
	if k.host != o.host {
		if k.host {
			return -1
		}
		return 1
	}
	return cmp.Or(strings.Compare(k.orchestrator, o.orchestrator), strings.Compare(k.workload, o.workload),
		strings.Compare(k.endpoint, o.endpoint))
}

// endpoint is a local endpoint. Exactly one of workload and host is set.
type endpoint struct {
	key      endpointKey
	handle   uint32
	workload *model.WorkloadEndpoint
	host     *model.HostEndpoint
	profiles []string
}

// endpoints resolves the tiers and policies of each local endpoint, in order.
type endpoints struct {
	policies *policies
	byKey    map[endpointKey]*endpoint
	byHandle []*endpoint
	handles  labelindex.Handles
	dirty    map[endpointKey]struct{}
	sent     map[endpointKey]sentEndpoint
	shared   map[uint64][]*tierShare // by hash
}

type sentEndpoint struct {
	msg   proto.Message
	tiers *tierShare
}

func newEndpoints(p *policies) *endpoints {
	x := &endpoints{
		policies: p, byKey: map[endpointKey]*endpoint{}, dirty: map[endpointKey]struct{}{},
		sent: map[endpointKey]sentEndpoint{}, shared: map[uint64][]*tierShare{},
	}
	p.stale = func(h uint32) { x.dirty[x.byHandle[h].key] = struct{}{} }
	return x
}

// setWorkload adds or updates a local workload endpoint.
func (x *endpoints) setWorkload(key endpointKey, w *model.WorkloadEndpoint) {
	ep := x.endpoint(key)
	ep.workload = w
	x.setEndpoint(ep, w.Labels, w.Profiles)
}

// setHost adds or updates a local host endpoint.
func (x *endpoints) setHost(key endpointKey, h *model.HostEndpoint) {
	ep := x.endpoint(key)
	ep.host = h
	x.setEndpoint(ep, h.Labels, h.Profiles)
}

func (x *endpoints) endpoint(key endpointKey) *endpoint {
	x.dirty[key] = struct{}{}
	ep := x.byKey[key]
	if ep == nil {
		ep = &endpoint{key: key, handle: x.handles.Assign()}
		for int(ep.handle) >= len(x.byHandle) {
			x.byHandle = append(x.byHandle, nil)
		}
		x.byHandle[ep.handle] = ep
		x.byKey[key] = ep
	}
	return ep
}

func (x *endpoints) setEndpoint(ep *endpoint, labels map[string]string, profiles []string) {
	x.policies.useProfiles(profiles, ep.profiles)
	ep.profiles = profiles
	added, removed := x.policies.local.SetItem(ep.handle, labels, profiles)
	x.policies.matched(ep.handle, added, removed)
}

// removeEndpoint removes a local endpoint.
func (x *endpoints) removeEndpoint(key endpointKey) {
	ep := x.byKey[key]
	if ep == nil {
		return
	}
	x.dirty[key] = struct{}{}
	x.policies.matched(ep.handle, nil, x.policies.local.DropItem(ep.handle))
	x.policies.useProfiles(nil, ep.profiles)
	delete(x.byKey, key)
	x.byHandle[ep.handle] = nil
	x.handles.GiveBack(ep.handle)
}

// flushEndpoints resolves what changed. The removes must be sent after the updates.
func (x *endpoints) flushEndpoints() (updates, removes []*felix.ToDataplane) {
	keys := make([]endpointKey, 0, len(x.dirty))
	for k := range x.dirty {
		keys = append(keys, k)
	}
	clear(x.dirty)
	slices.SortFunc(keys, endpointKey.compare)
	for _, key := range keys {
		ep, old := x.byKey[key], x.sent[key]
		if ep == nil {
			if old.msg != nil {
				delete(x.sent, key)
				x.unshare(old.tiers)
				removes = append(removes, endpointRemove(key))
			}
			continue
		}
		tiers := x.share(ep.handle)
		msg, update := resolve(ep, tiers.lists)
		if old.msg != nil && proto.Equal(old.msg, msg) {
			x.unshare(tiers)
			continue
		}
		x.sent[key] = sentEndpoint{msg, tiers}
		x.unshare(old.tiers)
		updates = append(updates, update)
	}
	return updates, removes
}

func resolve(ep *endpoint, t tierLists) (proto.Message, *felix.ToDataplane) {
	if ep.host != nil {
		msg := hostMessage(ep.host, t)
		u := &felix.HostEndpointUpdate{Id: &felix.HostEndpointID{EndpointId: ep.key.endpoint}, Endpoint: msg}
		return msg, &felix.ToDataplane{Payload: &felix.ToDataplane_HostEndpointUpdate{HostEndpointUpdate: u}}
	}
	msg := workloadMessage(ep.workload, t.normal)
	u := &felix.WorkloadEndpointUpdate{Id: workloadID(ep.key), Endpoint: msg}
	return msg, &felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointUpdate{WorkloadEndpointUpdate: u}}
}

func workloadID(k endpointKey) *felix.WorkloadEndpointID {
	return &felix.WorkloadEndpointID{OrchestratorId: k.orchestrator, WorkloadId: k.workload, EndpointId: k.endpoint}
}

func endpointRemove(k endpointKey) *felix.ToDataplane {
	if k.host {
		r := &felix.HostEndpointRemove{Id: &felix.HostEndpointID{EndpointId: k.endpoint}}
		return &felix.ToDataplane{Payload: &felix.ToDataplane_HostEndpointRemove{HostEndpointRemove: r}}
	}
	r := &felix.WorkloadEndpointRemove{Id: workloadID(k)}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointRemove{WorkloadEndpointRemove: r}}
}

func workloadMessage(w *model.WorkloadEndpoint, tiers []*felix.TierInfo) *felix.WorkloadEndpoint {
	msg := &felix.WorkloadEndpoint{
		State: w.State, Name: w.Interface, Mac: w.MAC, ProfileIds: w.Profiles, Tiers: tiers,
		AllowSpoofedSourcePrefixes: cidr.Texts(w.AllowSpoofedSources), Annotations: w.Annotations,
		QosControls: qosControls(w.QoS), QosPolicies: qosPolicies(w.QoS), SkipRedir: skipRedirection(w),
	}
	for _, n := range w.Nets {
		if n.Addr().Is4() {
			msg.Ipv4Nets = append(msg.Ipv4Nets, n.String())
		} else {
			msg.Ipv6Nets = append(msg.Ipv6Nets, n.String())
		}
	}
	for _, n := range w.NAT {
		info := &felix.NatInfo{ExtIp: n.External.String(), IntIp: n.Internal.String()}
		if n.Internal.Is4() {
			msg.Ipv4Nat = append(msg.Ipv4Nat, info)
		} else {
			msg.Ipv6Nat = append(msg.Ipv6Nat, info)
		}
	}
	return msg
}

func hostMessage(h *model.HostEndpoint, t tierLists) *felix.HostEndpoint {
	msg := &felix.HostEndpoint{
		Name: h.Interface, ProfileIds: h.Profiles, Tiers: t.normal,
		UntrackedTiers: t.untracked, PreDnatTiers: t.preDNAT, ForwardTiers: t.forward, QosPolicies: qosPolicies(h.QoS),
	}
	for _, a := range h.Addrs {
		if a.Is4() {
			msg.ExpectedIpv4Addrs = append(msg.ExpectedIpv4Addrs, a.String())
		} else {
			msg.ExpectedIpv6Addrs = append(msg.ExpectedIpv6Addrs, a.String())
		}
	}
	return msg
}

func qosControls(q *model.QoS) *felix.QoSControls {
	if q == nil {
		return nil
	}
	in, out := q.Ingress, q.Egress
	return &felix.QoSControls{
		IngressBandwidth: in.Bandwidth, IngressBurst: in.Burst, IngressPeakrate: in.PeakRate, IngressMinburst: in.MinBurst,
		IngressPacketRate: in.PacketRate, IngressPacketBurst: in.PacketBurst, IngressMaxConnections: in.MaxConnections,
		EgressBandwidth: out.Bandwidth, EgressBurst: out.Burst, EgressPeakrate: out.PeakRate, EgressMinburst: out.MinBurst,
		EgressPacketRate: out.PacketRate, EgressPacketBurst: out.PacketBurst, EgressMaxConnections: out.MaxConnections,
	}
}

func qosPolicies(q *model.QoS) []*felix.QoSPolicy {
	if q == nil || !q.HasDSCP {
		return nil
	}
	return []*felix.QoSPolicy{{Dscp: int32(q.DSCP)}}
}

// skipRedirection says in which directions eBPF redirection must not bypass rate limits. Towards a virtual machine it
// is never allowed.
func skipRedirection(w *model.WorkloadEndpoint) *felix.WorkloadBpfSkipRedir {
	skip := &felix.WorkloadBpfSkipRedir{Ingress: w.Labels["kubevirt.io"] == "virt-launcher"}
	if w.QoS != nil {
		skip.Ingress = skip.Ingress || w.QoS.Ingress.Bandwidth > 0 || w.QoS.Ingress.PacketRate > 0
		skip.Egress = w.QoS.Egress.Bandwidth > 0 || w.QoS.Egress.PacketRate > 0
	}
	if !skip.Ingress && !skip.Egress {
		return nil
	}
	return skip
}
