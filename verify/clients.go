package verify

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/dump/translation"
	"github.com/contiv-agent/contiv-agent/verify/example"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

// surroundings are the checks of what all Services of the node need: interfaces, addresses for sources, ranges of clients, and of cluster IPs.
func (c *services) surroundings() (out []ServiceCheck) {
	add := func(of string, differences ...Translated) {
		out = append(out, ServiceCheck{Of: of, Verdict: Equal, Differences: differences})
	}
	pods, others := map[uint32]bool{}, c.vpp.NodeInterfaces(c.node)
	for _, p := range c.node.Pods {
		if i, ok := c.state.Behind[p.Addr]; ok {
			pods[i] = true
		}
	}
	all := maps.Clone(others)
	maps.Copy(all, pods)
	for _, i := range slices.Sorted(maps.Keys(all)) {
		if c.state.Interfaces[i] == nil {
			continue
		}
		var list []Translated
		for _, f := range c.firsts() {
			if why := c.checkInterface(i, pods[i], f); why != "" {
				d := c.packet(f.At, !pods[i])
				d.VPP, d.Service = fmt.Sprintf("%s: %s", c.state.Interfaces[i].Name, why), c.describeFate(f)
				list = append(list, d)
			}
		}
		list = append(list, c.checkRanges(i)...)
		if len(list) > 0 || len(c.firsts()) > 0 {
			add("interface "+c.state.Interfaces[i].Name, list...)
		}
	}
	for _, f := range c.firsts() {
		if why := c.checkSources(f); why != "" && f.Fate == serving.Balanced {
			d := c.packet(f.At, false)
			d.VPP, d.Service = why, "the answer returns to the client"
			add(fmt.Sprintf("sources of %s", c.cfg.Services.EngineOf(f.Addr)), d)
		}
	}
	for _, p := range c.node.Dropping {
		if r := c.vpp.Routes[translation.Lookup{Prefix: p, Exact: true}]; r.Kind != translation.Drops {
			d := c.packet(serving.At{Addr: p.Addr().Next(), Port: 80, Protocol: model.TCP}, false)
			d.VPP, d.Service = "follows the route of a larger prefix", "dropped: no Service has this cluster IP"
			add("range of cluster IPs "+p.String(), d)
			continue
		}
		add("range of cluster IPs " + p.String())
	}
	return out
}

// firsts is a frontend with a mapping of each engine and family, as an example: preferably one with endpoints, for all clients.
func (c *services) firsts() (list []*serving.Frontend) {
	has := map[string]bool{}
	for _, fits := range []func(*serving.Frontend) bool{
		func(f *serving.Frontend) bool { return f.Fate == serving.Balanced && f.Clients == nil },
		func(f *serving.Frontend) bool { return f.Fate == serving.Balanced },
		func(f *serving.Frontend) bool { return f.Fate == serving.Silent },
	} {
		for _, f := range c.node.Frontends {
			kind := fmt.Sprint(c.cfg.Services.EngineOf(f.Addr), f.Addr.Is4())
			if f.Refused == "" && fits(f) && !has[kind] {
				has[kind], list = true, append(list, f)
			}
		}
	}
	return list
}

// checkInterface says why packets that enter VPP by an interface are not translated for Services, or answers are not translated back; "": they
// are, once each.
func (c *services) checkInterface(i uint32, ofPod bool, f *serving.Frontend) string {
	counts, shown := c.vpp.Nodes[i]
	if !shown {
		return "VPP does not show its graph nodes"
	}
	if c.cfg.Services.EngineOf(f.Addr) == serving.CNAT {
		family := "ip6"
		if f.Addr.Is4() {
			family = "ip4"
		}
		for _, node := range []string{"cnat-input-" + family, "cnat-output-" + family} {
			if n := counts[node]; n != 1 {
				return fmt.Sprintf("packets meet %s %d times", node, n)
			}
		}
		return ""
	}
	in2out := counts["nat-pre-in2out"] + counts["nat44-in2out-worker-handoff"]
	out2in := counts["nat-pre-out2in"] + counts["nat44-out2in-worker-handoff"]
	both := counts["nat44-ed-classify"] + counts["nat44-handoff-classify"]
	leaving := counts["nat-pre-in2out-output"] + counts["nat44-in2out-output-worker-handoff"]
	role := c.vpp.Roles[i]
	switch uplink, known := c.vpp.Uplink(); {
	case !c.vpp.Forwarding:
		return "NAT44 does not forward: it drops all packets without a mapping, as answers"
	case role == translation.Role{}:
		return "has no role of NAT44: packets are not translated"
	case role.Output && (!known || i != uplink || c.leadsToPods(i)):
		return "has the output feature: answers of pods that enter here are not translated back"
	case role.Output && (in2out+both > 0 || out2in != 1 || leaving != 1):
		return fmt.Sprintf("packets meet NAT44's node for arriving packets %d times, and that for leaving packets %d times", out2in, leaving)
	case role.Output:
		return ""
	case role.Inside && !role.Outside && !ofPod:
		return "is inside only: VPP sends packets to a mapping to 0.0.0.0"
	case !role.Inside:
		return "is outside only: answers of endpoints behind it are not translated back"
	case both == 0 && in2out > 0:
		return "is inside only: VPP sends packets to a mapping to 0.0.0.0"
	case both != 1 || in2out+out2in+leaving > 0:
		return fmt.Sprintf("packets meet NAT44's node of both roles %d times, and others %d times", both, in2out+out2in+leaving)
	}
	return ""
}

