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

// AllTranslated lists all connections (nat44_user_dump, nat44_user_session_v3_dump, VPP 24.06 to 26.06). VPP walks its whole table once for each
// inside address, and forwards nothing meanwhile. With more than most sessions it lists none, and the error is ErrMany.
func AllTranslated(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply, most uint64) ([]Translated, error) {
	users, err := Users(ctx, do)
	if err != nil {
		return nil, err
	}
	total := uint64(0)
	calls := make([]vpp.Call, len(users))
	for i, u := range users {
		total += u.Sessions
		calls[i] = vpp.Call{Dump: true, Msg: &nat44_ed.Nat44UserSessionV3Dump{IPAddress: u.Addr.As4(), VrfID: u.VRF}}
	}
	if total > most {
		return nil, fmt.Errorf("%w: %d, at most %d are read", ErrMany, total, most)
	}
	if len(calls) == 0 {
		return nil, nil
	}
	var out []Translated
	for i, r := range do(ctx, calls...) {
		if r.Err != nil {
			return nil, fmt.Errorf("list NAT44 sessions of %s: %w", users[i].Addr, r.Err)
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
