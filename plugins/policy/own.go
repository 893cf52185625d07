package policy

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// ownRanges returns the addresses of this node's pods, sorted: its ranges, except those that hold a pod of another node, and the
// addresses of its pods outside of all ranges.
func (p *Processor) ownRanges(interfaces map[netip.Addr]string) []netip.Prefix {
	var out []netip.Prefix
	if p.stream != nil {
		out = p.stream.blocks(p.translations.Node().PodCIDRs)
	} else {
		for _, r := range p.ranges[p.cfg.NodeName] {
			if r = r.Masked(); !p.strayIn(r) {
				out = append(out, r)
			}
		}
	}
	ranges := len(out)
	for a := range interfaces {
		if !holds(out[:ranges], a) {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

func holds(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// rangesMoved recomputes the strays if the ranges of this node changed.
func (p *Processor) rangesMoved(node string) {
	p.nodeDirty = true
	if node != p.cfg.NodeName {
		return
	}
	for id, pod := range p.pods {
		p.stray(id, pod)
	}
}

// setPeer records the addresses of other nodes.
func (p *Processor) setPeer(ch event.Change) {
	name := ch.Ref.Name
	if name == p.cfg.NodeName {
		return
	}
	var now []netip.Addr
	if node, _ := ch.Object.(*model.Node); node != nil {
		now = node.Addrs()
	}
	if slices.Equal(p.peers[name], now) {
		return
	}
	if p.nodeDirty = true; len(now) == 0 {
		delete(p.peers, name)
	} else {
		p.peers[name] = now
	}
}

// peerAddrs returns the addresses of other nodes that NAT there uses as source addresses, sorted.
func (p *Processor) peerAddrs() []netip.Addr {
	var out []netip.Addr
	if p.stream != nil {
		out = p.stream.peers()
	}
	for _, list := range p.peers {
		out = append(out, list...)
	}
	return sorted(slices.DeleteFunc(out, func(a netip.Addr) bool {
		return a.Is4() && p.cfg.View4 != dataplane.PreDNAT || a.Is6() && p.cfg.View6 != dataplane.PreDNAT
	}))
}

// peers returns the addresses of other nodes according to messages.
func (s *stream) peers() (out []netip.Addr) {
	own := s.nodeAddresses()
	for _, list := range s.nodes {
		for _, a := range list {
			if !slices.Contains(own, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// stray records whether a pod of another node has an address in the ranges of this one, and reports whether that changed; nil: the
// pod was removed.
func (p *Processor) stray(id model.PodID, pod *model.Pod) bool {
	_, was := p.strays[id]
	is := pod != nil && pod.NodeName != p.cfg.NodeName &&
		slices.ContainsFunc(pod.IPs, func(a netip.Addr) bool { return holds(p.ranges[p.cfg.NodeName], a) })
	if is {
		p.strays[id] = struct{}{}
	} else {
		delete(p.strays, id)
	}
	return was != is
}

func (p *Processor) strayIn(r netip.Prefix) bool {
	for id := range p.strays {
		if pod := p.pods[id]; pod != nil && slices.ContainsFunc(pod.IPs, r.Contains) {
			return true
		}
	}
	return false
}

// blocks returns the routes to several workloads of this node and its pod CIDRs (empty without Services), except those that hold
// workloads of another node.
func (s *stream) blocks(cidrs []netip.Prefix) (out []netip.Prefix) {
	for _, r := range cidrs {
		out = append(out, r.Masked())
	}
	for r := range s.local {
		if !r.IsSingleIP() {
			out = append(out, r)
		}
	}
	for r := range s.remote {
		out = slices.DeleteFunc(out, r.Overlaps)
	}
	return out
}

// movesBlock reports whether an added or removed route may change blocks.
func (s *stream) movesBlock(dst netip.Prefix) bool {
	if !dst.IsSingleIP() {
		return true
	}
	for r := range s.local {
		if !r.IsSingleIP() && r.Overlaps(dst) {
			return true
		}
	}
	return false
}

func sorted(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
