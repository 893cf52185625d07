package linux

import (
	"context"

	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// request is a message for the kernel.
type request interface {
	api.Message
	// do executes the request; details are the answer to a list.
	do(h *handles) (details []api.Message, err error)
}

// Message has the methods of VPP's messages for requests and details.
type Message struct{}

// GetCrcString is empty: these messages have no versions.
func (Message) GetCrcString() string { return "" }

// GetMessageType is none of VPP's.
func (Message) GetMessageType() api.MessageType { return api.OtherMessage }

// Caller sends requests of this package to the kernel and all others to VPP, in order. Only the agent's goroutine may use it.
type Caller struct {
	VPP interface {
		Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply
	}
	// Own is the path of the network namespace with the agent's interfaces; "": the process's.
	Own string
}

// Do returns one reply per call.
func (c *Caller) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	mixed := false
	for _, call := range calls {
		_, ours := call.Msg.(request)
		mixed = mixed || ours
	}
	if !mixed {
		return c.VPP.Do(ctx, calls...)
	}
	h := &handles{own: c.Own}
	defer h.close()
	replies := make([]vpp.Reply, 0, len(calls))
	for len(calls) > 0 {
		if r, ours := calls[0].Msg.(request); ours {
			replies = append(replies, carryOut(ctx, h, r))
			calls = calls[1:]
			continue
		}
		n := 1
		for n < len(calls) {
			if _, ours := calls[n].Msg.(request); ours {
				break
			}
			n++
		}
		replies = append(replies, c.VPP.Do(ctx, calls[:n]...)...)
		calls = calls[n:]
	}
	return replies
}

func carryOut(ctx context.Context, h *handles, r request) vpp.Reply {
	if err := ctx.Err(); err != nil {
		return vpp.Reply{Err: err}
	}
	details, err := r.do(h)
	if err != nil {
		return vpp.Reply{Err: err}
	}
	return vpp.Reply{Msg: r, Details: details}
}
