package descriptor

import (
	"context"
	"fmt"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Request is a dump request to VPP. A resync sends requests with equal ID once.
type Request struct {
	ID   string
	Call vpp.Call
}

// Dump has the answers, by ID; a reader waits for an answer that has not arrived yet.
type Dump struct{ answers map[string]*answer }

// answer is complete when come is closed.
type answer struct {
	reply vpp.Reply
	come  chan struct{}
	early bool // before all answers had arrived
}

func newDump(requests []Request) *Dump {
	d := &Dump{answers: make(map[string]*answer, len(requests))}
	for _, r := range requests {
		d.answers[r.ID] = &answer{come: make(chan struct{})}
	}
	return d
}

// NewDump returns a dump with the answers to the requests, by index.
func NewDump(requests []Request, replies []vpp.Reply) *Dump {
	d := newDump(requests)
	for i, r := range requests {
		d.answers[r.ID].setReply(replies[i])
	}
	return d
}

func (a *answer) setReply(r vpp.Reply) {
	a.reply = r
	close(a.come)
}

// Ask sends the requests to VPP and returns at once: a reader can handle the first answers while the rest arrives. all waits for
// the last answer and returns the answers by index; the caller must call it.
func Ask(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply, requests []Request) (d *Dump, all func() []vpp.Reply) {
	d = newDump(requests)
	calls, list := make([]vpp.Call, len(requests)), make([]*answer, len(requests))
	for i, r := range requests {
		a := d.answers[r.ID]
		calls[i], list[i] = r.Call, a
		calls[i].Done = func(reply vpp.Reply) {
			a.early = true
			a.setReply(reply)
		}
	}
	var replies []vpp.Reply
	done := make(chan struct{})
	go func() {
		defer close(done)
		replies = do(ctx, calls...)
		for i, a := range list {
			if !a.early {
				a.setReply(replies[i])
			}
		}
	}()
	return d, func() []vpp.Reply { <-done; return replies }
}

// Join adds the answers of another dump; nil: none.
func (d *Dump) Join(o *Dump) {
	if o == nil {
		return
	}
	for id, a := range o.answers {
		if d.answers[id] == nil {
			d.answers[id] = a
		}
	}
}

// Some returns the answers to those of the requests that were sent.
func (d *Dump) Some(requests []Request) *Dump {
	out := newDump(nil)
	for _, r := range requests {
		if a := d.answers[r.ID]; a != nil {
			out.answers[r.ID] = a
		}
	}
	return out
}

// Has reports whether the request was sent; d may be nil.
func (d *Dump) Has(id string) bool { return d != nil && d.answers[id] != nil }

// Reply returns the answer to the request with that ID, or its error.
func (d *Dump) Reply(id string) (vpp.Reply, error) {
	a, ok := d.answers[id]
	if !ok {
		return vpp.Reply{}, fmt.Errorf("%s was not asked for", id)
	}
	<-a.come
	if a.reply.Err != nil {
		return a.reply, fmt.Errorf("%s: %w", id, a.reply.Err)
	}
	return a.reply, nil
}

// Details returns the details of a dump whose messages are D.
func Details[D any](d *Dump, id string) ([]D, error) {
	r, err := d.Reply(id)
	if err != nil {
		return nil, err
	}
	out := make([]D, 0, len(r.Details))
	for _, m := range r.Details {
		t, ok := m.(D)
		if !ok {
			return nil, fmt.Errorf("%s: got %T", id, m)
		}
		out = append(out, t)
	}
	return out, nil
}

// Replied returns the message that answered a request; its type is M.
func Replied[M any](d *Dump, id string) (m M, _ error) {
	r, err := d.Reply(id)
	if err != nil {
		return m, err
	}
	m, ok := r.Msg.(M)
	if !ok {
		return m, fmt.Errorf("%s: got %T", id, r.Msg)
	}
	return m, nil
}
