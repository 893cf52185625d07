package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
)

// Errors that an *Error wraps.
var (
	// ErrInvalid: the agent refused the request and changed nothing.
	ErrInvalid = errors.New("invalid request")
	// ErrFailed: items failed. The agent reverted INVALID items, and every item of an all-or-nothing change; the rest stays
	// in the desired state.
	ErrFailed = errors.New("items failed")
	// ErrUnavailable: no agent answers, the agent is ending, or VPP is away. In the last case the agent keeps the change
	// and applies it later, unless it was all or nothing.
	ErrUnavailable = errors.New("not available")
	// ErrDenied: the agent does not trust this client's certificate.
	ErrDenied = errors.New("denied")
)

// Error is the error of a failed request.
type Error struct {
	Items  []ItemError // the failed items as the agent reports them; at most a hundred unless the change was sent as a stream
	status *status.Status
}

// ItemError is one item that failed.
type ItemError struct {
	Key   string
	Op    string // CREATE, UPDATE, DELETE, or "" if no operation was attempted
	State event.State
	Err   string
}

// Error returns the agent's text.
func (e *Error) Error() string { return e.status.Message() }

// Unwrap returns one of this package's errors, or the error of an ended context; nil for all others.
func (e *Error) Unwrap() error {
	return map[codes.Code]error{
		codes.InvalidArgument: ErrInvalid, codes.FailedPrecondition: ErrFailed, codes.Unavailable: ErrUnavailable,
		codes.Unauthenticated: ErrDenied, codes.PermissionDenied: ErrDenied,
		codes.Canceled: context.Canceled, codes.DeadlineExceeded: context.DeadlineExceeded,
	}[e.status.Code()]
}

// GRPCStatus returns the received status.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// String formats the item as one line.
func (i ItemError) String() string {
	op := ""
	if i.Op != "" {
		op = " (" + strings.ToLower(i.Op) + ")"
	}
	return fmt.Sprintf("%s%s: %s: %s", i.Key, op, i.State, i.Err)
}

// toError returns the *Error for a status, with the items in its details or in the statuses streamed before it.
func toError(err error, statuses []*kvscheduler.ValueStatus) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	if len(statuses) == 0 {
		for _, d := range st.Details() {
			if s, ok := d.(*kvscheduler.ValueStatus); ok {
				statuses = append(statuses, s)
			}
		}
	}
	e := &Error{status: st}
	for _, s := range statuses {
		item := ItemError{Key: s.GetKey(), State: event.State(s.GetState()), Err: s.GetError()}
		if s.GetLastOperation() != kvscheduler.TxnOperation_UNDEFINED {
			item.Op = s.GetLastOperation().String()
		}
		e.Items = append(e.Items, item)
	}
	return e
}
