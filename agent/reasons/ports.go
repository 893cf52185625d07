package reasons

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// ExplainSCTP returns the rule that decides about a new SCTP association across an interface (with output: about a packet
// sent through it). Access lists do not match ports of SCTP; a classifier does. False: the agent has no classifier there.
func (f *Finder) ExplainSCTP(iface string, output bool, from, to netip.AddrPort) (policy.Reason, bool) {
	m, _ := f.Values.Sent(kv.SCTPPortsKey(iface)).(*contivacl.SCTPPorts)
	rules := m.GetInput()
	if output {
		rules = m.GetOutput()
	}
	if len(rules) == 0 || f.Policies == nil {
		return policy.Reason{}, false
	}
	for i, r := range rules {
		if inNetwork(r.GetSourceNetwork(), from.Addr()) && inNetwork(r.GetDestinationNetwork(), to.Addr()) &&
			inPorts(r.GetSource(), from.Port()) && inPorts(r.GetDestination(), to.Port()) {
			return f.Policies.Explain(iface, output, dataplane.PortsPlace, i)
		}
	}
	return f.Policies.Explain(iface, output, dataplane.PortsPlace, -1)
}

func inNetwork(s string, a netip.Addr) bool {
	p, err := netip.ParsePrefix(s)
	return err == nil && p.Contains(a)
}

func inPorts(r *contivacl.SCTPPorts_Ports, port uint16) bool {
	return r == nil || r.GetLower() <= uint32(port) && uint32(port) <= r.GetUpper()
}
