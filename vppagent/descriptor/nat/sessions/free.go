package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// User is an inside address of NAT44 sessions: the endpoint of a Service, or a pod that talks to the outside.
type User struct {
	Addr     netip.Addr
	VRF      uint32
	Sessions uint64
}

// Session is one entry of VPP's NAT44 session table.
type Session struct {
	// Holder is the address that opened the connection: the client of a Service, or the pod that talks to the outside.
	Holder  netip.Addr
	Idle    time.Duration // since the last packet, in whole seconds
	Expired bool          // idle for longer than its timeout: VPP uses it for no packet any more

	key nat44_ed.Nat44DelSession
}

// Users lists the inside addresses by their number of sessions, largest first (nat44_user_dump, VPP 24.06 to 26.06). VPP walks
// the whole table and forwards nothing meanwhile: about 1 ms per 14,000 sessions if it has one thread.
func Users(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply) ([]User, error) {
	r := do(ctx, vpp.Call{Msg: &nat44_ed.Nat44UserDump{}, Dump: true})[0]
	if r.Err != nil {
		return nil, fmt.Errorf("list users of NAT44 sessions: %w", r.Err)
	}
	at := map[User]uint64{}
	for _, d := range r.Details {
		if u, ok := d.(*nat44_ed.Nat44UserDetails); ok { // one for each worker
			at[User{Addr: netip.AddrFrom4(u.IPAddress), VRF: u.VrfID}] += uint64(u.Nsessions) + uint64(u.Nstaticsessions)
		}
	}
	users := make([]User, 0, len(at))
	for u, n := range at {
		u.Sessions = n
		users = append(users, u)
	}
	slices.SortFunc(users, func(a, b User) int {
		return cmp.Or(cmp.Compare(b.Sessions, a.Sessions), a.Addr.Compare(b.Addr), cmp.Compare(a.VRF, b.VRF))
	})
	return users, nil
}

// Of lists the sessions of a user (nat44_user_session_v3_dump, VPP 24.06 to 26.06). VPP walks the whole table, sends all of them
// and forwards nothing meanwhile: about 1 ms per 3,000 sessions of the user. workers is the number of VPP's NAT44 workers.
func Of(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply, u User, workers int) ([]Session, error) {
	r := do(ctx, vpp.Call{Msg: &nat44_ed.Nat44UserSessionV3Dump{IPAddress: u.Addr.As4(), VrfID: u.VRF}, Dump: true})[0]
	if r.Err != nil {
		return nil, fmt.Errorf("list NAT44 sessions of %s: %w", u.Addr, r.Err)
	}
	out := make([]Session, 0, len(r.Details))
	for _, d := range r.Details {
		if s, ok := d.(*nat44_ed.Nat44UserSessionV3Details); ok {
			out = append(out, natSession(s, u.VRF, workers))
		}
	}
	return out, nil
}

// natSession decodes details. The outside host opened a session of a mapping, the inside host any other.
//
// VPP finds the session to delete by either of its flows. natSession uses the flow of the holder, because the other flow may belong
// to a later session: a client that uses one port for two Services with a common endpoint has one return flow. With several workers,
// however, VPP searches the sessions of the worker that the first address hashes to: then natSession must use the inside address.
func natSession(d *nat44_ed.Nat44UserSessionV3Details, vrf uint32, workers int) Session {
	s := Session{Idle: time.Duration(d.TimeSinceLastHeard) * time.Second, Expired: d.IsTimedOut}
	s.key.Protocol, s.key.VrfID = uint8(d.Protocol), vrf
	mapped := d.Flags&nat_types.NAT_IS_STATIC != 0
	if s.Holder = netip.AddrFrom4(d.InsideIPAddress); mapped {
		s.Holder = netip.AddrFrom4(d.ExtHostAddress)
	}
	if mapped && workers <= 1 {
		s.key.Address, s.key.Port, s.key.ExtHostAddress, s.key.ExtHostPort = d.ExtHostAddress, d.ExtHostPort, d.OutsideIPAddress, d.OutsidePort
		if s.key.Protocol == uint8(model.ICMP) {
			s.key.Port = d.OutsidePort // VPP's key has the identifier in both places
		}
		return s
	}
	s.key.Flags, s.key.Address, s.key.Port = nat_types.NAT_IS_INSIDE, d.InsideIPAddress, d.InsidePort
	switch {
	case d.Flags&nat_types.NAT_IS_TWICE_NAT != 0:
		s.key.ExtHostAddress, s.key.ExtHostPort = d.ExtHostNatAddress, d.ExtHostNatPort
	case s.key.Protocol == uint8(model.ICMP):
		s.key.ExtHostAddress, s.key.ExtHostPort = d.ExtHostAddress, d.InsidePort
	default:
		s.key.ExtHostAddress, s.key.ExtHostPort = d.ExtHostAddress, d.ExtHostPort
	}
	return s
}

// Free frees sessions (nat44_del_session) and returns how many VPP freed. It skips those that VPP does not find: they ended
// meanwhile, or are of a protocol without ports, which VPP lists but does not delete.
func Free(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply, sessions []Session) (freed int, err error) {
	calls := make([]vpp.Call, len(sessions))
	for i := range sessions {
		calls[i].Msg = &sessions[i].key
	}
	for _, r := range do(ctx, calls...) {
		switch {
		case r.Err == nil:
			freed++
		case !errors.Is(r.Err, api.NO_SUCH_ENTRY):
			return freed, fmt.Errorf("free NAT44 sessions: %w", r.Err)
		}
	}
	return freed, nil
}
