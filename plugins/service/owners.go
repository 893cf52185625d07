package service

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
)

// The owner of an address is the first that applies: a node; the API server; the Service with this cluster IP; a pod; and last, port
// by port, the oldest Service that names it as external IP or load-balancer IP. Tenants choose external IPs freely, so the order
// must not depend on anything a tenant chooses, such as names.

// owners holds the owners of addresses that are neither Services, nodes nor pods, and the ranges that are closed to external IPs.
type owners struct {
	api      map[netip.Addr]struct{} // addresses of the API server
	apiDirty bool
	pods     []netip.Prefix // pod CIDRs of all nodes, sorted
	services []netip.Prefix // ranges of cluster IPs, sorted
	uplink   []netip.Prefix // addresses of VPP's uplink with the ranges they are in, sorted
}

// refused returns the addresses that have an owner with precedence, and that owner; nil: none.
func (p *Processor) refused(s *service) map[netip.Addr]string {
	var out map[netip.Addr]string
	for i, a := range s.claimed {
		if i > 0 && s.claimed[i-1].IP == a.IP {
			continue // the same address, already evaluated, because cluster IPs are first
		}
		if why := p.owner(s, a); why != "" {
			if out == nil {
				out = map[netip.Addr]string{}
			}
			out[a.IP] = why
		}
	}
	return out
}

// owner returns the owner that has precedence over a service that asks for an address; "": none.
func (p *Processor) owner(s *service, a ask) string {
	_, api := p.owners.api[a.IP]
	switch {
	case !a.IP.IsValid():
	case p.claims.nodes.Contains(a.IP) || p.owners.onUplink(a.IP):
		return "it is the address of a node"
	case api && s.id != apiService:
		return "it is the address of the API server"
	case !a.outer:
	default:
		if other := p.claims.inner(a.IP, s); other != nil {
			return "it is the cluster IP of Service " + other.id.String()
		}
		if pods := p.pods.at[a.IP]; len(pods) > 0 {
			return "it is the address of Pod " + slices.MinFunc(pods, model.PodID.Compare).String()
		}
	}
	return ""
}

// closed returns why an address may not be an external IP of any service; "": it may.
func (p *Processor) closed(a netip.Addr) string {
	within := func(list []netip.Prefix) (netip.Prefix, bool) {
		at := slices.IndexFunc(list, func(r netip.Prefix) bool { return r.Contains(a) })
		if at < 0 {
			return netip.Prefix{}, false
		}
		return list[at], true
	}
	if p.cfg.NoExternalIPs {
		return "external IPs are switched off"
	}
	if len(p.cfg.ExternalIPCIDRs) > 0 {
		if _, in := within(p.cfg.ExternalIPCIDRs); !in {
			return "it is outside the ranges of --external-ip-cidrs"
		}
		return ""
	}
	if r, in := within(p.owners.services); in {
		return "it is in " + r.String() + ", a range of cluster IPs"
	}
	if r, in := within(p.owners.pods); in {
		return "it is in " + r.String() + ", a range of pods"
	}
	if r, in := within(p.owners.uplink); in {
		return "it is in " + r.Masked().String() + ", a range of nodes"
	}
	return ""
}

// onUplink reports whether VPP's uplink has the address.
func (o *owners) onUplink(a netip.Addr) bool {
	return slices.ContainsFunc(o.uplink, func(r netip.Prefix) bool { return r.Addr() == a })
}

// refreshRanges recomputes the ranges of pods, cluster IPs and nodes. If they changed, Services with external IPs claim anew.
func (p *Processor) refreshRanges() {
	pods := slices.Clone(p.remote)
	pods = append(pods, p.self.PodCIDRs...)
	sortPrefixes(pods)
	ranges := slices.Clone(p.cfg.ServiceCIDRs)
	for _, r := range p.ranges {
		ranges = append(ranges, r.CIDRs...)
	}
	sortPrefixes(ranges)
	pods, ranges = slices.Compact(pods), slices.Compact(ranges)
	var uplink []netip.Prefix
	if p.located != nil {
		uplink = slices.Clone(p.located.UplinkIPs)
		sortPrefixes(uplink)
	}
	if slices.Equal(pods, p.owners.pods) && slices.Equal(ranges, p.owners.services) && slices.Equal(uplink, p.owners.uplink) {
		return
	}
	for _, r := range slices.Concat(uplink, p.owners.uplink) {
		p.claims.claimants(r.Addr(), p.mark)
	}
	p.owners.pods, p.owners.services, p.owners.uplink = pods, ranges, uplink
	for _, s := range p.services {
		if s.spec != nil && len(s.spec.ExternalIPs) > 0 {
			s.renamed = true
			p.mark(s)
		}
	}
}

// refreshAPI recomputes the addresses of the API server: the configured ones, and the endpoints of its Service.
func (p *Processor) refreshAPI() {
	p.owners.apiDirty = false
	now := map[netip.Addr]struct{}{}
	for _, a := range p.cfg.APIServers {
		now[a] = struct{}{}
	}
	if s := p.services[apiService]; s != nil {
		for _, part := range s.parts {
			for i := range part.Endpoints {
				now[part.Endpoints[i].Addr] = struct{}{}
			}
		}
	}
	was := p.owners.api
	p.owners.api = now
	p.markDifference(was, now)
}

// markDifference marks the services that claim an address in exactly one of the sets.
func (p *Processor) markDifference(a, b map[netip.Addr]struct{}) {
	for _, pair := range [][2]map[netip.Addr]struct{}{{a, b}, {b, a}} {
		for ip := range pair[0] {
			if _, both := pair[1][ip]; !both {
				p.claims.claimants(ip, p.mark)
			}
		}
	}
}
