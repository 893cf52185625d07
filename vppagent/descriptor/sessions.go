package descriptor

import (
	"context"
	"fmt"

	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// SessionUse is how full VPP's NAT44 session table is.
type SessionUse struct {
	Used  uint64
	Limit uint64 // over all workers; 0: NAT44 is off
}

// Sessions counts the NAT44 sessions (nat44_user_dump, VPP 24.06). VPP stops forwarding while it counts: do it rarely.
func Sessions(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply) (SessionUse, error) {
	var use SessionUse
	replies := do(ctx, vpp.Call{Msg: &nat44_ed.Nat44ShowRunningConfig{}}, vpp.Call{Msg: &nat44_ed.Nat44UserDump{}, Dump: true})
	for _, r := range replies {
		if r.Err != nil {
			return use, fmt.Errorf("count NAT44 sessions: %w", r.Err)
		}
	}
	if config, ok := replies[0].Msg.(*nat44_ed.Nat44ShowRunningConfigReply); ok {
		use.Limit = uint64(config.Sessions)
	}
	for _, detail := range replies[1].Details {
		if user, ok := detail.(*nat44_ed.Nat44UserDetails); ok {
			use.Used += uint64(user.Nsessions)
		}
	}
	return use, nil
}
