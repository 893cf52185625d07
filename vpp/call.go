package vpp

import (
	"errors"
	"fmt"

	"go.fd.io/govpp/api"
)

// ErrDisconnected is what a call meets when VPP is away or goes away before answering. It may or may not have taken effect.
var ErrDisconnected = errors.New("vpp is disconnected")

// errPending marks a call of a batch that has no answer yet; it never leaves the package.
var errPending = errors.New("no answer yet")

// Call is one request.
type Call struct {
	// Msg is the request. It is read until Do returns and not changed.
	Msg api.Message
	// Dump marks a request answered by any number of details and no final reply; Do closes it with a control_ping.
	// Requests of the "get" style (details, then a reply with a cursor) need no mark and are continued until complete.
	Dump bool
	// Joined tells that this call and the next of the same Do leave in one write, with nothing between them. A VPP without
	// workers forwards no packet between two messages it has read at once (vl_socket_read_ready, api-rx-from-ring).
	Joined bool
	// Done, if not nil, is told the reply as soon as it is there, before Do returns; never if Do ends before VPP has
	// answered. It must return at once.
	Done func(Reply)
}

// Reply is the answer to one Call.
type Reply struct {
	// Msg is the final reply, nil for a dump. It is set beside a *Retval error too.
	Msg api.Message
	// Details are the parts of a dump, in VPP's order; nil after an error.
	Details []api.Message
	// Err is nil, or: ErrDisconnected, *GuardError, *MissingError, *Retval, *UnexpectedError, the context's error, or what
	// is wrong with the bytes.
	Err error
}

// Retval is a refusal by VPP: a reply whose retval is not 0. Positive ones are refusals too (acl_interface_set_acl_list of
// VPP 24.06 answers 1). errors.Is(err, api.VALUE_EXIST) and the like work on it.
type Retval struct {
	// Message is the name of the request.
	Message string
	// Code is the retval.
	Code int32
}

func (r *Retval) Error() string {
	return fmt.Sprintf("%s: %s", r.Message, api.VPPApiError(r.Code).Error())
}

// Unwrap is VPP's own name for the code.
func (r *Retval) Unwrap() error { return api.VPPApiError(r.Code) }

// MissingError is a call this VPP cannot take.
type MissingError struct {
	// Message is the request's name, Lacks the name_crc VPP does not have: the request or one of its replies.
	Message, Lacks string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s: vpp has no message %s (plugin not loaded, or another version)", e.Message, e.Lacks)
}

// UnexpectedError is an answer of another kind than the request has.
type UnexpectedError struct {
	// Message is the request's name, Got the name_crc of the answer, or its number if VPP never announced it.
	Message, Got string
}

func (e *UnexpectedError) Error() string {
	return fmt.Sprintf("%s: answered by %s", e.Message, e.Got)
}

func failed(n int, err error) []Reply {
	out := make([]Reply, n)
	for i := range out {
		out[i].Err = err
	}
	return out
}
