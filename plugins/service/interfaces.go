package service

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

func newPods(node string) pods {
	return pods{
		node: node, ips: map[model.PodID][]netip.Addr{}, at: map[netip.Addr][]model.PodID{}, local: map[model.PodID]struct{}{},
		changed: true,
	}
}

// storePod stores the present form of a pod (nil: deleted) and reports whether that changes anything. A pod of the host network and a
// finished pod have no address.
func (p *pods) storePod(id model.PodID, pod *model.Pod) bool {
	var now []netip.Addr
	isLocal := false
	if pod != nil && !pod.HostNetwork && !pod.Finished {
		now, isLocal = pod.IPs, p.node != "" && pod.NodeName == p.node
	}
	_, wasLocal := p.local[id]
	if slices.Equal(now, p.ips[id]) && isLocal == wasLocal {
		return false
	}
	p.changed = p.changed || isLocal || wasLocal
	for _, a := range p.ips[id] {
		if p.at[a] = slices.DeleteFunc(p.at[a], func(x model.PodID) bool { return x == id }); len(p.at[a]) == 0 {
			delete(p.at, a)
		}
	}
	delete(p.local, id)
	delete(p.ips, id)
	for _, a := range now {
		p.at[a] = append(p.at[a], id)
	}
	if len(now) > 0 {
		p.ips[id] = now
	}
	if isLocal && len(now) > 0 {
		p.local[id] = struct{}{}
	}
	return true
}

// interfaces holds the lookups in VPP and their answers.
type interfaces struct {
	remote  []netip.Prefix // pod CIDRs of other nodes, sorted
	located *event.Located // nil: no answer yet
	waiting bool           // the last lookup has no answer yet
	missing bool           // the last answer was incomplete
	again   backoff.Timer
}

// Located receives VPP's answer: every object that was looked up and found. It replaces the answer before.
func (p *Processor) Located(l *event.Located) {
	if p.located == nil || l == nil || !slices.Equal(p.located.UplinkIPs, l.UplinkIPs) {
		p.nodesDirty = true // the uplink's ranges are among those closed to external IPs
	}
	p.located = l
	p.waiting = false
	p.stateDirty = true
}

// Locate returns the lookups that are due in VPP: all of them after any change, and again with growing pauses while an object was
// not found; nil: none. Now also sets the processor's time.
func (p *Processor) Locate(now time.Time) *event.Locate {
	p.now = now
	if p.nodesDirty {
		p.refreshNodes()
	}
	switch {
	case p.pods.changed:
		p.pods.changed = false
		p.again = backoff.Timer{}
	case !p.waiting && !p.missing:
		p.again = backoff.Timer{}
		return nil
	case p.again.Pause == 0: // the first pause begins when the first answer is incomplete
		p.again.Failed(now, retries)
		return nil
	case !p.again.Due(now):
		return nil
	default:
		p.again.Failed(now, retries)
	}
	p.waiting = true
	ask := &event.Locate{
		Pods: make(map[netip.Addr]string, len(p.pods.local)), NodeIPs: p.self.Addrs(), Remote: p.remote, Override: p.cfg.Override,
	}
	for id := range p.pods.local {
		for _, a := range p.pods.ips[id] {
			if name, twice := ask.Pods[a]; !twice || id.String() < name {
				ask.Pods[a] = id.String()
			}
		}
	}
	return ask
}

// placeInterfaces recomputes the interface sets from the last answer and the present pods.
func (p *Processor) placeInterfaces(remark func(bool, string, ...any)) {
	front, back := renderer.NewInterfaces(), renderer.NewInterfaces()
	p.missing = false
	if p.located != nil {
		p.placeNode(front, back, remark)
		for id := range p.pods.local {
			name := p.interfaceOf(id)
			if name == "" {
				p.missing = true
				continue
			}
			front.Add(name)
			if p.serves(id) {
				back.Add(name)
			}
		}
	}
	if !maps.Equal(p.frontends, front) {
		p.frontends = front
	}
	if !maps.Equal(p.backends, back) {
		p.backends = back
	}
}

// placeNode adds the interfaces that are not a pod's. Clients come through all of them. Endpoints are behind the host interface and
// the one that leads to the other nodes.
func (p *Processor) placeNode(front, back renderer.Interfaces, remark func(bool, string, ...any)) {
	uplink := cmp.Or(p.cfg.Override.Uplink, p.located.Uplink)
	overlay := cmp.Or(p.cfg.Override.Overlay, p.located.Overlay)
	host := cmp.Or(p.cfg.Override.Host, p.located.Host)
	if overlay == uplink {
		overlay = ""
	}
	p.state.Uplink, p.state.Overlay, p.state.Host = uplink, overlay, host
	p.state.UplinkIPs, p.state.HostIPs = p.located.UplinkIPs, p.hostAddresses()
	p.missing = p.located.NoOverlay              // the overlay is looked up again without a remark, because a cluster may have none
	if host != "" && len(p.state.HostIPs) == 0 { // the kernel's address may still be unknown
		p.missing = true
	}
	p.state.ByHost = uplink == "" && p.located.ByHost
	if uplink == "" && !p.located.ByHost {
		p.missing = true
		remark(false, "no uplink was found in VPP: services are not reachable from outside through it")
	}
	for _, name := range []string{uplink, overlay, host} {
		if name != "" {
			front.Add(name)
		}
	}
	for _, name := range []string{cmp.Or(overlay, uplink), host} {
		if name != "" {
			back.Add(name)
		}
	}
}

// hostAddresses returns the addresses at the other end of the host interface. It omits the node's addresses, which NAT uses for
// other sources, and pods' addresses.
func (p *Processor) hostAddresses() (out []netip.Addr) {
	for _, a := range p.located.HostIPs {
		own := slices.Contains(p.self.Addrs(), a) || slices.ContainsFunc(p.located.UplinkIPs, func(u netip.Prefix) bool { return u.Addr() == a })
		if !own && len(p.pods.at[a]) == 0 {
			out = append(out, a)
		}
	}
	return out
}

// interfaceOf returns the interface of a local pod: the one through which VPP reaches its first located address; "": not found.
func (p *Processor) interfaceOf(id model.PodID) string {
	for _, a := range p.pods.ips[id] {
		if name := p.located.Pods[a]; name != "" {
			return name
		}
	}
	return ""
}

// serves reports whether a local pod is an endpoint of a rendered service, ready or not. A pod that starts or ends must not make its
// interface alternate between roles.
func (p *Processor) serves(id model.PodID) bool {
	for _, a := range p.pods.ips[id] {
		for _, slice := range p.users.slicesOf(a) {
			if s := p.services[slice.now.Service]; s != nil && s.built != nil {
				return true
			}
		}
	}
	return false
}
