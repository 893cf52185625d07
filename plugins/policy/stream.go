package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// stream is a processor's state from messages.
type stream struct {
	p        *Processor
	override event.Located
	queue    []*felix.ToDataplane // received and not yet absorbed
	absorbed []*felix.ToDataplane // absorbed and not yet sent to the driver

	hostname  string // name of this node in the calculation graph; "": not received yet
	endpoints map[endpointID]*streamed
	nodes     map[string][]netip.Addr            // addresses of nodes
	own       map[netip.Prefix]struct{}          // routes to this node itself
	local     map[netip.Prefix]struct{}          // routes to workloads of this node
	remote    map[netip.Prefix]struct{}          // routes to workloads of other nodes
	leads     []netip.Prefix                     // the first of remote, sorted
	services  map[model.ServiceID][]netip.Prefix // cluster IPs

	located *event.Located // VPP's last answer; nil: none
	before  *event.Located // the answer before the last question
	asked   bool           // the processor asked VPP at least once
	version uint64         // counts the changes of Endpoints
	dirty   bool           // the lookups in VPP changed
	missing bool           // some endpoint has no interface
	pause   time.Duration  // until the next lookup of missing interfaces
	askAt   time.Time
}

// endpointID identifies a workload endpoint of this node.
type endpointID struct{ orchestrator, workload, endpoint string }

func (id endpointID) compare(o endpointID) int {
	return cmp.Or(cmp.Compare(id.workload, o.workload), cmp.Compare(id.endpoint, o.endpoint), cmp.Compare(id.orchestrator, o.orchestrator))
}

// streamed is a workload endpoint.
type streamed struct {
	id    *felix.WorkloadEndpointID
	msg   *felix.WorkloadEndpoint
	pod   model.PodID
	addrs []netip.Addr
}

// Dataplane receives messages; the driver gets them with the next Flush or Resync.
func (p *Processor) Dataplane(ev *event.Dataplane) {
	if p.stream != nil {
		p.stream.queue = append(p.stream.queue, ev.Messages...)
	}
}

// news returns the messages that the driver has not received.
func (p *Processor) news() []*felix.ToDataplane {
	if p.stream == nil {
		return p.gate.Flush()
	}
	p.stream.absorb()
	messages := p.stream.absorbed
	p.stream.absorbed = nil
	return p.gate.Pass(messages)
}

// absorb records the received messages. The processor looks up endpoints in VPP before it sends the driver the first endpoint. So
// the lists that an earlier run of this process attached to their interfaces stay attached.
func (s *stream) absorb() {
	for _, m := range s.queue {
		s.record(m)
	}
	s.absorbed = append(s.absorbed, s.queue...)
	s.queue = nil
	s.settleTables()
}

// record records the facts about the node and its endpoints from a message.
func (s *stream) record(m *felix.ToDataplane) {
	switch m := m.Payload.(type) {
	case *felix.ToDataplane_ConfigUpdate:
		if name := m.ConfigUpdate.GetConfig()["FelixHostname"]; name != "" && name != s.hostname {
			s.hostname, s.dirty = name, true
		}
	case *felix.ToDataplane_WorkloadEndpointUpdate:
		s.setEndpoint(m.WorkloadEndpointUpdate.GetId(), m.WorkloadEndpointUpdate.GetEndpoint())
	case *felix.ToDataplane_WorkloadEndpointRemove:
		s.setEndpoint(m.WorkloadEndpointRemove.GetId(), nil)
	case *felix.ToDataplane_RouteUpdate:
		s.setRoute(m.RouteUpdate.GetDst(), m.RouteUpdate.GetTypes())
	case *felix.ToDataplane_RouteRemove:
		s.setRoute(m.RouteRemove.GetDst(), 0)
	case *felix.ToDataplane_ServiceUpdate:
		u := m.ServiceUpdate
		s.setService(model.ServiceID{Namespace: u.GetNamespace(), Name: u.GetName()}, u.GetClusterIps())
	case *felix.ToDataplane_ServiceRemove:
		s.setService(model.ServiceID{Namespace: m.ServiceRemove.GetNamespace(), Name: m.ServiceRemove.GetName()}, nil)
	case *felix.ToDataplane_HostEndpointUpdate, *felix.ToDataplane_HostEndpointRemove:
		s.version++
	default:
		s.takeHost(m)
	}
}

// takeHost records addresses of nodes. Felix sends them in one of three forms, depending on its configuration.
func (s *stream) takeHost(payload any) {
	switch m := payload.(type) {
	case *felix.ToDataplane_HostMetadataUpdate:
		s.setNode("4 "+m.HostMetadataUpdate.GetHostname(), m.HostMetadataUpdate.GetIpv4Addr())
	case *felix.ToDataplane_HostMetadataRemove:
		s.setNode("4 " + m.HostMetadataRemove.GetHostname())
	case *felix.ToDataplane_HostMetadataV6Update:
		s.setNode("6 "+m.HostMetadataV6Update.GetHostname(), m.HostMetadataV6Update.GetIpv6Addr())
	case *felix.ToDataplane_HostMetadataV6Remove:
		s.setNode("6 " + m.HostMetadataV6Remove.GetHostname())
	case *felix.ToDataplane_HostMetadataV4V6Update:
		u := m.HostMetadataV4V6Update
		s.setNode("* "+u.GetHostname(), u.GetIpv4Addr(), u.GetIpv6Addr())
	case *felix.ToDataplane_HostMetadataV4V6Remove:
		s.setNode("* " + m.HostMetadataV4V6Remove.GetHostname())
	}
}

