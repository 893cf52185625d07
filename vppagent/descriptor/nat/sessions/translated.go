package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
	Inside   netip.Addr     // under which VPP lists it
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

// Reading is what was listed of NAT44's table.
type Reading struct {
	Sessions []Translated
	Present  uint64              // sessions of the table
	Listed   map[netip.Addr]bool // inside addresses whose sessions were listed; nil: all
	last     netip.Addr          // that was listed, if others wait for their turn
}

// ReadTranslated lists connections (nat44_user_dump, nat44_user_session_v3_dump, VPP 24.06 to 26.06). VPP walks its whole table once for each
// inside address. With more sessions than the bound of all it lists those of some inside addresses, which follow those of the former reading, so
// that each has its turn. Inside addresses with more than the bound of one are left out. In both cases the error is ErrMany, beside what was listed.
func ReadTranslated(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply, most Bounds, former Reading) (r Reading, _ error) {
	users, err := Users(ctx, do)
	if err != nil {
		return r, err
	}
	for _, u := range users {
		r.Present += u.Sessions
	}
	known := len(users)
	users = slices.DeleteFunc(users, func(u User) bool { return u.Sessions > most.One })
	if r.Present > most.All {
		users = turn(users, former.last, most.All, r.Present/walked)
		if len(users) > 0 {
			r.last = users[len(users)-1].Addr
		}
	}
	if len(users) < known {
		r.Listed = map[netip.Addr]bool{}
		for _, u := range users {
			r.Listed[u.Addr] = true
		}
	}
	for len(users) > 0 {
		var calls []vpp.Call
		n, sessions := 0, uint64(0)
		for ; n < len(users) && (n == 0 || sessions+users[n].Sessions+r.Present/walked <= step); n++ {
			sessions += users[n].Sessions + r.Present/walked
			calls = append(calls, vpp.Call{Dump: true, Msg: &nat44_ed.Nat44UserSessionV3Dump{IPAddress: users[n].Addr.As4(), VrfID: users[n].VRF}})
		}
		if r.Sessions, err = listSessions(ctx, do, calls, r.Sessions); err != nil {
			return Reading{}, err
		}
		users = users[n:]
	}
	if r.Listed != nil {
		return r, fmt.Errorf("%w: at most %d are listed at a time, by turns of addresses, and none of an address with more than %d", ErrMany, most.All, most.One)
	}
	return r, nil
}

// turn returns the users whose turn it is: those behind an address, as many as cost no more than most sessions, and at least one.
func turn(users []User, behind netip.Addr, most, walk uint64) (out []User) {
	slices.SortFunc(users, func(a, b User) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.VRF, b.VRF)) })
	first := slices.IndexFunc(users, func(u User) bool { return behind.Less(u.Addr) })
	cost := uint64(0)
	for i := range users {
		u := users[(max(first, 0)+i)%len(users)]
		if cost += u.Sessions + walk; cost > most && len(out) > 0 {
			break
		}
		out = append(out, u)
	}
	return out
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
	t := Translated{Inside: inside.Addr(), Protocol: uint8(d.Protocol), Packets: uint64(d.TotalPkts), Bytes: d.TotalBytes}
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
