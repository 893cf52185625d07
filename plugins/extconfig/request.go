package extconfig

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// Op is what a request does with its items.
type Op uint8

// The operations.
const (
	Put    Op = iota // create or replace them
	Delete           // remove them; only what is in their keys has to be set
	Resync           // create or replace them, and remove everything else of the client's
)

// Request is what a client asks for. Its items must not be modified afterwards.
type Request struct {
	Client string // who asks; "": the client without a name
	Op     Op
	Items  []proto.Message
	Gone   []string         // keys to remove besides, of which nothing else need be known
	Terms  map[string]Terms // of the items, by key; those not named have none
	// AllOrNothing takes all of it back if one item fails. Otherwise only what can never work is taken back, and what VPP has
	// refused is tried again in the background.
	AllOrNothing bool
}

// Outcome is what there is to say of a request that was carried out.
type Outcome struct {
	Seq uint64      // of the transaction; 0: nothing had to change
	All []KeyStatus // every item, and every key that went, sorted by key
	// These are not configured, but nothing is wrong with them.
	Pending       []event.ValueStatus // they wait for other values
	Unimplemented []event.ValueStatus // there is such a model, but nothing puts it into VPP; they are kept
}

// KeyStatus is what was done to one key, and its state afterwards.
type KeyStatus struct {
	Op     string // CREATE, UPDATE or DELETE
	Status event.ValueStatus
}

// maxKey bounds how long a key may be, in bytes: errors name keys, and travel in headers.
const maxKey = kv.MaxKey

// valid is the request's items by key, with nil for those to delete.
func valid(req Request) (map[string]proto.Message, error) {
	values := make(map[string]proto.Message, len(req.Items)+len(req.Gone))
	var bad []event.ValueStatus
	take := func(key string, msg proto.Message, err error) {
		if len(key) > maxKey {
			key, err = key[:64]+"…", fmt.Errorf("%q…: a key of %d bytes, at most %d", key[:64], len(key), maxKey)
		}
		if _, twice := values[key]; twice && err == nil {
			err = fmt.Errorf("%q: twice in one request", key)
		}
		if err != nil {
			bad = append(bad, event.ValueStatus{Key: key, State: event.Invalid, Err: err.Error()})
			return
		}
		values[key] = msg
	}
	for _, msg := range req.Items {
		key := kv.Key(msg)
		if len(key) > maxKey {
			take(key, nil, nil)
			continue
		}
		err := kv.Check(key, msg)
		if merge := req.Terms[key].Merge; err == nil && !merge.Zero() {
			if err = merge.Check(msg.ProtoReflect().Descriptor()); err != nil {
				err = fmt.Errorf("%q: %w", key, err)
			}
		}
		if req.Op == Delete {
			msg = nil
		}
		take(key, msg, err)
	}
	for _, key := range req.Gone {
		var err error
		if _, _, known := kv.Lookup(key); !known && len(key) <= maxKey {
			err = fmt.Errorf("%q: %w", key, kv.ErrNoModel)
		}
		take(key, nil, err)
	}
	if len(bad) > 0 {
		return nil, &InvalidError{Items: bad}
	}
	return values, nil
}

// operation is ligato's word for going from one value to another.
func operation(before, after proto.Message) string {
	switch {
	case after == nil:
		return "DELETE"
	case before == nil:
		return "CREATE"
	}
	return "UPDATE"
}

func outcome(r *event.ExternalResult, before, changes map[string]proto.Message) *Outcome {
	out := &Outcome{Seq: r.Seq, All: make([]KeyStatus, 0, len(r.Values))}
	for _, st := range r.Values {
		out.All = append(out.All, KeyStatus{Op: operation(before[st.Key], changes[st.Key]), Status: st})
		switch st.State {
		case event.Pending:
			out.Pending = append(out.Pending, st)
		case event.Unimplemented:
			out.Unimplemented = append(out.Unimplemented, st)
		}
	}
	return out
}
