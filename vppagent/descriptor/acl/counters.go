package acl

import (
	vppacl "go.fd.io/govpp/binapi/acl"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// CountRules makes VPP count the packets of each rule of its ACLs: for OnConnect. It applies to all ACLs until VPP ends.
func CountRules() vpp.Call { return vpp.Call{Msg: &vppacl.ACLStatsIntfCountersEnable{Enable: true}} }

// Lists returns the lists of the interface with a name in values: acl_index in the order of evaluation.
func Lists(w *descriptor.World, iface string) (input, output []uint32) {
	i, ok := w.Interface(iface)
	if !ok {
		return nil, nil
	}
	has := factsOf(w).lists[i.Index]
	return has.in, has.out
}

// ACLKey returns the key of the ACL with an index; "" if it is foreign or stale.
func ACLKey(w *descriptor.World, index uint32) string {
	key := factsOf(w).acls.key[index]
	if key == "" || factsOf(w).acls.index[key] != index {
		return ""
	}
	return key
}

// Verbatim reports that VPP has one rule for each rule of m, in the same order: a rule without a network is two rules in VPP.
func Verbatim(state any, m *acl.ACL) bool {
	l, ok := state.(*accessList)
	return ok && len(l.rules) == len(m.GetRules())
}
