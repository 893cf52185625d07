package controller

import (
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
)

// A value that admits clients, as source ranges do, must not open before another value closes in the same change: VPP takes them one after the other.
//
//	the value before ─▶ transaction: its interim state, and all other changes ─▶ transaction: the value afterwards
//
// The interim state permits what the values before and after both permit. A value that changes alone needs none.

// opening has the values of which only interim states were sent. The zero value has none, and knows no value that opens.
type opening struct {
	// interim returns what two values both permit; nil: the change to the second one opens nothing.
	interim func(was, now proto.Message) proto.Message
	begun   int  // number of these values
	rest    bool // VPP has their interim states, and all that was sent with them: the values follow
}

// ByInterim makes values change by the interim states that f returns; nil: the value needs none.
func (v *Values) ByInterim(f func(was, now proto.Message) proto.Message) { v.interim = f }

// opens reports whether an entry needs an interim state, or has one whose rest must wait.
func (v *Values) opens(e *entry, now proto.Message) bool {
	return v.interim != nil && e.sent != nil && now != nil && !(e.begun && v.rest) && v.interim(e.sent, now) != nil
}

// openLast adds values that open to other changes: their interim states beside other changes, otherwise the values.
func (v *Values) openLast(list []*entry, out map[string]proto.Message) map[string]proto.Message {
	alone := len(out) == 0
	for _, e := range list {
		was, now := e.sent, v.effective(e)
		if out == nil {
			out = map[string]proto.Message{}
		}
		if alone && !e.begun {
			v.recordSent(e, now)
			out[e.key] = now
			continue
		}
		if mid := v.interim(was, now); !kv.Equal(mid, was) {
			v.recordSent(e, mid)
			out[e.key] = mid
		}
		e.begun, e.dirty = true, false
		v.mark(e)
		v.begun++
	}
	return out
}
