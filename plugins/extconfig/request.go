package extconfig

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// Op is the operation of a request on its items.
type Op uint8

// The operations.
const (
	Put    Op = iota // create or replace them
	Delete           // remove them; only the fields that form their keys must be set
	Resync           // create or replace them, and remove the client's other values
)

// Request is a request of a client. Its items must not be modified afterwards.
type Request struct {
	Client string // name of the client; "": the client without a name
	Op     Op
	Items  []proto.Message
	Gone   []string         // further keys to remove; their values may be unknown
	Terms  map[string]Terms // terms of items by key; other items have none
	// AllOrNothing rolls back the whole request if one item fails. Otherwise only items that can never work are rolled back, and the
	// agent retries the items that VPP refused in the background.
	AllOrNothing bool
}

// Outcome is the result of a request that was carried out.
type Outcome struct {
	Seq uint64      // sequence number of the transaction; 0: nothing had to change
	All []KeyStatus // every item and every removed key, sorted by key
	// These values are not configured, but have not failed.
	Pending       []event.ValueStatus // they wait for other values
	Unimplemented []event.ValueStatus // their model is known, but nothing configures it in VPP; they are stored
}

// KeyStatus is the operation on one key, and its state afterwards.
type KeyStatus struct {
	Op     string // CREATE, UPDATE or DELETE
	Status event.ValueStatus
}

// maxKey bounds the length of a key in bytes: errors name keys and are sent in headers.
const maxKey = kv.MaxKey

// valid returns the request's items by key, with nil for deletions.
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

// operation returns ligato's name for the change from one value to another.
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
