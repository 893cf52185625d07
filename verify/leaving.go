package verify

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

// checkNode compares what nat44 has for the whole node: timeouts of sessions, and the addresses of pods outside the cluster.
func (c *services) checkNode() (out []ServiceCheck) {
	if c.cfg.Services.EngineOf(netip.IPv4Unspecified()) != serving.NAT44 || !c.vpp.NAT44 {
		return nil
	}
	timeouts := ServiceCheck{Of: "timeouts of nat44", Verdict: Equal}
	for _, t := range c.cfg.Services.Timeouts.Each() {
		if has := c.vpp.Timeouts.Of(t.Name); has != t.Seconds {
			timeouts.Differences = append(timeouts.Differences, Translated{
				Packet: fmt.Sprintf("the next one of an idle session of %s", t.Name), VPP: fmt.Sprintf("the session ends after %d s", has),
				Service: fmt.Sprintf("the session ends after %d s", t.Seconds),
			})
		}
	}
	leaving := ServiceCheck{Of: "packets that leave the cluster", Verdict: Equal}
	for _, why := range c.checkLeaving() {
		leaving.Differences = append(leaving.Differences, Translated{Packet: c.leavingPacket(), VPP: why, Service: "the answer returns to this node, and the overlay's packets are not translated"})
	}
	return append(out, timeouts, leaving)
}

// checkLeaving says what is wrong with the addresses that nat44 gives to packets at the uplink.
func (c *services) checkLeaving() (wrong []string) {
	output := false
	for _, role := range c.vpp.Roles {
		output = output || role.Output
	}
	port := c.cfg.Services.VXLANPort
	if port == 0 {
		port = overlayPort
	}
	switch has := len(c.vpp.Sources) > 0; {
	case c.cfg.Services.NoSNAT && (has || output):
		return []string{"pods get an address of nat44, although they keep theirs (--no-snat)"}
	case output && !has:
		return []string{"an interface has the output feature, and nat44 has no address for packets that leave"}
	case has && !output:
		return []string{"no interface has the output feature: pods keep their addresses outside the cluster"}
	}
	for _, a := range c.vpp.Sources {
		mine := slices.Contains(c.node.Own, a) || slices.ContainsFunc(c.cfg.Services.Uplink, func(p netip.Prefix) bool { return p.Addr() == a })
		if !mine {
			wrong = append(wrong, fmt.Sprintf("answers go to %s: nat44 gives it to senders, and this node does not have it", a))
		}
	}
	exempt := func(a netip.Addr) bool {
		return slices.ContainsFunc(c.vpp.Exempt, func(e serving.At) bool {
			return e.Addr == a && (e.Port == 0 || e.Port == port && e.Protocol == model.UDP)
		})
	}
	if len(c.vpp.Sources) > 0 && !slices.ContainsFunc(c.vpp.Sources, exempt) {
		wrong = append(wrong, fmt.Sprintf("no identity mapping exempts %s: nat44 drops the overlay's packets from other nodes", serving.At{Addr: c.vpp.Sources[0], Port: port, Protocol: model.UDP}))
	}
	return wrong
}

// overlayPort is the default of --vxlan-port.
const overlayPort = 4789

// leavingPacket is a packet from a pod of this node to the outside.
func (c *services) leavingPacket() string {
	h := space.Header{Dst: netip.MustParseAddr("198.51.100.7"), Protocol: space.TCP, SrcPort: 40000, DstPort: 443, Flags: space.SYN}
	for _, p := range c.node.Pods {
		if p.Addr.Is4() {
			h.Src = p.Addr
			return h.String()
		}
	}
	return "from any pod to " + h.Dst.String()
}
