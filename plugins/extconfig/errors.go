package extconfig

import (
	"errors"
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/event"
)

// ErrInvalid is wrapped by the error of a request that was refused before anything changed.
var ErrInvalid = errors.New("invalid request")

// ErrUnavailable is wrapped by the error of a request that cannot be carried out now: VPP is away, or the agent is stopping.
var ErrUnavailable = errors.New("not available")

// KeyError is one item that failed.
type KeyError struct {
	Op     string // CREATE, UPDATE or DELETE
	Status event.ValueStatus
	// TakenBack reports that the item was rolled back: its key has its earlier value again. Otherwise the item stays desired and is
	// retried in the background.
	TakenBack bool
}

// TransactionError names the failed items of a transaction, sorted by key. It has at least one.
type TransactionError struct {
	Keys []KeyError
	// Reverted reports that the whole request was rolled back, as the client asked.
	Reverted bool
}

// maxNamed bounds how many failed items the text names: it is sent in a header, and some clients accept headers of few KiB only.
const maxNamed = 100

// Error returns the form that clients of Contiv and ligato parse: KeyErrors: [key (OPERATION): error, …]. After the first 100 items
// it gives the number of the others.
func (e *TransactionError) Error() string {
	var b strings.Builder
	b.WriteString("KeyErrors: [")
	for i, k := range e.Keys {
		if i == maxNamed {
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s): %s", k.Status.Key, k.Op, reason(k.Status))
	}
	b.WriteString("]")
	if more := len(e.Keys) - maxNamed; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// reason returns why a value is not configured, never empty.
func reason(st event.ValueStatus) string {
	if st.Err != "" {
		return st.Err
	}
	return st.State.String()
}

// InvalidError names every invalid item of a request that was refused before anything changed. It wraps ErrInvalid.
type InvalidError struct {
	Items []event.ValueStatus // INVALID, in the order of the request. Key may be shared by several items, or may belong to no model
}

// Error names the items, at most 100.
func (e *InvalidError) Error() string {
	var b strings.Builder
	b.WriteString(ErrInvalid.Error())
	for i, item := range e.Items[:min(len(e.Items), maxNamed)] {
		b.WriteString([]string{": ", "; "}[min(i, 1)] + item.Err)
	}
	if more := len(e.Items) - maxNamed; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }
