package message

import (
	"fmt"
	"strings"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// Name returns the field of ToDataplane's oneof that a message has; "" if it is unknown.
func Name(m *pb.ToDataplane) string {
	switch m.Payload.(type) { // the frequent ones
	case *pb.ToDataplane_ActivePolicyUpdate:
		return "active_policy_update"
	case *pb.ToDataplane_IpsetDeltaUpdate:
		return "ipset_delta_update"
	}
	r := m.ProtoReflect()
	if f := r.WhichOneof(r.Descriptor().Oneofs().ByName("payload")); f != nil {
		return string(f.Name())
	}
	return ""
}

// UnknownFields returns the field numbers of a message with an unknown payload: messages of a later Felix.
func UnknownFields(m *pb.ToDataplane) string {
	var numbers []string
	for f := range fields(m.ProtoReflect().GetUnknown()) {
		numbers = append(numbers, fmt.Sprint(f.number))
	}
	if len(numbers) == 0 {
		return "message without a payload"
	}
	return "message of field " + strings.Join(numbers, ", ")
}

// Complete reports whether a message names its object. An update without content is one of an empty object.
func Complete(m *pb.ToDataplane) bool {
	switch p := m.Payload.(type) {
	case *pb.ToDataplane_ActiveProfileUpdate:
		return p.ActiveProfileUpdate.GetId() != nil
	case *pb.ToDataplane_ActiveProfileRemove:
		return p.ActiveProfileRemove.GetId() != nil
	case *pb.ToDataplane_ActivePolicyUpdate:
		return p.ActivePolicyUpdate.GetId() != nil
	case *pb.ToDataplane_ActivePolicyRemove:
		return p.ActivePolicyRemove.GetId() != nil
	case *pb.ToDataplane_HostEndpointUpdate:
		if p.HostEndpointUpdate.GetId() != nil && p.HostEndpointUpdate.Endpoint == nil {
			p.HostEndpointUpdate.Endpoint = &pb.HostEndpoint{}
		}
		return p.HostEndpointUpdate.GetId() != nil
	case *pb.ToDataplane_HostEndpointRemove:
		return p.HostEndpointRemove.GetId() != nil
	case *pb.ToDataplane_WorkloadEndpointUpdate:
		if p.WorkloadEndpointUpdate.GetId() != nil && p.WorkloadEndpointUpdate.Endpoint == nil {
			p.WorkloadEndpointUpdate.Endpoint = &pb.WorkloadEndpoint{}
		}
		return p.WorkloadEndpointUpdate.GetId() != nil
	case *pb.ToDataplane_WorkloadEndpointRemove:
		return p.WorkloadEndpointRemove.GetId() != nil
	}
	return true
}

// UnknownValue returns an unknown value in a message, where that matters: "IP version 5 of a rule"; "" if there is none. The message
// is kept: renderer/acl fails closed on unknown values.
func UnknownValue(m *pb.ToDataplane) string {
	switch p := m.Payload.(type) {
	case *pb.ToDataplane_IpsetUpdate:
		if t := p.IpsetUpdate.GetType(); pb.IPSetUpdate_IPSetType_name[int32(t)] == "" {
			return fmt.Sprintf("type %d of a set", t)
		}
	case *pb.ToDataplane_ActivePolicyUpdate:
		return oddRule(p.ActivePolicyUpdate.GetPolicy().GetInboundRules(), p.ActivePolicyUpdate.GetPolicy().GetOutboundRules())
	case *pb.ToDataplane_ActiveProfileUpdate:
		return oddRule(p.ActiveProfileUpdate.GetProfile().GetInboundRules(), p.ActiveProfileUpdate.GetProfile().GetOutboundRules())
	}
	return ""
}

func oddRule(lists ...[]*pb.Rule) string {
	for _, rules := range lists {
		for _, r := range rules {
			for f := range fields(r.ProtoReflect().GetUnknown()) {
				return fmt.Sprintf("field %d of a rule", f.number)
			}
			if v := r.GetIpVersion(); v != pb.IPVersion_ANY && pb.IPVersion_name[int32(v)] == "" {
				return fmt.Sprintf("IP version %d of a rule", v)
			}
		}
	}
	return ""
}
