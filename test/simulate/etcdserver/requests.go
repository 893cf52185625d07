package etcdserver

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// answerHeader is the header of an answer, under mu.
func (s *Server) answerHeader() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, MemberId: 1, Revision: int64(len(s.history)), RaftTerm: 1}
}

// Status implements pb.MaintenanceServer.
func (s *Server) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.StatusResponse{Header: s.answerHeader(), Version: "3.6.0", Leader: 1}, nil
}

// Range implements pb.KVServer.
func (s *Server) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Revision != 0 && r.Revision < s.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	case r.Revision > int64(len(s.history)):
		return nil, rpctypes.ErrGRPCFutureRev
	}
	out := &pb.RangeResponse{Header: s.answerHeader()}
	values := s.asOf(r.Revision)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !covers(r.Key, r.RangeEnd, key) {
			continue
		}
		if out.Count++; r.Limit > 0 && int64(len(out.Kvs)) == r.Limit {
			out.More = true
			continue
		}
		out.Kvs = append(out.Kvs, values[key].pair(key, r.KeysOnly))
	}
	s.springSlip(r, out.More)
	return out, nil
}

// covers reports whether a range has a key.
func covers(from, end []byte, key string) bool {
	if len(end) == 0 {
		return key == string(from)
	}
	return key >= string(from) && key < string(end)
}

// Txn implements pb.KVServer, for puts and deletions of single keys without conditions.
func (s *Server) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	values, lease := revision{}, int64(0)
	out := &pb.TxnResponse{Succeeded: true}
	for _, op := range r.Success {
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			if lease = op.RequestPut.Lease; lease != 0 && s.leases[lease] == nil {
				return nil, rpctypes.ErrGRPCLeaseNotFound
			}
			values[string(op.RequestPut.Key)] = string(op.RequestPut.Value)
			out.Responses = append(out.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}})
		case *pb.RequestOp_RequestDeleteRange:
			values[string(op.RequestDeleteRange.Key)] = ""
			out.Responses = append(out.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{}}})
		}
	}
	s.putRevision(values, lease)
	out.Header = s.answerHeader()
	return out, nil
}

// watchServer implements pb.WatchServer.
type watchServer struct {
	pb.UnimplementedWatchServer
	server *Server
}

// watch is one watch of a stream.
type watch struct {
	id        int64
	key, end  []byte
	next      int64 // the first revision that the client lacks
	epoch     int
	cancelled bool
}

// Watch implements pb.WatchServer.
func (w *watchServer) Watch(stream pb.Watch_WatchServer) error {
	requests, failed := make(chan *pb.WatchRequest), make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	var all []*watch
	last := int64(0)
	for {
		changed, news := w.news(all)
		for _, n := range news {
			if err := stream.Send(n); err != nil {
				return err
			}
		}
		all = slices.DeleteFunc(all, func(w *watch) bool { return w.cancelled })
		select {
		case <-changed:
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-stream.Context().Done():
			return stream.Context().Err()
		case r := <-requests:
			last++
			answer := w.handleRequest(r, last, &all)
			if answer == nil {
				continue
			}
			if err := stream.Send(answer); err != nil {
				return err
			}
		}
	}
}

// handleRequest creates or cancels a watch.
func (w *watchServer) handleRequest(r *pb.WatchRequest, id int64, all *[]*watch) *pb.WatchResponse {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r := r.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		c := r.CreateRequest
		n := &watch{id: id, key: c.Key, end: c.RangeEnd, next: c.StartRevision, epoch: s.epoch}
		if n.next == 0 {
			n.next = int64(len(s.history)) + 1
		}
		*all = append(*all, n)
		return &pb.WatchResponse{Header: s.answerHeader(), WatchId: n.id, Created: true}
	case *pb.WatchRequest_CancelRequest:
		for _, n := range *all {
			if n.id == r.CancelRequest.WatchId {
				n.cancelled = true
				return &pb.WatchResponse{Header: s.answerHeader(), WatchId: n.id, Canceled: true}
			}
		}
	}
	return nil
}

// news returns what the watches lack, and what is closed at the next change.
func (w *watchServer) news(all []*watch) (<-chan struct{}, []*pb.WatchResponse) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*pb.WatchResponse
	for _, n := range all {
		switch {
		case n.cancelled:
		case n.epoch != s.epoch: // the member that served it is gone
			n.cancelled = true
			out = append(out, &pb.WatchResponse{Header: s.answerHeader(), WatchId: n.id, Canceled: true, CancelReason: "etcdserver: no leader"})
		case n.next < s.compacted:
			n.cancelled = true
			out = append(out, &pb.WatchResponse{Header: s.answerHeader(), WatchId: n.id, Canceled: true, CompactRevision: s.compacted})
		default:
			var events []*mvccpb.Event
			for ; n.next <= int64(len(s.history)); n.next++ {
				events = append(events, n.events(s.history[n.next-1])...)
			}
			if len(events) > 0 {
				out = append(out, &pb.WatchResponse{Header: s.answerHeader(), WatchId: n.id, Events: events})
			}
		}
	}
	return s.changed, out
}

// events are those of the next revision.
func (n *watch) events(r revision) (out []*mvccpb.Event) {
	for _, key := range slices.Sorted(maps.Keys(r)) {
		if !covers(n.key, n.end, key) {
			continue
		}
		ev := &mvccpb.Event{Type: mvccpb.PUT, Kv: &mvccpb.KeyValue{Key: []byte(key), Value: []byte(r[key]), ModRevision: n.next}}
		if r[key] == "" {
			ev.Type = mvccpb.DELETE
		}
		out = append(out, ev)
	}
	return out
}

// leaseServer implements pb.LeaseServer.
type leaseServer struct {
	pb.UnimplementedLeaseServer
	server *Server
}

// LeaseGrant implements pb.LeaseServer.
func (l *leaseServer) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastLease++
	id, ttl := s.lastLease, time.Duration(r.TTL)*time.Second
	s.leases[id] = &lease{ttl, time.AfterFunc(ttl, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endLease(id)
	})}
	return &pb.LeaseGrantResponse{Header: s.answerHeader(), ID: id, TTL: r.TTL}, nil
}

// LeaseRevoke implements pb.LeaseServer.
func (l *leaseServer) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[r.ID] == nil {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	s.endLease(r.ID)
	return &pb.LeaseRevokeResponse{Header: s.answerHeader()}, nil
}

// LeaseKeepAlive implements pb.LeaseServer.
func (l *leaseServer) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	s := l.server
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.renewals++
		answer := &pb.LeaseKeepAliveResponse{Header: s.answerHeader(), ID: r.ID}
		if lease := s.leases[r.ID]; lease != nil { // TTL 0: it has ended
			lease.timer.Reset(lease.ttl)
			answer.TTL = int64(lease.ttl / time.Second)
		}
		s.mu.Unlock()
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}
