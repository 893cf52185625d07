package flags

import (
	"context"
	"io"
)

// UntilInputEnds is the flag by which the command of a cluster ends that of a node: kubectl exec does not end the program that it started.
const UntilInputEnds = "until-input-ends"

// UntilEnd returns a context that also ends when the input ends. The function frees what the context holds.
func UntilEnd(ctx context.Context, in io.Reader) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in) // its end is the message
	}()
	return ctx, cancel
}
