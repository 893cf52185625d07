// Package sessions reads and frees entries of VPP's NAT44 session table: who holds them, and how long they have been idle.
//
// Invariant: a function that makes VPP read the whole table says so, because VPP forwards nothing meanwhile.
package sessions

import (
	"context"
	"fmt"
	"slices"

	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Use is the use of VPP's NAT44 session table.
type Use struct {
	Used  uint64
	Limit uint64 // over all workers; 0: NAT44 is off
	// Workers is the number of VPP's NAT44 workers; 0: the main thread translates.
	Workers int
}

// Limit returns Use without Used: VPP only reads its configuration (nat44_show_running_config, nat_worker_dump, VPP
// 24.06 to 26.06).
func Limit(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply) (Use, error) {
	var use Use
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

// Count counts the NAT44 sessions, as Users does.
func Count(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply) (Use, error) {
	use, err := Limit(ctx, do)
	if err != nil || use.Limit == 0 {
		return use, err
	}
	users, err := Users(ctx, do)
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

// CountTo counts the sessions that lead to any of the backends (nat44_user_session_v3_dump, VPP 24.06).
func CountTo(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply, backends []Backend) (int, error) {
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
