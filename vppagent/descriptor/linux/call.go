package linux

import (
	"context"

	"github.com/google/nftables"
	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// request is a message for the kernel.
type request interface {
	api.Message
	// do executes the request; details are the answer to a list.
	do(h *handles) (details []api.Message, err error)
}

// FilterRequest is a request of another package for the kernel's packet filter.
type FilterRequest interface {
	api.Message
	// Filter executes the request; details are the answer to a list.
	Filter(c *nftables.Conn) (details []api.Message, err error)
}

// filterRequest makes a FilterRequest a request.
type filterRequest struct{ FilterRequest }

func (r filterRequest) do(h *handles) ([]api.Message, error) {
	c, err := h.filter()
	if err != nil {
		return nil, err
	}
	return r.Filter(c)
}

// requestOf returns a message as a request for the kernel.
func requestOf(m api.Message) (request, bool) {
	if f, ok := m.(FilterRequest); ok {
		return filterRequest{f}, true
	}
	r, ok := m.(request)
	return r, ok
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
		_, ours := requestOf(call.Msg)
		mixed = mixed || ours
	}
	if !mixed {
		return c.VPP.Do(ctx, calls...)
	}
	h := &handles{own: c.Own}
	defer h.close()
	replies := make([]vpp.Reply, 0, len(calls))
	for len(calls) > 0 {
		if r, ours := requestOf(calls[0].Msg); ours {
			replies = append(replies, carryOut(ctx, h, r))
			calls = calls[1:]
			continue
		}
		n := 1
		for n < len(calls) {
			if _, ours := requestOf(calls[n].Msg); ours {
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
