// Package all lists the descriptors of all features, and the messages that they use.
//
// Invariant: no key has two descriptors.
package all

import (
	"slices"

	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/abf"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/cnat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/ifaces"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/l2"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/l3"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/pool"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/policer"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/punt"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/sctp"
)

// All returns every descriptor, in the order in which other values usually need theirs.
func All() []*descriptor.Descriptor {
	return []*descriptor.Descriptor{
		l3.VrfTable(), ifaces.Interface(), ifaces.InterfaceVRF(), ifaces.Address(), ifaces.Unnumbered(), l3.ARPEntry(), l3.Route(), l3.RejectRoute(),
		l2.BridgeDomain(), l2.BridgeMember(), l2.L2FIB(), l2.XConnect(), l2.Span(), l3.ProxyARP(), l3.ProxyARPInterface(), l3.IPScanNeighbor(), policer.Policer(),
		nat.Nat44Global(), nat.Nat44Settings(), pool.Nat44AddressPool(), nat.Nat44Interface(), nat.DNat44(),
		sctp.Ports(), sctp.Filter(),
		acl.ACL(), acl.DenyACL(), acl.RangesACL(), acl.PermitACL(), acl.InterfaceACLs(), acl.SourceRangesEnforced(), acl.SourceRanges(), abf.ABF(), abf.ABFInterface(),
		punt.IPRedirect(), punt.ToHost(), punt.PuntException(),
		cnat.SnatPolicy(), cnat.CnatInterface(), cnat.CnatTranslation(),
	}
}

// Needs are the messages that the descriptors use, each once, for the check at connect.
func Needs() []api.Message {
	list := slices.Concat(descriptor.Needs(), ifaces.Needs(), l2.Needs(), l3.Needs(), acl.Needs(), sctp.Needs(), abf.Needs(), nat.Needs(), punt.Needs(), policer.Needs())
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(m api.Message) bool {
		name := m.GetMessageName()
		defer func() { seen[name] = true }()
		return seen[name]
	})
}
