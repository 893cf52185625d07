package calc

import (
	"github.com/contiv-agent/contiv-agent/calc/cidr"
	"github.com/contiv-agent/contiv-agent/model"
)

// serviceIndex follows the endpoints of the services that rules name.
type serviceIndex struct {
	slices    map[model.SliceID]*model.EndpointSlice
	byService map[model.ServiceID]map[model.SliceID]bool
	// counts is the number of endpoints behind each member, for services in use only.
	counts map[*ipset]map[member]int
	users  map[model.ServiceID]map[*ipset]bool
}

func newServiceIndex() serviceIndex {
	return serviceIndex{
		slices:    map[model.SliceID]*model.EndpointSlice{},
		byService: map[model.ServiceID]map[model.SliceID]bool{},
		counts:    map[*ipset]map[member]int{},
		users:     map[model.ServiceID]map[*ipset]bool{},
	}
}

// eachMember calls f with the members that a slice adds to the set. As in Felix, readiness does not matter: a policy
// that allows a service allows its endpoints whether they are ready or not.
func eachMember(s *ipset, slice *model.EndpointSlice, f func(member)) {
	for _, ep := range slice.Endpoints {
		if !ep.Addr.IsValid() {
			continue
		}
		host := cidr.Host(ep.Addr)
		if !s.withPorts {
			f(member{CIDR: host})
			continue
		}
		for _, p := range slice.Ports {
			if p.Protocol == model.TCP || p.Protocol == model.UDP || p.Protocol == model.SCTP {
				f(member{CIDR: host, port: p.Port, proto: p.Protocol})
			}
		}
	}
}

// start begins to follow a service's set and returns its members.
func (x *serviceIndex) start(s *ipset) []member {
	if x.users[s.service] == nil {
		x.users[s.service] = map[*ipset]bool{}
	}
	x.users[s.service][s] = true
	counts := map[member]int{}
	for id := range x.byService[s.service] {
		eachMember(s, x.slices[id], func(m member) { counts[m]++ })
	}
	x.counts[s] = counts
	list := make([]member, 0, len(counts))
	for m := range counts {
		list = append(list, m)
	}
	return list
}

func (x *serviceIndex) stop(s *ipset) {
	delete(x.counts, s)
	delete(x.users[s.service], s)
	if len(x.users[s.service]) == 0 {
		delete(x.users, s.service)
	}
}

// setSlice puts an EndpointSlice, or removes it if nil. It calls note for each member that a set gains or loses.
func (x *serviceIndex) setSlice(id model.SliceID, slice *model.EndpointSlice, note func(*ipset, member, bool)) {
	old := x.slices[id]
	if slice != nil {
		x.slices[id] = slice
		x.link(id, slice.Service)
		for s := range x.users[slice.Service] {
			eachMember(s, slice, func(m member) {
				if x.counts[s][m]++; x.counts[s][m] == 1 {
					note(s, m, true)
				}
			})
		}
	}
	if old == nil {
		return
	}
	for s := range x.users[old.Service] {
		eachMember(s, old, func(m member) {
			if x.counts[s][m]--; x.counts[s][m] == 0 {
				delete(x.counts[s], m)
				note(s, m, false)
			}
		})
	}
	if slice == nil {
		delete(x.slices, id)
	}
	if slice == nil || slice.Service != old.Service {
		delete(x.byService[old.Service], id)
		if len(x.byService[old.Service]) == 0 {
			delete(x.byService, old.Service)
		}
	}
}

func (x *serviceIndex) link(id model.SliceID, svc model.ServiceID) {
	if x.byService[svc] == nil {
		x.byService[svc] = map[model.SliceID]bool{}
	}
	x.byService[svc][id] = true
}
