package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// drift changes access lists behind the agent's back: it opens a list, detaches the lists of an interface, or does both. It does nothing in a
// VPP that has no lists.
func drift(n *node, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	do, stop, err := dump.Open(ctx, "", n.sim.Dial)
	if err != nil {
		return err
	}
	defer stop()
	all := do(ctx, vpp.Call{Dump: true, Msg: &acl.ACLDump{ACLIndex: ^uint32(0)}},
		vpp.Call{Dump: true, Msg: &acl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}})
	var calls []vpp.Call
	if lists := all[0].Details; len(lists) > 0 && rng.IntN(2) == 0 {
		list := lists[rng.IntN(len(lists))].(*acl.ACLDetails)
		open := []acl_types.ACLRule{{IsPermit: acl_types.ACL_ACTION_API_PERMIT, SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535}}
		calls = append(calls, vpp.Call{Msg: &acl.ACLAddReplace{ACLIndex: list.ACLIndex, Tag: list.Tag, R: open, Count: 1}})
	}
	var attached []*acl.ACLInterfaceListDetails
	for _, m := range all[1].Details {
		if m := m.(*acl.ACLInterfaceListDetails); len(m.Acls) > 0 {
			attached = append(attached, m)
		}
	}
	if len(attached) > 0 && (len(calls) == 0 || rng.IntN(2) == 0) {
		calls = append(calls, vpp.Call{Msg: &acl.ACLInterfaceSetACLList{SwIfIndex: attached[rng.IntN(len(attached))].SwIfIndex}})
	}
	for i, reply := range do(ctx, calls...) {
		if reply.Err != nil && !errors.Is(reply.Err, refusal) { // VPP refuses requests of other programs too
			return fmt.Errorf("%s: %w", calls[i].Msg.GetMessageName(), reply.Err)
		}
	}
	return nil
}
