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

// What an *Error wraps.
var (
	// ErrInvalid: the request was refused, and nothing was changed.
	ErrInvalid = errors.New("invalid request")
	// ErrFailed: items have failed. What is INVALID was taken back, as is everything of a change that was all or nothing; the rest
	// stays wanted.
	ErrFailed = errors.New("items failed")
	// ErrUnavailable: nobody answers there, VPP is away (the change is kept and carried out later, unless it was all or nothing), or
	// the agent ends.
	ErrUnavailable = errors.New("not available")
	// ErrDenied: the agent does not trust this client's certificate.
	ErrDenied = errors.New("denied")
)

// Error is a request that failed.
type Error struct {
	Items  []ItemError // what it was about, as far as the agent tells: a hundred at most unless the change went as a stream
	status *status.Status
}

// ItemError is one item that failed.
type ItemError struct {
	Key   string
	Op    string // CREATE, UPDATE, DELETE, or "" if it did not come to that
	State event.State
	Err   string
}

// Error is the agent's own text.
func (e *Error) Error() string { return e.status.Message() }

// Unwrap is one of the errors of this package, or that of a context that ended; nil for everything else.
func (e *Error) Unwrap() error {
	return map[codes.Code]error{
		codes.InvalidArgument: ErrInvalid, codes.FailedPrecondition: ErrFailed, codes.Unavailable: ErrUnavailable,
		codes.Unauthenticated: ErrDenied, codes.PermissionDenied: ErrDenied,
		codes.Canceled: context.Canceled, codes.DeadlineExceeded: context.DeadlineExceeded,
	}[e.status.Code()]
}

// GRPCStatus is the status as it came.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// String is a line for people.
func (i ItemError) String() string {
	op := ""
	if i.Op != "" {
		op = " (" + strings.ToLower(i.Op) + ")"
	}
	return fmt.Sprintf("%s%s: %s: %s", i.Key, op, i.State, i.Err)
}

// toError reads the details of a status, or the statuses that came before it.
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