func (s *stream) setNode(name string, texts ...string) {
	var addrs []netip.Addr
	for _, text := range texts {
		if p, ok := prefixOf(text); ok {
			addrs = append(addrs, p.Addr())
		}
	}
	if slices.Equal(addrs, s.nodes[name]) {
		return
	}
	if s.nodes[name] = addrs; len(addrs) == 0 {
		delete(s.nodes, name)
	}
	s.dirty = true
}

// prefixOf parses an address or a network.
func prefixOf(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap().WithZone("")
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	return p, err == nil
}

func (s *stream) setRoute(text string, types felix.RouteType) {
	dst, ok := prefixOf(text)
	if !ok {
		return
	}
	dst = dst.Masked()
	s.dirty = mark(s.own, dst, types&(felix.RouteType_LOCAL_HOST|felix.RouteType_LOCAL_TUNNEL) != 0 && dst.IsSingleIP()) || s.dirty
	moved := mark(s.local, dst, types&felix.RouteType_LOCAL_WORKLOAD != 0)
	if mark(s.remote, dst, types&felix.RouteType_REMOTE_WORKLOAD != 0) {
		moved = true
		s.lead(dst)
	}
	if moved && (len(s.p.sent.hosts) > 0 || s.movesBlock(dst)) { // only these two use it
		s.p.nodeDirty = true
	}
}

// mark adds a network to a set or removes it, and reports whether the set changed.
func mark(set map[netip.Prefix]struct{}, p netip.Prefix, in bool) bool {
	_, is := set[p]
	if in {
		set[p] = struct{}{}
	} else {
		delete(set, p)
	}
	return is != in
}

// maxLeads bounds how many networks of other nodes are looked up in VPP. The route to any of them identifies the overlay, and every
// workload may have a route.
const maxLeads = 4

// lead updates the networks that are looked up in VPP, the first by address, after one was added or removed.
func (s *stream) lead(p netip.Prefix) {
	at, among := slices.BinarySearchFunc(s.leads, p, netip.Prefix.Compare)
	_, in := s.remote[p]
	switch {
	case in && at < maxLeads:
		s.leads = slices.Insert(s.leads, at, p)
		s.leads = s.leads[:min(len(s.leads), maxLeads)]
	case !in && among:
		s.leads = sortedNets(s.remote)
		s.leads = s.leads[:min(len(s.leads), maxLeads)]
	default:
		return
	}
	s.dirty = true
}

func (s *stream) setService(id model.ServiceID, clusterIPs []string) {
	var now []netip.Prefix
	for _, text := range clusterIPs {
		if p, ok := prefixOf(text); ok {
			now = append(now, p)
		}
	}
	if slices.Equal(now, s.services[id]) {
		return
	}
	if s.services[id] = now; len(now) == 0 {
		delete(s.services, id)
	}
	s.p.nodeDirty = true
}

// setEndpoint stores a workload endpoint; nil removes it.
func (s *stream) setEndpoint(id *felix.WorkloadEndpointID, msg *felix.WorkloadEndpoint) {
	key := endpointID{id.GetOrchestratorId(), id.GetWorkloadId(), id.GetEndpointId()}
	old := s.endpoints[key]
	s.version++
	if msg == nil {
		s.dirty = s.dirty || old != nil
		delete(s.endpoints, key)
		return
	}
	now := &streamed{id: id, msg: msg, pod: podOf(id.GetWorkloadId()), addrs: addressesOf(msg)}
	s.dirty = s.dirty || old == nil || old.msg.GetName() != msg.GetName() || !slices.Equal(old.addrs, now.addrs)
	s.endpoints[key] = now
}

// podOf returns the pod of a workload: with the orchestrator Kubernetes its name is "namespace/name".
func podOf(workload string) model.PodID {
	for i := range workload {
		if workload[i] == '/' {
			return model.PodID{Namespace: workload[:i], Name: workload[i+1:]}
		}
	}
	return model.PodID{Name: workload}
}

func addressesOf(e *felix.WorkloadEndpoint) []netip.Addr {
	var out []netip.Addr
	for _, list := range [][]string{e.GetIpv4Nets(), e.GetIpv6Nets()} {
		for _, text := range list {
			if p, ok := prefixOf(text); ok && p.IsSingleIP() {
				out = append(out, p.Addr())
			}
		}
	}
	return out
}

