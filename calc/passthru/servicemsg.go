package passthru

import (
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// sameService reports whether two versions of a Service give the same message.
func sameService(a, b *model.Service) bool {
	return a == b || proto.Equal(serviceMessage(a), serviceMessage(b))
}

func serviceUpdate(_ model.ServiceID, s *model.Service) *felix.ToDataplane {
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ServiceUpdate{ServiceUpdate: serviceMessage(s)}}
}

func serviceMessage(s *model.Service) *felix.ServiceUpdate {
	u := &felix.ServiceUpdate{
		Name: s.ID.Name, Namespace: s.ID.Namespace, Type: serviceType(s.Type), ClusterIps: addrTexts(s.ClusterIPs),
		ExternalIps: addrTexts(s.ExternalIPs), LoadbalancerIp: loadBalancerIP(s),
	}
	if s.Headless {
		u.ClusterIps = []string{"None"}
	}
	for _, p := range s.Ports {
		u.Ports = append(u.Ports, &felix.ServicePort{
			Protocol: p.Protocol.String(), Port: int32(p.Port), NodePort: int32(p.NodePort),
		})
	}
	return u
}

// loadBalancerIP is the address that the load balancer assigned. Felix sends the requested one, from a field that is
// long deprecated.
func loadBalancerIP(s *model.Service) string {
	if len(s.LoadBalancerIPs) == 0 {
		return ""
	}
	return s.LoadBalancerIPs[0].Addr.String()
}

func serviceType(t model.ServiceType) string {
	switch t {
	case model.NodePort:
		return "NodePort"
	case model.LoadBalancer:
		return "LoadBalancer"
	case model.ExternalName:
		return "ExternalName"
	}
	return "ClusterIP"
}

func addrTexts(list []netip.Addr) (out []string) {
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}

func serviceRemove(id model.ServiceID) *felix.ToDataplane {
	r := &felix.ServiceRemove{Name: id.Name, Namespace: id.Namespace}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ServiceRemove{ServiceRemove: r}}
}
