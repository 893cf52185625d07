package felix

import (
	"cmp"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// thingKind is a kind of things, in the order in which their updates are sent (Felix v3.31, felix/calc/event_sequencer.go).
type thingKind uint8

const (
	kindNone thingKind = iota
	kindConfig
	kindSet
	kindPolicy
	kindProfile
	kindHostEndpoint
	kindWorkload
	kindAccount
	kindNamespace
	kindVTEP
	kindRoute
	kindWireguard
	kindWireguard6
	kindHost
	kindHost6
	kindHostBoth
	kindPool
	kindEncapsulation
	kindBGP
	kindService
	lastKind
)

// lastStep is the number of steps in a round.
const lastStep = 3 * int(lastKind)

// stepOf returns the step of a round in which a message is sent. Parts of policies and endpoints are added in the order of
// the kinds, and removed in reverse order after all additions. For all other kinds removals are first.
func stepOf(k thingKind, gone bool) int {
	switch {
	case k <= kindWorkload && !gone:
		return int(k)
	case k <= kindWorkload:
		return 2*int(kindWorkload) - int(k) + 1
	case k == kindRoute && gone: // a route uses a tunnel's end: it is removed before the tunnel, and added after it
		return 2*int(kindVTEP) + int(lastKind)
	case k == kindVTEP && gone:
		return 2*int(kindVTEP) + int(lastKind) + 1
	case k == kindVTEP:
		return 2*int(kindRoute) + int(lastKind)
	case gone:
		return 2*int(k) + int(lastKind)
	}
	return 2*int(k) + int(lastKind) + 1
}

// classify returns the thing that a message is about, and whether it removes the thing; kindNone: the ledger does not keep
// it.
func classify(m *pb.ToDataplane) (key thingKey, gone bool) {
	switch p := m.Payload.(type) {
	case *pb.ToDataplane_ConfigUpdate:
		return thingKey{kind: kindConfig}, false
	case *pb.ToDataplane_ActivePolicyUpdate:
		return policyThing(p.ActivePolicyUpdate.Id), false
	case *pb.ToDataplane_ActivePolicyRemove:
		return policyThing(p.ActivePolicyRemove.Id), true
	case *pb.ToDataplane_ActiveProfileUpdate:
		return thingKey{kind: kindProfile, a: p.ActiveProfileUpdate.GetId().GetName()}, false
	case *pb.ToDataplane_ActiveProfileRemove:
		return thingKey{kind: kindProfile, a: p.ActiveProfileRemove.GetId().GetName()}, true
	case *pb.ToDataplane_HostEndpointUpdate:
		return thingKey{kind: kindHostEndpoint, a: p.HostEndpointUpdate.GetId().GetEndpointId()}, false
	case *pb.ToDataplane_HostEndpointRemove:
		return thingKey{kind: kindHostEndpoint, a: p.HostEndpointRemove.GetId().GetEndpointId()}, true
	case *pb.ToDataplane_WorkloadEndpointUpdate:
		return workloadThing(p.WorkloadEndpointUpdate.GetId()), false
	case *pb.ToDataplane_WorkloadEndpointRemove:
		return workloadThing(p.WorkloadEndpointRemove.GetId()), true
	case *pb.ToDataplane_ServiceAccountUpdate:
		return accountThing(p.ServiceAccountUpdate.GetId()), false
	case *pb.ToDataplane_ServiceAccountRemove:
		return accountThing(p.ServiceAccountRemove.GetId()), true
	case *pb.ToDataplane_NamespaceUpdate:
		return thingKey{kind: kindNamespace, a: p.NamespaceUpdate.GetId().GetName()}, false
	case *pb.ToDataplane_NamespaceRemove:
		return thingKey{kind: kindNamespace, a: p.NamespaceRemove.GetId().GetName()}, true
	}
	return classifyNode(m)
}

// classifyNode is classify for messages about nodes and routes.
func classifyNode(m *pb.ToDataplane) (key thingKey, gone bool) {
	switch p := m.Payload.(type) {
	case *pb.ToDataplane_RouteUpdate:
		return thingKey{kind: kindRoute, a: p.RouteUpdate.GetDst()}, false
	case *pb.ToDataplane_RouteRemove:
		return thingKey{kind: kindRoute, a: p.RouteRemove.GetDst()}, true
	case *pb.ToDataplane_VtepUpdate:
		return thingKey{kind: kindVTEP, a: p.VtepUpdate.GetNode()}, false
	case *pb.ToDataplane_VtepRemove:
		return thingKey{kind: kindVTEP, a: p.VtepRemove.GetNode()}, true
	case *pb.ToDataplane_WireguardEndpointUpdate:
		return thingKey{kind: kindWireguard, a: p.WireguardEndpointUpdate.GetHostname()}, false
	case *pb.ToDataplane_WireguardEndpointRemove:
		return thingKey{kind: kindWireguard, a: p.WireguardEndpointRemove.GetHostname()}, true
	case *pb.ToDataplane_WireguardEndpointV6Update:
		return thingKey{kind: kindWireguard6, a: p.WireguardEndpointV6Update.GetHostname()}, false
	case *pb.ToDataplane_WireguardEndpointV6Remove:
		return thingKey{kind: kindWireguard6, a: p.WireguardEndpointV6Remove.GetHostname()}, true
	case *pb.ToDataplane_HostMetadataUpdate:
		return thingKey{kind: kindHost, a: p.HostMetadataUpdate.GetHostname()}, false
	case *pb.ToDataplane_HostMetadataRemove:
		return thingKey{kind: kindHost, a: p.HostMetadataRemove.GetHostname()}, true
	case *pb.ToDataplane_HostMetadataV6Update:
		return thingKey{kind: kindHost6, a: p.HostMetadataV6Update.GetHostname()}, false
	case *pb.ToDataplane_HostMetadataV6Remove:
		return thingKey{kind: kindHost6, a: p.HostMetadataV6Remove.GetHostname()}, true
	case *pb.ToDataplane_HostMetadataV4V6Update:
		return thingKey{kind: kindHostBoth, a: p.HostMetadataV4V6Update.GetHostname()}, false
	case *pb.ToDataplane_HostMetadataV4V6Remove:
		return thingKey{kind: kindHostBoth, a: p.HostMetadataV4V6Remove.GetHostname()}, true
	case *pb.ToDataplane_IpamPoolUpdate:
		return thingKey{kind: kindPool, a: p.IpamPoolUpdate.GetId()}, false
	case *pb.ToDataplane_IpamPoolRemove:
		return thingKey{kind: kindPool, a: p.IpamPoolRemove.GetId()}, true
	case *pb.ToDataplane_Encapsulation:
		return thingKey{kind: kindEncapsulation}, false
	case *pb.ToDataplane_GlobalBgpConfigUpdate:
		return thingKey{kind: kindBGP}, false
	case *pb.ToDataplane_ServiceUpdate:
		return thingKey{kind: kindService, a: p.ServiceUpdate.GetNamespace(), b: p.ServiceUpdate.GetName()}, false
	case *pb.ToDataplane_ServiceRemove:
		return thingKey{kind: kindService, a: p.ServiceRemove.GetNamespace(), b: p.ServiceRemove.GetName()}, true
	}
	return thingKey{}, false
}

func policyThing(id *pb.PolicyID) thingKey {
	return thingKey{kind: kindPolicy, a: id.GetTier(), b: id.GetName()}
}

func workloadThing(id *pb.WorkloadEndpointID) thingKey {
	return thingKey{kind: kindWorkload, a: id.GetOrchestratorId(), b: id.GetWorkloadId(), c: id.GetEndpointId()}
}

func accountThing(id *pb.ServiceAccountID) thingKey {
	return thingKey{kind: kindAccount, a: id.GetNamespace(), b: id.GetName()}
}

// thingKey identifies a thing of any kind.
type thingKey struct {
	kind    thingKind
	a, b, c string
}

func (k thingKey) compare(o thingKey) int {
	return cmp.Or(cmp.Compare(k.kind, o.kind), cmp.Compare(k.a, o.a), cmp.Compare(k.b, o.b), cmp.Compare(k.c, o.c))
}