// settleTables derives the processor's tables by address and by pod.
func (s *stream) settleTables() {
	if !s.dirty && !s.p.nodeDirty {
		return
	}
	p := s.p
	p.askAgain, s.dirty = p.askAgain || s.dirty, false
	p.nodeDirty, s.missing = true, false
	s.version++
	clear(p.local)
	clear(p.unborn)
	p.where, p.names = map[netip.Addr]string{}, map[string]string{}
	for _, key := range slices.SortedFunc(maps.Keys(s.endpoints), endpointID.compare) {
		s.place(s.endpoints[key])
	}
}

// place finds the interface of an endpoint, by the first that succeeds: VPP's route to one of its addresses; the interface tagged
// with the workload; the interface whose name or tag equals the endpoint's interface on the host.
func (s *stream) place(e *streamed) {
	p := s.p
	pod := &model.Pod{ID: e.pod, NodeName: p.cfg.NodeName, IPs: e.addrs}
	if old := p.local[e.pod]; old != nil { // another endpoint of the workload
		pod.IPs = append(slices.Clone(old.IPs), e.addrs...)
	}
	p.local[e.pod] = pod
	named := ""
	if s.located != nil {
		if named = s.located.Names[e.pod.String()]; named == "" {
			named = s.located.Names[e.msg.GetName()]
		}
	}
	if len(e.addrs) == 0 {
		p.unborn[e.pod] = struct{}{}
		if named != "" {
			p.names[e.pod.String()] = named
		}
	}
	found := named != "" && len(e.addrs) == 0
	for _, a := range e.addrs {
		name := named
		if s.located != nil && s.located.Pods[a] != "" {
			name = s.located.Pods[a]
		}
		if name != "" {
			p.where[a], found = name, true
		}
	}
	s.missing = s.missing || !found
}

// Pauses between lookups of interfaces that VPP does not have yet. VPP sends events for interfaces, but not for routes.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// locate returns the lookups in VPP: at once after a change, and periodically while an endpoint has no interface.
func (s *stream) locate(now time.Time) *event.Locate {
	s.absorb()
	switch {
	case s.p.askAgain:
		s.p.askAgain = false
		s.pause, s.askAt = firstPause, now.Add(firstPause)
	case !s.missing || s.located == nil || now.Before(s.askAt):
		return nil
	default:
		s.pause = backoff.Range{Min: firstPause, Max: maxPause}.Next(s.pause)
		s.askAt = now.Add(s.pause)
	}
	s.asked, s.before = true, s.located
	s.version++
	ask := &event.Locate{Pods: map[netip.Addr]string{}, NodeIPs: s.nodeAddresses(), Override: s.override}
	for _, e := range s.endpoints {
		for _, a := range e.addrs {
			ask.Pods[a] = e.pod.String()
		}
		if len(e.addrs) == 0 {
			ask.Names = append(ask.Names, e.pod.String())
		}
		if name := e.msg.GetName(); name != "" {
			ask.Names = append(ask.Names, name)
		}
	}
	slices.Sort(ask.Names)
	ask.Names = slices.Compact(ask.Names)
	ask.Remote = slices.Clone(s.leads)
	return ask
}

// waiting reports that VPP has not answered the last lookup.
func (s *stream) waiting() bool { return s.p.askAgain || s.asked && s.located == s.before }

// nodeAddresses returns the node's addresses according to messages.
func (s *stream) nodeAddresses() []netip.Addr {
	name := s.hostname
	if name == "" {
		name = s.p.cfg.NodeName
	}
	out := slices.Concat(s.nodes["* "+name], s.nodes["4 "+name], s.nodes["6 "+name])
	for p := range s.own {
		out = append(out, p.Addr())
	}
	return sorted(out)
}

// fill writes the facts from messages and VPP into a driver's node.
func (s *stream) fill(n *dataplane.Node) {
	n.Addrs = append(n.Addrs, s.nodeAddresses()...)
	if l := s.located; l != nil {
		n.Uplink, n.Overlay, n.Host, n.HostAddrs = l.Uplink, l.Overlay, l.Host, l.HostIPs
		for _, p := range l.UplinkIPs {
			n.Addrs = append(n.Addrs, p.Addr())
		}
	}
	n.Addrs = sorted(n.Addrs)
	n.HostAddrs = slices.DeleteFunc(slices.Clone(n.HostAddrs), func(a netip.Addr) bool { return slices.Contains(n.Addrs, a) })
	if len(s.p.sent.hosts) > 0 { // only host endpoints use it
		n.Near = sortedNets(s.local)
	}
}

// frontends adds the cluster IPs of services. Another program translates these, and packets reach VPP translated.
func (s *stream) frontends(n *dataplane.Node) {
	n.Frontends = slices.Clone(n.Frontends)
	for _, list := range s.services {
		n.Frontends = append(n.Frontends, list...)
	}
	n.Frontends = widest(n.Frontends)
}

// widest sorts prefixes and drops those that lie in others.
func widest(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, netip.Prefix.Compare) // a prefix sorts before those it contains
	out := list[:0]
	for _, p := range list {
		if n := len(out); n == 0 || !out[n-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

func sortedNets(set map[netip.Prefix]struct{}) []netip.Prefix {
	return slices.SortedFunc(maps.Keys(set), netip.Prefix.Compare)
}
