package podnet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

type (
	addr      = netip.Addr
	addrRange = netip.Prefix
)

// states are the states of the network's values, and of the access lists of its pods.
type states struct {
	of   map[string]state // by key; a key that is not in it does not count
	news chan struct{}    // closed at the next change
	// leaving are the removals under way, by key.
	leaving map[string]*removal
	last    error // why VPP did not take the last transaction; nil: it did
}

// state is the state of a value as of the last transaction that touched it.
type state struct {
	event.ValueStatus
	wanted bool // a transaction with a value for the key has ended
}

func newStates() states {
	return states{of: map[string]state{}, news: make(chan struct{}), leaving: map[string]*removal{}}
}

// removal is the removal of an attachment: the keys that VPP or the kernel may still have.
type removal struct{ keys map[string]bool }

// rest names a key that is not removed yet; "": all are.
func (r *removal) rest() string {
	for key := range r.keys {
		return key + " is not removed yet"
	}
	return ""
}

// removed notes that a key is removed.
func (s *states) removed(key string) {
	if r := s.leaving[key]; r != nil {
		delete(r.keys, key)
		delete(s.leaving, key)
	}
}

// watch begins to keep the states of values.
func (s *states) watch(values kv.Values) {
	for key := range values {
		s.watchKey(key)
	}
}

func (s *states) watchKey(key string) {
	s.removed(key) // it is wanted again
	if _, has := s.of[key]; !has {
		s.of[key] = state{ValueStatus: event.ValueStatus{Key: key, State: event.Nonexistent}}
	}
}

// unwatch forgets the states of removed values.
func (s *states) unwatch(changes map[string]proto.Message) {
	for key, m := range changes {
		if m == nil {
			delete(s.of, key)
		}
	}
}

func (s *states) happened() {
	close(s.news)
	s.news = make(chan struct{})
}

// Committed implements controller.Onlooker. A status that came without a transaction says nothing about a value that is under way.
func (n *Network) Committed(ev *event.Committed, sent func(key string) proto.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &n.states
	s.last = ev.Err
	for _, st := range ev.Statuses {
		if ev.Err == nil && (st.State == event.Removed || st.State == event.Nonexistent) {
			s.removed(st.Key)
		}
		// A transaction that VPP did not survive counts, too: VPP gets its values when it returns, without a transaction.
		if was, watched := s.of[st.Key]; watched {
			s.of[st.Key] = state{st, was.wanted || ev.Seq != 0 && sent(st.Key) != nil}
		}
	}
	if ev.Err == nil && ev.Resync == event.Full { // VPP and the kernel are equal to the desired state, but for what the statuses name
		for key := range s.leaving {
			if !slices.ContainsFunc(ev.Statuses, func(st event.ValueStatus) bool { return st.Key == key }) {
				s.removed(key)
			}
		}
	}
	s.happened()
}

// missing returns why a value is not in place; "": it is.
func (s *states) missing(key string) string {
	switch st := s.of[key]; {
	case st.wanted && st.State == event.Configured:
		return ""
	case !st.wanted:
		return key + " is not asked for yet"
	default:
		return st.Line()
	}
}

// firstMissing returns why the first of some values is not in place; "": all are. A value that waits for another one counts last.
func (s *states) firstMissing(keys []string) (pending string) {
	for _, key := range keys {
		switch why := s.missing(key); {
		case why == "" || pending != "" && s.of[key].State == event.Pending:
		case s.of[key].State == event.Pending:
			pending = why
		default:
			return why
		}
	}
	return pending
}

// until waits until ready returns "", or VPP is taken for hung. The error has the last answer of ready.
func (n *Network) until(ctx context.Context, ready func() string) error {
	look := time.NewTicker(time.Second) // no news comes of a VPP that is silent
	defer look.Stop()
	for {
		n.mu.Lock()
		why, silent, news := ready(), hung(n), n.states.news
		n.mu.Unlock()
		switch {
		case why == "":
			return nil
		case silent != "":
			return fmt.Errorf("%s: %s", why, silent)
		}
		select {
		case <-news:
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", why, context.Cause(ctx))
		}
	}
}
