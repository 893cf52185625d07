// Package etcdserver turns the requests of etcd's client into reads and writes of keys in memory, over gRPC, with etcd's faults: compaction, a restored backup,
// and leases that are lost.
//
// Invariant: a watch from a revision has every later change of its keys once, in order, or ends with an error. The server has what the agent's client uses: Range,
// Txn with puts and deletes, Watch, leases, and Status.
package etcdserver

import (
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Server is an etcd with one member. Create with New.
type Server struct {
	pb.UnimplementedKVServer
	pb.UnimplementedMaintenanceServer

	mu        sync.Mutex
	changed   chan struct{} // closed at each change
	history   []revision    // from revision 1 on
	leased    []int64       // the lease of each revision; 0: none
	values    map[string]value
	compacted int64
	leases    map[int64]*lease
	lastLease int64
	renewals  int
	epoch     int // of backups: watches of an earlier one end
	slip      slip
	served    sync.WaitGroup
	grpc      *grpc.Server
}

// slip is what happens once after the keys below a prefix are read.
type slip struct {
	prefix   string // "": nothing
	changes  []map[string]string
	compacts bool
}

// revision is what one revision changed: "" deletes a key.
type revision map[string]string

// value is a key's present value.
type value struct {
	text    string
	created int64
	mod     int64
	version int64
	lease   int64
}

type lease struct {
	ttl   time.Duration
	timer *time.Timer
}

// New returns an empty server. It lets etcd's client watch in a bubble.
func New() *Server {
	once.Do(func() { neverDone = nil })
	s := &Server{changed: make(chan struct{}), values: map[string]value{}, leases: map[int64]*lease{}}
	s.grpc = grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}), // etcd's default
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second})) // etcd waits two hours before it looks whether a client lives
	pb.RegisterKVServer(s.grpc, s)
	pb.RegisterMaintenanceServer(s.grpc, s)
	pb.RegisterWatchServer(s.grpc, &watchServer{server: s})
	pb.RegisterLeaseServer(s.grpc, &leaseServer{server: s})
	return s
}

// Start serves connections of a listener until Stop.
func (s *Server) Start(l net.Listener) {
	s.served.Go(func() { _ = s.grpc.Serve(l) }) // its error is that it was stopped
}

// Stop ends all connections and leases.
func (s *Server) Stop() {
	s.grpc.Stop()
	s.served.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		l.timer.Stop()
	}
}

// Write is one transaction of another client: values by key, "" deletes.
func (s *Server) Write(values map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putRevision(values, 0)
}

// Values returns the values of all keys with a prefix.
func (s *Server) Values(prefix string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for key, v := range s.values {
		if strings.HasPrefix(key, prefix) {
			out[key] = v.text
		}
	}
	return out
}

// Revision is the number of revisions.
func (s *Server) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.history))
}

// Renewals is how many renewals of leases clients have asked for.
func (s *Server) Renewals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewals
}

// ForgetHistory compacts: it forgets all revisions before the present one.
func (s *Server) ForgetHistory() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = int64(len(s.history))
	s.wake()
}

// AfterRead arms a trap, in place of the one before: right after the next answer that completes a read of the keys below prefix, these changes are written, a
// revision each, and if compacts is set, the server forgets the revisions before the last one. A client that watches from what it has read finds them gone. The prefix "" disarms.
func (s *Server) AfterRead(prefix string, changes []map[string]string, compacts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slip = slip{prefix, changes, compacts}
}

// springSlip does what AfterRead has armed, if a read of these keys is complete, under mu.
func (s *Server) springSlip(r *pb.RangeRequest, more bool) {
	todo := s.slip
	if todo.prefix == "" || more || !strings.HasPrefix(string(r.Key), todo.prefix) {
		return
	}
	s.slip = slip{}
	for _, values := range todo.changes {
		s.putRevision(values, 0)
	}
	if todo.compacts {
		s.compacted = int64(len(s.history))
	}
}

// Restore returns to an earlier revision, as an etcd that is restored from a backup. Its next revisions have the numbers of those that are lost. All leases are
// lost, and with them their keys. The caller loses the connections.
func (s *Server) Restore(to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = s.history[:to]
	s.compacted = min(s.compacted, to)
	s.epoch++
	old, leased := s.history, s.leased
	s.history, s.leased, s.values = nil, nil, map[string]value{}
	for i, r := range old {
		s.apply(r, leased[i])
	}
	gone := revision{}
	for key, v := range s.values { // of a lease that ended after the backup
		if v.lease != 0 && s.leases[v.lease] == nil {
			gone[key] = ""
		}
	}
	if len(gone) > 0 {
		s.putRevision(gone, 0)
	}
	s.loseLeases()
	s.wake()
}

// LoseLeases ends all leases, and removes their keys.
func (s *Server) LoseLeases() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLeases()
}

func (s *Server) loseLeases() {
	for _, id := range slices.Sorted(maps.Keys(s.leases)) {
		s.endLease(id)
	}
}

// endLease ends a lease under mu.
func (s *Server) endLease(id int64) {
	l := s.leases[id]
	if l == nil {
		return
	}
	l.timer.Stop()
	delete(s.leases, id)
	gone := map[string]string{}
	for key, v := range s.values {
		if v.lease == id {
			gone[key] = ""
		}
	}
	if len(gone) > 0 {
		s.putRevision(gone, 0)
	}
}

// putRevision writes a revision under mu.
func (s *Server) putRevision(values map[string]string, lease int64) {
	s.apply(values, lease)
	s.wake()
}

func (s *Server) apply(r revision, lease int64) {
	s.history, s.leased = append(s.history, r), append(s.leased, lease)
	rev := int64(len(s.history))
	for key, text := range r {
		v := s.values[key]
		if text == "" {
			delete(s.values, key)
			continue
		}
		if v.version == 0 {
			v.created = rev
		}
		v.text, v.mod, v.lease = text, rev, lease
		v.version++
		s.values[key] = v
	}
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// asOf returns the values at a revision under mu.
func (s *Server) asOf(rev int64) map[string]value {
	if rev == 0 || rev == int64(len(s.history)) {
		return s.values
	}
	old := &Server{values: map[string]value{}}
	for _, r := range s.history[:rev] {
		old.apply(r, 0)
	}
	return old.values
}

func (v value) pair(key string, keysOnly bool) *mvccpb.KeyValue {
	out := &mvccpb.KeyValue{Key: []byte(key), CreateRevision: v.created, ModRevision: v.mod, Version: v.version, Lease: v.lease}
	if !keysOnly {
		out.Value = []byte(v.text)
	}
	return out
}
