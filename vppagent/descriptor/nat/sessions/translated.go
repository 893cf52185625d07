package sessions

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Translated is a connection that NAT44 translates.
type Translated struct {
	Protocol uint8
	Client   netip.AddrPort // before translation
	Dialled  netip.AddrPort // before translation
	Endpoint netip.AddrPort // after translation
	Source   netip.AddrPort // after translation
	Packets  uint64         // of both directions
	Bytes    uint64         // of both directions
}

// ErrMany means that the table has more sessions than the caller wants to read.
var ErrMany = errors.New("too many NAT44 sessions")

// step is how many sessions are listed before VPP forwards again, unless one inside address has more: about 2 ms. A walk past walked sessions
// takes as long as listing one.
const step, walked = 5000, 40

// Bounds say how many sessions are listed. The sessions of one inside address cannot be listed in parts: VPP forwards nothing meanwhile, 1 ms for
// 3,000.
type Bounds struct{ All, One uint64 }

// AllTranslated lists all connections (nat44_user_dump, nat44_user_session_v3_dump, VPP 24.06 to 26.06). VPP walks its whole table once for each
// inside address. With more than the bound of all it lists none; inside addresses with more than the bound of one are left out. In both cases the
// error is ErrMany, beside the sessions that were listed.
func AllTranslated(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply, most Bounds) (out []Translated, _ error) {
	users, err := Users(ctx, do)
	if err != nil {
		return nil, err
	}
	total, left := uint64(0), uint64(0)
	for _, u := range users {
		if total += u.Sessions; u.Sessions > most.One {
			left += u.Sessions
		}
	}
	if total > most.All {
		return nil, fmt.Errorf("%w: %d, at most %d are read", ErrMany, total, most.All)
	}
	for len(users) > 0 {
		var calls []vpp.Call
		n, sessions := 0, uint64(0)
		for ; n < len(users) && (n == 0 || sessions+users[n].Sessions+total/walked <= step); n++ {
			if u := users[n]; u.Sessions <= most.One {
				sessions += u.Sessions + total/walked
				calls = append(calls, vpp.Call{Dump: true, Msg: &nat44_ed.Nat44UserSessionV3Dump{IPAddress: u.Addr.As4(), VrfID: u.VRF}})
			}
		}
		if out, err = listSessions(ctx, do, calls, out); err != nil {
			return nil, err
		}
		users = users[n:]
	}
	if left > 0 {
		return out, fmt.Errorf("%w: %d of %d are of addresses with more than %d, which are not read", ErrMany, left, total, most.One)
	}
	return out, nil
}

func listSessions(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply, calls []vpp.Call, out []Translated) ([]Translated, error) {
	if len(calls) == 0 {
		return out, nil
	}
	for _, r := range do(ctx, calls...) {
		if r.Err != nil {
			return nil, fmt.Errorf("list NAT44 sessions: %w", r.Err)
		}
		for _, m := range r.Details {
			if d, ok := m.(*nat44_ed.Nat44UserSessionV3Details); ok {
				out = append(out, translated(d))
			}
		}
	}
	return out, nil
}

// translated decodes details. The inside of a mapping's session is the endpoint; the inside of any other is the client.
func translated(d *nat44_ed.Nat44UserSessionV3Details) Translated {
	at := func(a [4]byte, port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4(a), port) }
	inside, outside, far := at(d.InsideIPAddress, d.InsidePort), at(d.OutsideIPAddress, d.OutsidePort), at(d.ExtHostAddress, d.ExtHostPort)
	t := Translated{Protocol: uint8(d.Protocol), Packets: uint64(d.TotalPkts), Bytes: d.TotalBytes}
	if d.Flags&nat_types.NAT_IS_STATIC == 0 {
		t.Client, t.Dialled, t.Endpoint, t.Source = inside, far, far, outside
		return t
	}
	t.Client, t.Dialled, t.Endpoint, t.Source = far, outside, inside, far
	if d.Flags&nat_types.NAT_IS_TWICE_NAT != 0 {
		t.Source = at(d.ExtHostNatAddress, d.ExtHostNatPort)
	}
	return t
}
