package grpc

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
)

// feedLength is how many notifications are kept for slow clients and for clients that ask for earlier ones.
const feedLength = 1 << 16

// feed holds the latest notifications, numbered from 0. The writer does not wait for readers. The zero value is empty.
type feed[T any] struct {
	mu    sync.Mutex
	first uint64 // number of entries[0]
	last  []T
	more  chan struct{} // closed when an entry is added; nil: no reader waits
}

func (f *feed[T]) addEntries(entries ...T) {
	if len(entries) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = append(f.last, entries...)
	if over := len(f.last) - feedLength; over > 0 {
		clear(f.last[:over])
		f.last, f.first = f.last[over:], f.first+uint64(over)
	}
	if f.more != nil {
		close(f.more)
		f.more = nil
	}
}

// nextNumber returns the number of the next entry.
func (f *feed[T]) nextNumber() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first + uint64(len(f.last))
}

// readEntries waits until an entry with that number or a later one exists, and returns all of these and the number of the first.
func (f *feed[T]) readEntries(ctx context.Context, at uint64) ([]T, uint64, error) {
	for {
		f.mu.Lock()
		at = max(at, f.first)
		if n := at - f.first; n < uint64(len(f.last)) {
			out := append([]T(nil), f.last[n:]...)
			f.mu.Unlock()
			return out, at, nil
		}
		if f.more == nil {
			f.more = make(chan struct{})
		}
		more := f.more
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, at, ctx.Err()
		case <-more:
		}
	}
}

// change is the change of one value.
type change struct {
	event.ValueStatus
	message proto.Message // nil: deleted
}

// Show implements controller.Onlooker.
func (s *Server) Show(values func() []event.Value) { s.values = values }

// Committed implements controller.Onlooker.
func (s *Server) Committed(ev *event.Committed, sent func(string) proto.Message) {
	changes := make([]change, 0, len(ev.Statuses))
	var links []*interfaces.InterfaceNotification
	for _, st := range ev.Statuses {
		if _, _, value := kv.Lookup(st.Key); !value {
			continue // a part of one
		}
		c := change{st, sent(st.Key)}
		if !s.news(c) {
			continue
		}
		changes = append(changes, c)
		if n := s.link(c); n != nil {
			links = append(links, n)
		}
	}
	s.changes.addEntries(changes...)
	s.links.addEntries(links...)
}

// news reports whether a value or its state differs from the last reported one. Only the loop calls it.
func (s *Server) news(c change) bool {
	was, known := s.reported[c.Key]
	if known && was.State == c.State && was.Err == c.Err && slices.Equal(was.Details, c.Details) && kv.Equal(was.message, c.message) {
		return false
	}
	if s.reported == nil {
		s.reported = map[string]change{}
	}
	if s.reported[c.Key] = c; c.message == nil {
		delete(s.reported, c.Key)
	}
	return true
}

// link returns the notification for a value, if it is an interface that went up or down or was deleted; nil: none. Only the loop
// calls it.
func (s *Server) link(c change) *interfaces.InterfaceNotification {
	model, name, _ := kv.Lookup(c.Key)
	if model.Proto != string((*interfaces.Interface)(nil).ProtoReflect().Descriptor().FullName()) {
		return nil
	}
	state := &interfaces.InterfaceState{Name: name, LastChange: time.Now().Unix()}
	i, _ := c.message.(*interfaces.Interface)
	switch {
	case i == nil:
		state.AdminStatus, state.OperStatus = interfaces.InterfaceState_DELETED, interfaces.InterfaceState_DELETED
	case c.State != event.Configured:
		return nil
	default:
		state.AdminStatus = interfaces.InterfaceState_DOWN
		if i.GetEnabled() {
			state.AdminStatus = interfaces.InterfaceState_UP
		}
		state.Type, state.PhysAddress, state.Mtu = i.GetType(), i.GetPhysAddress(), i.GetMtu()
	}
	was := s.admin[name]
	if was == state.AdminStatus || was == interfaces.InterfaceState_UNKNOWN_STATUS && i == nil {
		return nil
	}
	if s.admin == nil {
		s.admin = map[string]interfaces.InterfaceState_Status{}
	}
	if s.admin[name] = state.AdminStatus; i == nil {
		delete(s.admin, name)
	}
	return &interfaces.InterfaceNotification{Type: interfaces.InterfaceNotification_UPDOWN, State: state}
}
