package vpp

import (
	"errors"
	"fmt"

	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/vpp/digest"
)

// ErrDisconnected is the error of a call if VPP is away or goes away before its answer. VPP may have processed the call.
var ErrDisconnected = errors.New("vpp is disconnected")

// errPending marks a call of a batch without an answer yet; it never leaves the package.
var errPending = errors.New("no answer yet")

// Call is one request.
type Call struct {
	// Msg is the request. Do reads it until it returns, and does not change it.
	Msg api.Message
	// Dump marks a request that VPP answers with any number of details and no final reply; Do ends it with a control_ping.
	// Requests of the "get" style (details, then a reply with a cursor) need no mark; Do continues them to the end.
	Dump bool
	// Joined means that this call and the next one of the same Do are sent in one write, with nothing between them. A VPP without workers
	// forwards no packet between two messages that it reads at once (vl_socket_read_ready).
	Joined bool
	// AtOnce, of the first of joined calls, makes sure that VPP reads them at once (it reads 4,096 bytes): they wait for all earlier answers.
	AtOnce bool
	// Done, if not nil, is called with the reply as soon as it arrives, before Do returns; never if Do ends before VPP has
	// answered. It must not block.
	Done func(Reply)
	// Digest asks for Reply.Digest. Brief does too, of a dump or a reading request: its details are neither decoded nor kept, and the guard does not see the answer,
	// because the caller knows an equal one.
	Digest, Brief bool
	For           string // key of the value that the request is for; "": none
}

// Reply is the answer to one Call.
type Reply struct {
	// Msg is the final reply, nil for a dump. It is also set beside a *Retval error.
	Msg api.Message
	// Details are the details of a dump, in VPP's order; nil after an error.
	Details []api.Message
	// Digest is that of all messages of the answer, without their headers; zero: not asked for, or no complete answer.
	Digest digest.Sum
	// Err is nil, ErrDisconnected, *GuardError, *MissingError, *Retval, *UnexpectedError, the context's error, or an
	// encoding or decoding error.
	Err error
}

// Retval is the error of a reply whose retval is not 0. Positive ones are refusals too (acl_interface_set_acl_list of VPP
// 24.06 answers 1). errors.Is(err, api.VALUE_EXIST) and the like work on it.
type Retval struct {
	// Message is the name of the request.
	Message string
	// Code is the retval.
	Code int32
}

func (r *Retval) Error() string {
	return fmt.Sprintf("%s: %s", r.Message, api.VPPApiError(r.Code).Error())
}

// Unwrap returns VPP's error for the code.
func (r *Retval) Unwrap() error { return api.VPPApiError(r.Code) }

// MissingError is the error of a call that this VPP does not support.
type MissingError struct {
	// Message is the request's name. Lacks is the name_crc that VPP does not have: of the request or of one of its replies.
	Message, Lacks string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s: vpp has no message %s (plugin not loaded, or another version)", e.Message, e.Lacks)
}

// UnexpectedError is the error of an answer that is not a reply to the request.
type UnexpectedError struct {
	// Message is the request's name. Got is the name_crc of the answer, or its id if VPP never announced it.
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