// leadsToPods reports that an interface leads to pods of other nodes.
func (c *services) leadsToPods(i uint32) bool {
	return slices.ContainsFunc(c.node.Remote, func(p netip.Prefix) bool {
		r := c.vpp.Routes[translation.Lookup{Prefix: p.Masked()}]
		return r.Known && r.Interface == i && r.Bits > 0
	})
}

// checkSources says why the address that VPP gives to senders, so that answers return through VPP, is missing or another's; "": it is right.
func (c *services) checkSources(f *serving.Frontend) string {
	if c.cfg.Services.EngineOf(f.Addr) == serving.NAT44 {
		if len(c.vpp.Loopbacks) == 0 && c.hasLoopback() {
			return "drops packets of pods to themselves, and of clients outside: twice-nat has no address"
		}
		for _, a := range c.vpp.Loopbacks {
			if c.node.Occupied[a] {
				return fmt.Sprintf("answers go to %s: twice-nat has this address, and a pod, an endpoint or a node has it, too", a)
			}
		}
		return ""
	}
	source := c.vpp.SNAT6
	if f.Addr.Is4() {
		source = c.vpp.SNAT4
	}
	own := func(a netip.Addr) bool { return a.Is4() == f.Addr.Is4() && !a.IsLinkLocalUnicast() }
	mine := slices.ContainsFunc(c.cfg.Services.Uplink, func(p netip.Prefix) bool { return p.Addr() == source }) || slices.Contains(c.node.Own, source)
	switch {
	case !slices.ContainsFunc(c.node.Own, own):
		return "" // nothing to give
	case !source.IsValid() || source.IsUnspecified():
		return "packets of pods to themselves, and of clients outside, keep their source: cnat has no address"
	case !mine:
		return fmt.Sprintf("answers go to %s: cnat gives it to senders, and this node does not have it", source)
	}
	for _, p := range c.node.Pods {
		if i := c.state.Interfaces[c.state.Behind[p.Addr]]; i != nil && c.state.Behind[p.Addr] != 0 && !c.vpp.Hairpins[i.Name] {
			return fmt.Sprintf("packets of %s to itself keep their source: cnat's policy lacks interface %s", p.ID, i.Name)
		}
	}
	return ""
}

// checkRanges compares the clients that the first list at an interface's input denies with the ranges of Services. The list that enforces
// ranges is the first one, because NAT44 and other lists come after it.
func (c *services) checkRanges(i uint32) (out []Translated) {
	s, iface := c.space, c.state.Interfaces[i]
	var denied space.Set
	enforces := false
	if len(iface.Input) > 0 {
		if l := c.state.Lists[iface.Input[0]]; l != nil {
			denied = s.Where(s.List(l.Space), dump.Deny)
			enforces = strings.Contains(l.Name, ":s:")
		}
	}
	if s.Within(s.Box(space.All4()), denied) {
		return nil // a closed interface
	}
	var restricted space.Set
	for _, f := range c.node.Frontends {
		if f.Clients == nil || f.Refused != "" || c.cfg.Services.EngineOf(f.Addr) != serving.NAT44 {
			continue
		}
		frontend := c.packetsTo(f.At)
		restricted = s.Union(restricted, frontend)
		may := s.Sources(f.Clients...)
		if open := s.Minus(frontend, s.Union(may, denied)); !open.Empty() {
			out = append(out, c.rangesDiffer(iface, f, open, "dropped: loadBalancerSourceRanges lack this client", "passed"))
		} else if closed := s.Intersect(s.Intersect(frontend, may), denied); !closed.Empty() && enforces {
			out = append(out, c.rangesDiffer(iface, f, closed, string(f.Fate)+": loadBalancerSourceRanges have this client", "dropped"))
		}
	}
	if enforces {
		if extra := s.Minus(denied, restricted); !extra.Empty() {
			h, _ := s.Witness(extra)
			out = append(out, Translated{Packet: h.String(), Header: example.HeaderOf(h), VPP: fmt.Sprintf("%s: the list of source ranges drops it", iface.Name), Service: "no Service restricts the clients of this frontend"})
		}
	}
	return out
}

func (c *services) rangesDiffer(iface *dump.Interface, f *serving.Frontend, set space.Set, service, vpp string) Translated {
	s := c.space
	for _, narrow := range []space.Set{s.Sources(netip.MustParsePrefix("198.51.100.7/32")), s.Sources(netip.MustParsePrefix("0.0.0.0/1"))} {
		if both := s.Intersect(set, narrow); !both.Empty() {
			set = both
			break
		}
	}
	h, _ := s.Witness(set)
	return Translated{Packet: h.String(), Header: example.HeaderOf(h), VPP: fmt.Sprintf("%s: %s by the first list at its input", iface.Name, vpp), Service: fmt.Sprintf("%s (Service %s)", service, f.Service)}
}

// packetsTo is all packets to a frontend.
func (c *services) packetsTo(at serving.At) space.Set {
	b := space.All4()
	b.Dst, b.Protocols, b.DstPorts = netip.PrefixFrom(at.Addr, at.Addr.BitLen()), space.One(uint16(at.Protocol)), space.One(at.Port)
	return c.space.Box(b)
}
