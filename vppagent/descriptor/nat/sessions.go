package nat

import (
	"context"
	"fmt"
	"slices"

	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// SessionUse is the use of VPP's NAT44 session table.
type SessionUse struct {
	Used  uint64
	Limit uint64 // over all workers; 0: NAT44 is off
	// Workers is the number of VPP's NAT44 workers; 0: the main thread translates.
	Workers int
}

// SessionLimit returns SessionUse without Used: VPP only reads its configuration (nat44_show_running_config, nat_worker_dump, VPP
// 24.06 to 26.06).
func SessionLimit(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply) (SessionUse, error) {
	var use SessionUse
	replies := do(ctx, vpp.Call{Msg: &nat44_ed.Nat44ShowRunningConfig{}}, vpp.Call{Msg: &nat44_ed.NatWorkerDump{}, Dump: true})
	for _, r := range replies {
		if r.Err != nil {
			return use, fmt.Errorf("read the limit of NAT44 sessions: %w", r.Err)
		}
	}
	if config, ok := replies[0].Msg.(*nat44_ed.Nat44ShowRunningConfigReply); ok {
		use.Workers = len(replies[1].Details)
		use.Limit = uint64(config.Sessions) * uint64(max(1, use.Workers))
	}
	return use, nil
}

// Sessions counts the NAT44 sessions, as SessionUsers does.
func Sessions(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply) (SessionUse, error) {
	use, err := SessionLimit(ctx, do)
	if err != nil || use.Limit == 0 {
		return use, err
	}
	users, err := SessionUsers(ctx, do)
	for _, u := range users {
		use.Used += u.Sessions
	}
	return use, err
}

// Backend is an address and port that sessions lead to.
type Backend struct {
	Addr [4]byte
	Port uint16
}

// Cut returns the backends whose sessions VPP ends when one state of a DNat44 becomes another: backends removed from a mapping,
// and all backends of a recreated mapping. want may be nil. Other kinds of value cut no sessions that can be counted.
func Cut(w *descriptor.World, have, want any) (out []Backend) {
	h, ok := have.(*dnat)
	if !ok {
		return nil
	}
	next, _ := want.(*dnat)
	if next == nil {
		next = &dnat{}
	}
	for _, m := range h.mappings {
		stay := []local(nil)
		if i := slices.IndexFunc(next.mappings, func(n mapping) bool { return n.id == m.id }); i >= 0 {
			ops := updateMapping(w, m, next.mappings[i])
			if len(ops) == 0 || ops[0].Frees == (descriptor.Claim{}) { // in place
				stay = next.mappings[i].locals
			}
		}
		for _, l := range m.locals {
			if !slices.Contains(stay, l) {
				out = append(out, Backend{l.addr, l.port})
			}
		}
	}
	return out
}

// CountSessions counts the sessions that lead to any of the backends (nat44_user_session_v3_dump, VPP 24.06).
func CountSessions(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply, backends []Backend) (int, error) {
	users := map[[4]byte]bool{}
	for _, b := range backends {
		users[b.Addr] = true
	}
	var calls []vpp.Call
	for u := range users {
		calls = append(calls, vpp.Call{Dump: true, Msg: &nat44_ed.Nat44UserSessionV3Dump{IPAddress: u}})
	}
	n := 0
	for _, r := range do(ctx, calls...) {
		if r.Err != nil {
			return 0, fmt.Errorf("count the sessions of backends: %w", r.Err)
		}
		for _, m := range r.Details {
			s, ok := m.(*nat44_ed.Nat44UserSessionV3Details)
			if ok && slices.Contains(backends, Backend{s.InsideIPAddress, s.InsidePort}) {
				n++
			}
		}
	}
	return n, nil
}
