package calc

import (
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/selector"
)

// ipset is one IP set that rules name: everything that a selector matches, a named port of it, or the endpoints of a
// service. Rules with equal sets share one ipset.
type ipset struct {
	id        string
	kind      felix.IPSetUpdate_IPSetType
	sel       *selector.Selector // nil for a service's set
	port      string             // name of a port; "" for whole endpoints
	proto     model.Protocol
	service   model.ServiceID
	withPorts bool

	refs   int    // number of rule lists that name it
	handle uint32 // its number in the label index
	live   bool   // sent; its members are followed
	delta  map[member]bool
}

func selectorSet(sel *selector.Selector) *ipset {
	return &ipset{id: sel.UniqueID(), kind: felix.IPSetUpdate_NET, sel: sel}
}

func portSet(sel *selector.Selector, proto model.Protocol, port string) *ipset {
	id := sel.NamedPortID(protocolName(proto), port)
	return &ipset{id: id, kind: felix.IPSetUpdate_IP_AND_PORT, sel: sel, port: port, proto: proto}
}

func serviceSet(svc model.ServiceID, withPorts bool) *ipset {
	s := &ipset{service: svc, withPorts: withPorts}
	if withPorts {
		s.id, s.kind = selector.ServiceID(svc.Namespace, svc.Name), felix.IPSetUpdate_IP_AND_PORT
	} else {
		s.id, s.kind = selector.ServiceNoPortID(svc.Namespace, svc.Name), felix.IPSetUpdate_NET
	}
	return s
}

// changeMember records that a member was added or removed since the last flush. An addition and a removal cancel out.
func (s *ipset) changeMember(m member, added bool) {
	if was, ok := s.delta[m]; ok && was != added {
		delete(s.delta, m)
		return
	}
	if s.delta == nil {
		s.delta = map[member]bool{}
	}
	s.delta[m] = added
}
