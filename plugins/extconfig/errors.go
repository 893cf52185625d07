package extconfig

import (
	"errors"
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/event"
)

// ErrInvalid is wrapped by the error of a request that was refused before anything was changed.
var ErrInvalid = errors.New("invalid request")

// ErrUnavailable is wrapped by the error of a request that could not be carried out now: VPP is away, or the agent ends.
var ErrUnavailable = errors.New("not available")

// KeyError is one item that failed.
type KeyError struct {
	Op     string // CREATE, UPDATE or DELETE
	Status event.ValueStatus
	// TakenBack reports that the item is not wanted any more: what was there for its key before is again. Otherwise it stays wanted
	// and is tried again in the background.
	TakenBack bool
}

// TransactionError names the items of a transaction that failed, sorted by key. There is at least one.
type TransactionError struct {
	Keys []KeyError
	// Reverted reports that nothing of the request is left, as it asked for.
	Reverted bool
}

// maxNamed bounds how many failed items the text names: it travels in a header, and some clients take headers of few KiB only.
const maxNamed = 100

// Error is the form that clients of Contiv and ligato parse: KeyErrors: [key (OPERATION): error, …]. Behind the first 100 it tells how
// many there are more.
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

// reason is why a value is not configured, never empty.
func reason(st event.ValueStatus) string {
	if st.Err != "" {
		return st.Err
	}
	return st.State.String()
}

// InvalidError names every item of a request that was refused before anything was changed. It wraps ErrInvalid.
type InvalidError struct {
	Items []event.ValueStatus // INVALID, in the order of the request; Key may be that of several items, or one no model has
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

// Unwrap is ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }
