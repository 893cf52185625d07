package service

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer"
)

// NodePortAddresses selects the addresses of nodes on which node ports are served, as kube-proxy's nodePortAddresses does; the zero
// value: all addresses in the Node objects.
type NodePortAddresses struct {
	Primary bool           // the first address of each family of a node, internal ones first
	CIDRs   []netip.Prefix // addresses in any of these ranges; excludes Primary
}

// ParseNodePortAddresses parses "primary" alone, or ranges of addresses; an empty list is the zero value.
func ParseNodePortAddresses(list []string) (NodePortAddresses, error) {
	var out NodePortAddresses
	for _, text := range list {
		if text == "primary" {
			if len(list) > 1 {
				return NodePortAddresses{}, fmt.Errorf("primary must stand alone")
			}
			return NodePortAddresses{Primary: true}, nil
		}
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return NodePortAddresses{}, fmt.Errorf("%q: must be primary, or a range of addresses such as 192.168.0.0/16", text)
		}
		out.CIDRs = append(out.CIDRs, cidr.Masked())
	}
	return out, nil
}

// selectAddrs returns the selected ones of a node's addresses.
func (c NodePortAddresses) selectAddrs(addrs []netip.Addr) []netip.Addr {
	if !c.Primary && len(c.CIDRs) == 0 {
		return addrs
	}
	var out []netip.Addr
	var has families
	for _, a := range addrs {
		if c.Primary && !has.hasFamily(a) || slices.ContainsFunc(c.CIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
			out = append(out, a)
		}
		has.v4, has.v6 = has.v4 || a.Is4(), has.v6 || a.Is6()
	}
	return out
}

// placeNodePorts computes the addresses of all nodes on which node ports are served, and the node addresses without node ports.
func (p *Processor) placeNodePorts(all []netip.Addr) *renderer.IPAddresses {
	var chosen []netip.Addr
	for _, node := range p.nodes {
		chosen = append(chosen, p.cfg.NodePorts.selectAddrs(node.Addrs())...)
	}
	ports := renderer.IPAddressesOf(chosen...)
	p.noPorts = nil
	for _, a := range renderer.IPAddressesOf(all...).Addrs() {
		if !ports.Contains(a) {
			p.noPorts = append(p.noPorts, a)
		}
	}
	return ports
}

// portlessNode returns a note that no address of this node serves node ports, although the node has addresses.
func (p *Processor) portlessNode(remark func(bool, string, ...any)) {
	if len(p.self.Addrs()) == 0 || slices.ContainsFunc(p.self.Addrs(), p.claims.ports.Contains) {
		return
	}
	remark(false, "node ports are not served on this node: none of its addresses is among those chosen for node ports")
}
