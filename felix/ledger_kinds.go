package felix

import (
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// thingKind is a kind of things, in the order their updates are told in (Felix v3.31, felix/calc/event_sequencer.go).
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

// lastStep is how many steps a round has.
const lastStep = 3 * int(lastKind)

// stepOf is the place of messages in a round. Everything that policies and endpoints are made of comes in the order of the
// kinds, and goes, after all that, in the reverse order; of all other kinds, what goes goes first.
func stepOf(k thingKind, gone bool) int {
	switch {
	case k <= kindWorkload && !gone:
		return int(k)
	case k <= kindWorkload:
		return 2*int(kindWorkload) - int(k) + 1
	case k == kindRoute && gone: // a route leads through a tunnel's end: it goes before, and comes after it
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

// classify names the thing a message is about, and tells whether it is gone; kindNone: none that is kept.
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

// classifyNode is classify for what is about nodes and what leads to them.
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
