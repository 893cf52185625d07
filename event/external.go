package event

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
)

// External is a change of keyed values by an external configuration source (etcd, gRPC, …): made by ExternalConfigChange or
// ExternalConfigResync. Values must not be modified after it was emitted. One value whose key is not its own (keyed.Check),
// or one Merge that does not fit its value, has all of the event refused.
type External struct {
	Source string                   // name of the source; among several for one key, the later name is merged over the earlier
	Values map[string]proto.Message // nil message: delete
	Resync bool                     // Values is everything that source wants
	// Merge is how values are merged, by key, where proto.Merge would not do what is meant. A value that is put again without it
	// is merged by proto.Merge again.
	Merge map[string]Merge
	// Result gets one answer when the values' transaction is done; nil: nobody waits. It needs room for one: the loop does
	// not wait, and drops an answer there is no room for.
	Result chan<- *ExternalResult
}

// ExternalConfigChange is a change: nil messages delete, and what is not named stays.
func ExternalConfigChange(source string, values map[string]proto.Message) *External {
	return &External{Source: source, Values: values}
}

// ExternalConfigResync says all that the source wants: what it wanted before and does not name goes.
func ExternalConfigResync(source string, values map[string]proto.Message) *External {
	return &External{Source: source, Values: values, Resync: true}
}

// ExternalResult tells what became of an External.
type ExternalResult struct {
	Seq uint64 // of the transaction that had the values; 0: nothing had to change
	// Values are the states of all keys the event put or deleted, sorted by key; of a key that somebody else wants as well it is the
	// state of the merged value. Empty if Err says that the event was refused.
	Values []ValueStatus
	// Err: the event was refused as a whole and has changed nothing (Seq is 0), or its transaction could not run (VPP is away) and
	// is repeated until it can; nil: neither.
	Err error
}

// Bad are the values that VPP or a check before it refused: INVALID, FAILED or RETRYING. A PENDING value waits for another one,
// an UNIMPLEMENTED one for a later version; neither is bad.
func (r *ExternalResult) Bad() []ValueStatus {
	var out []ValueStatus
	for _, st := range r.Values {
		if st.State == Invalid || st.State == Failed || st.State == Retrying {
			out = append(out, st)
		}
	}
	return out
}

// State is what became of one key; false: the event did not name it.
func (r *ExternalResult) State(key string) (ValueStatus, bool) {
	i, found := slices.BinarySearchFunc(r.Values, key, func(st ValueStatus, key string) int { return cmp.Compare(st.Key, key) })
	if !found {
		return ValueStatus{}, false
	}
	return r.Values[i], true
}

// Await emits the event and waits for what becomes of it. It fails with ctx only; the event may be carried out all the same then.
// Before the first sync that may take as long as some source is not in sync, or VPP is not there.
func Await(ctx context.Context, emit func(Event), ev *External) (*ExternalResult, error) {
	result := make(chan *ExternalResult, 1)
	waited := *ev
	waited.Result = result
	emit(&waited)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-result:
		return r, nil
	}
}
