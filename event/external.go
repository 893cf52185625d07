package event

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
)

// External is a change of keyed values by an external configuration source (etcd, gRPC, …). ExternalConfigChange and
// ExternalConfigResync make one. Values must not be modified after the event was emitted. The loop refuses the whole
// event if one value is under a foreign key (kv.Check) or if one Merge does not fit its value.
type External struct {
	Source string                   // name of the source; for a key of several sources, the value of the later name is merged over the earlier
	Values map[string]proto.Message // a nil message deletes
	Resync bool                     // Values is everything the source wants
	// Merge says, by key, how values are merged where proto.Merge does not do what is meant. It holds for this put
	// only: a value that is put again without it is merged by proto.Merge.
	Merge map[string]Merge
	// Result receives one answer when the transaction of the values is done; nil for none. It must have a buffer of
	// one: the loop does not wait, and drops an answer that does not fit.
	Result chan<- *ExternalResult
}

// ExternalConfigChange is a change: nil messages delete, and keys that are not named keep their values.
func ExternalConfigChange(source string, values map[string]proto.Message) *External {
	return &External{Source: source, Values: values}
}

// ExternalConfigResync names everything the source wants. Earlier values of the source that are not named are removed.
func ExternalConfigResync(source string, values map[string]proto.Message) *External {
	return &External{Source: source, Values: values, Resync: true}
}

// ExternalResult says what became of an External.
type ExternalResult struct {
	Seq uint64 // number of the transaction that had the values; 0 if nothing had to change
	// Values are the states of all keys the event put or deleted, sorted by key. If several sources want a key, its
	// state is that of the merged value. Empty if the event was refused (Err).
	Values []ValueStatus
	// Err says that the event was refused as a whole and changed nothing (Seq is 0), or that its transaction could not
	// run (VPP is away) and is repeated until it can. Nil otherwise.
	Err error
}

// Bad are the values that VPP, or a check before VPP, refused: INVALID, FAILED or RETRYING. A PENDING value waits for
// another value, an UNIMPLEMENTED one for a later version; neither is bad.
func (r *ExternalResult) Bad() []ValueStatus {
	var out []ValueStatus
	for _, st := range r.Values {
		if st.State == Invalid || st.State == Failed || st.State == Retrying {
			out = append(out, st)
		}
	}
	return out
}

// State is the state of one key; false if the event did not name the key.
func (r *ExternalResult) State(key string) (ValueStatus, bool) {
	i, found := slices.BinarySearchFunc(r.Values, key, func(st ValueStatus, key string) int { return cmp.Compare(st.Key, key) })
	if !found {
		return ValueStatus{}, false
	}
	return r.Values[i], true
}

// Await emits the event and waits for its result. It fails only if ctx ends; the event may be carried out nevertheless.
// Before the first sync it waits until every source is in sync and VPP is connected.
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
