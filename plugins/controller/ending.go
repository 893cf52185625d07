package controller

import (
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
)

// A change may end the connections from a frontend to an endpoint, and admit other packets to that endpoint. VPP takes the values one after the other, so
// what admits packets follows:
//
//	transaction: translations, and all that closes ─▶ VPP has them ─▶ transaction: all that opens

// ending finds the connections that end. The zero value finds none.
type ending struct {
	// ended returns the frontends and endpoints of the connections that a change of a value ends; nil: none. sent returns the value that VPP was sent for
	// a key; nil: none.
	ended func(was, now proto.Message, sent func(key string) proto.Message) []netip.Addr
	late  map[string]*end // by key: of values that were sent, until VPP has them
}

// end has the addresses of one value's connections.
type end struct {
	addrs []netip.Addr
	until time.Time // if VPP refuses the value: nothing waits for it after that; zero: it was not refused
}

// EndsBy makes openings follow changes for which f returns the frontends and endpoints of connections that end. The zero Addr is any address; nil: no connection ends.
func (v *Values) EndsBy(f func(was, now proto.Message, sent func(key string) proto.Message) []netip.Addr) {
	v.ended = f
}

// ends records that a value is sent.
func (v *Values) ends(e *entry, now proto.Message) {
	if v.ended == nil || e.sent == nil {
		return
	}
	addrs := v.ended(e.sent, now, v.Sent)
	if len(addrs) == 0 {
		return
	}
	if v.late == nil {
		v.late = map[string]*end{}
	}
	if before := v.late[e.key]; before != nil {
		addrs = append(addrs, before.addrs...)
	}
	v.late[e.key] = &end{addrs: addrs}
}

// due returns the addresses of the connections that the next transaction ends.
func (v *Values) due() (out []netip.Addr) {
	if v.ended == nil {
		return nil
	}
	for _, e := range v.dirty {
		if e.sent != nil {
			out = append(out, v.ended(e.sent, v.effective(e), v.Sent)...)
		}
	}
	return out
}

// overdue returns the addresses of the connections that end with values that VPP may lack: those that are left, and those that it refuses. For the latter
// nothing waits longer than maxHeld.
func (v *Values) overdue(left map[string]struct{}, statuses map[string]event.ValueStatus, now time.Time) (out []netip.Addr) {
	for key, e := range v.late {
		_, waits := left[key]
		refused := !waits && statuses[key].State == event.Retrying
		if refused && e.until.IsZero() {
			e.until = now.Add(maxHeld)
		}
		if waits || refused && now.Before(e.until) {
			out = append(out, e.addrs...)
		} else {
			delete(v.late, key)
		}
	}
	return out
}
