package extconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolterrors "go.etcd.io/bbolt/errors"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/boltstore"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
)

// node is a controller, and a VPP that accepts every value unless an MTU says otherwise.
type node struct {
	mu   sync.Mutex
	has  map[string]uint32 // name of an interface → MTU
	away error
	in   chan event.Event
}

// How a VPP of these tests reacts to an interface of that MTU.
const (
	invalid, retrying, pending, unimplemented = 1001, 1002, 1003, 1004
)

func newNode(t testing.TB) *node {
	n := &node{has: map[string]uint32{}, in: make(chan event.Event, 64)}
	out := make(chan *event.Txn, 1)
	c := controller.New(controller.Config{Sources: []string{"test"}}, controller.NewValues())
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() { _ = c.Run(ctx, n.in, out) })
	both.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case txn := <-out:
				n.in <- n.commit(txn)
			}
		}
	})
	t.Cleanup(func() { cancel(); both.Wait() })
	n.in <- &event.VPPStatus{Connected: true}
	return n
}

func (n *node) commit(txn *event.Txn) *event.Committed {
	n.mu.Lock()
	defer n.mu.Unlock()
	done := &event.Committed{Seq: txn.Seq, Err: n.away}
	if n.away != nil {
		for key := range txn.Values { // as the agent does
			done.Statuses = append(done.Statuses, event.ValueStatus{Key: key, State: event.Retrying, Err: n.away.Error()})
		}
		return done
	}
	if txn.Resync == event.Full {
		clear(n.has)
	}
	for key, msg := range txn.Values {
		st := event.ValueStatus{Key: key, State: event.Configured}
		name := strings.TrimPrefix(key, "config/vpp/v2/interfaces/")
		delete(n.has, name)
		if msg != nil {
			mtu := msg.(*interfaces.Interface).Mtu
			switch mtu {
			case invalid:
				st.State, st.Err = event.Invalid, "mtu: invalid"
			case retrying:
				st.State, st.Err = event.Retrying, "no memory"
			case pending:
				st.State = event.Pending
			case unimplemented:
				st.State = event.Unimplemented
			default:
				n.has[name] = mtu
			}
		}
		done.Statuses = append(done.Statuses, st)
	}
	return done
}

func (n *node) config() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(n.has)) {
		out = append(out, fmt.Sprintf("%s=%d", name, n.has[name]))
	}
	return strings.Join(out, " ")
}

// keeper runs a Keeper over a file until stop.
func (n *node) keeper(t testing.TB, file string) (k *Keeper, stop func()) {
	t.Helper()
	k = NewKeeper(Config{Name: "test", File: file})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx, func(ev event.Event) { n.in <- ev }) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return k, stop
}

func ifs(words ...string) (out []proto.Message) {
	for _, w := range words {
		m := &interfaces.Interface{}
		name, mtu, _ := strings.Cut(w, "=")
		m.Name = name
		_, _ = fmt.Sscan(mtu, &m.Mtu)
		out = append(out, m)
	}
	return out
}

func TestRequests(t *testing.T) {
	steps := []struct {
		name    string
		req     Request
		err     string // contained in the error; "": none
		config  string // of VPP afterwards
		restart string // and after a restart
	}{
		{name: "two", req: Request{Items: ifs("a=1", "b=1")}, config: "a=1 b=1", restart: "a=1 b=1"},
		{name: "change", req: Request{Items: ifs("a=2")}, config: "a=2 b=1", restart: "a=2 b=1"},
		{
			name: "one can never work", req: Request{Items: ifs("a=1001", "c=3")},
			err:    "KeyErrors: [config/vpp/v2/interfaces/a (UPDATE): mtu: invalid]",
			config: "a=2 b=1 c=3", restart: "a=2 b=1 c=3",
		},
		{
			name: "one fails for now", req: Request{Items: ifs("d=1002", "e=1")},
			err:    "KeyErrors: [config/vpp/v2/interfaces/d (CREATE): no memory]",
			config: "a=2 b=1 c=3 e=1", restart: "a=2 b=1 c=3 e=1",
		},
		{
			name: "all or nothing", req: Request{Items: ifs("a=7", "f=1002"), AllOrNothing: true}, err: "(CREATE): no memory",
			config: "a=2 b=1 c=3 e=1", restart: "a=2 b=1 c=3 e=1",
		},
		{name: "delete", req: Request{Op: Delete, Items: ifs("b", "d")}, config: "a=2 c=3 e=1", restart: "a=2 c=3 e=1"},
		{name: "delete what is not", req: Request{Op: Delete, Items: ifs("nobody")}, config: "a=2 c=3 e=1", restart: "a=2 c=3 e=1"},
		{name: "another client", req: Request{Client: "x", Items: ifs("x=9")}, config: "a=2 c=3 e=1 x=9", restart: "a=2 c=3 e=1 x=9"},
		{name: "resync", req: Request{Op: Resync, Items: ifs("a=5")}, config: "a=5 x=9", restart: "a=5 x=9"},
		{
			name: "resync, all or nothing", req: Request{Op: Resync, Items: ifs("z=1001"), AllOrNothing: true}, err: "z (CREATE): mtu: invalid",
			config: "a=5 x=9", restart: "a=5 x=9",
		},
		{name: "delete another's", req: Request{Op: Delete, Items: ifs("x")}, config: "a=5 x=9", restart: "a=5 x=9"},
		{name: "twice", req: Request{Items: ifs("q=1", "q=2")}, err: "twice in one request", config: "a=5 x=9", restart: "a=5 x=9"},
		{name: "no name", req: Request{Items: ifs("q=1", "")}, err: "no model", config: "a=5 x=9", restart: "a=5 x=9"},
		{name: "empty resync", req: Request{Op: Resync}, config: "x=9", restart: "x=9"},
	}
	file := filepath.Join(t.TempDir(), "new", "grpc.db")
	n := newNode(t)
	k, stop := n.keeper(t, file)
	for _, s := range steps {
		_, err := k.Apply(t.Context(), s.req)
		if (err == nil) != (s.err == "") || err != nil && !strings.Contains(err.Error(), s.err) {
			t.Errorf("%s: error %v, want %q", s.name, err, s.err)
		}
		if got := n.config(); got != s.config {
			t.Errorf("%s: VPP has %q, want %q", s.name, got, s.config)
		}
		stop()
		n = newNode(t)
		k, stop = n.keeper(t, file)
		if _, err := k.Apply(t.Context(), Request{Client: "last", Op: Resync}); err != nil {
			t.Fatal(err)
		}
		if got := n.config(); got != s.restart {
			t.Errorf("%s: VPP has %q after a restart, want %q", s.name, got, s.restart)
		}
	}
}

func TestOutcomeNamesPendingValues(t *testing.T) {
	n := newNode(t)
	k, _ := n.keeper(t, "")
	out, err := k.Apply(t.Context(), Request{Items: ifs("a=1003", "b=1004", "c=1")})
	if err != nil {
		t.Fatal(err)
	}
	state := func(name string, state event.State) KeyStatus {
		return KeyStatus{Op: "CREATE", Status: event.ValueStatus{Key: kv.InterfaceKey(name), State: state}}
	}
	out.Seq = 0 // whatever it is
	want := &Outcome{
		All:           []KeyStatus{state("a", event.Pending), state("b", event.Unimplemented), state("c", event.Configured)},
		Pending:       []event.ValueStatus{{Key: kv.InterfaceKey("a"), State: event.Pending}},
		Unimplemented: []event.ValueStatus{{Key: kv.InterfaceKey("b"), State: event.Unimplemented}},
	}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

// TestTerms: an item's merge terms and labels are stored with it, restored by a rollback, and removed with it.
func TestTerms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grpc.db")
	n := newNode(t)
	k, stop := n.keeper(t, file)
	key := kv.InterfaceKey("a")
	unset := Terms{Merge: event.Merge{Replace: []string{"mtu"}}, Labels: map[string]string{"x": "1"}}
	for _, step := range []struct {
		name   string
		req    Request
		fails  bool
		config string
		terms  Terms // of client z for a
	}{
		{name: "theirs", req: Request{Client: "b", Items: ifs("a=5")}, config: "a=5"},
		{name: "unset", req: Request{Client: "z", Items: ifs("a=0"), Terms: map[string]Terms{key: unset}}, config: "a=0", terms: unset},
		{name: "fails", req: Request{Client: "z", Items: ifs("a=1001")}, fails: true, config: "a=0", terms: unset},
		{name: "all or nothing", req: Request{Client: "z", Items: ifs("a=1", "q=1002"), AllOrNothing: true}, fails: true, config: "a=0", terms: unset},
		{
			name: "no such field", req: Request{Client: "z", Items: ifs("a=1"), Terms: map[string]Terms{key: {Merge: event.Merge{Replace: []string{"mut"}}}}},
			fails: true, config: "a=0", terms: unset,
		},
		{name: "again", req: Request{Client: "z", Items: ifs("a=0")}, config: "a=5"},
		{name: "back", req: Request{Client: "z", Op: Resync, Items: ifs("a=0"), Terms: map[string]Terms{key: unset}}, config: "a=0", terms: unset},
		{name: "by key", req: Request{Client: "z", Gone: []string{key}}, config: "a=5"},
		{name: "no key", req: Request{Client: "z", Gone: []string{"config/nothing"}}, fails: true, config: "a=5"},
		{name: "both", req: Request{Client: "z", Items: ifs("a=1"), Gone: []string{key}}, fails: true, config: "a=5"},
	} {
		if _, err := k.Apply(t.Context(), step.req); (err != nil) != step.fails {
			t.Errorf("%s: %v", step.name, err)
		}
		for _, when := range []string{"", "after a restart, "} {
			if when != "" {
				stop()
				n = newNode(t)
				k, stop = n.keeper(t, file)
				if _, err := k.Apply(t.Context(), Request{}); err != nil {
					t.Fatal(err)
				}
			}
			_, terms, err := k.Wants(t.Context(), "z")
			if got := n.config(); err != nil || got != step.config || !cmp.Equal(terms[key], step.terms) {
				t.Errorf("%s: %sVPP has %q, want %q; terms %+v, %v", step.name, when, got, step.config, terms[key], err)
			}
		}
	}
	stop()
	if s, err := OpenStore(file); err != nil {
		t.Error(err)
	} else if terms, err := s.LoadTerms(); err != nil || len(terms) != 0 || s.Close() != nil {
		t.Errorf("left in the file: %v, %v", terms, err)
	}
}

func TestVPPAway(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grpc.db")
	n := newNode(t)
	k, stop := n.keeper(t, file)
	if _, err := k.Apply(t.Context(), Request{Items: ifs("a=1")}); err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	n.away = errors.New("vpp is away")
	n.mu.Unlock()
	if _, err := k.Apply(t.Context(), Request{Items: ifs("b=1")}); !errors.Is(err, ErrUnavailable) || errors.As(err, new(*TransactionError)) || !strings.Contains(err.Error(), "vpp is away") {
		t.Errorf("kept for later: %v", err)
	}
	if _, err := k.Apply(t.Context(), Request{Items: ifs("c=1"), AllOrNothing: true}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("taken back: %v", err)
	}
	stop()
	n = newNode(t)
	k, _ = n.keeper(t, file)
	if _, err := k.Apply(t.Context(), Request{}); err != nil || n.config() != "a=1 b=1" {
		t.Errorf("after the restart: %v, VPP has %q", err, n.config())
	}
}

func TestFileThatCannotBeWritten(t *testing.T) {
	n := newNode(t)
	k, _ := n.keeper(t, filepath.Join(t.TempDir(), "grpc.db"))
	if _, err := k.Apply(t.Context(), Request{Items: ifs("a=1")}); err != nil {
		t.Fatal(err)
	}
	if err := k.store.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := k.Apply(t.Context(), Request{Items: ifs("a=2", "b=1")})
	if !errors.Is(err, bolterrors.ErrDatabaseNotOpen) || n.config() != "a=1" {
		t.Errorf("error %v, VPP has %q", err, n.config())
	}
}

func TestRequestOutsideOfRunChangesNothing(t *testing.T) {
	n := newNode(t)
	k := NewKeeper(Config{Name: "test"})
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := k.Apply(short, Request{Items: ifs("a=1")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("not running yet: %v", err)
	}
	k, stop := n.keeper(t, "")
	if _, err := k.Apply(t.Context(), Request{Items: ifs("a=1")}); err != nil {
		t.Error(err)
	}
	stop()
	if _, err := k.Apply(t.Context(), Request{Items: ifs("a=2")}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("after the end: %v", err)
	}
}

func TestStoreReportsUnreadableEntries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grpc.db")
	s, err := OpenStore(file)
	if err != nil {
		t.Fatal(err)
	}
	good := ifs("a=1")[0]
	if err := s.Save("c", map[string]proto.Message{kv.Key(good): good}, nil); err != nil {
		t.Fatal(err)
	}
	err = s.file.Update(func(tx *boltstore.Tx) error {
		return errors.Join(tx.Put(clients, "/c", "config/of/the/future", nil), tx.Put(clients, "/c", kv.InterfaceKey("x"), []byte{0xff}))
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it stays
		wants, unread, err := s.Load()
		if err != nil || len(unread) != 2 || len(wants["c"]) != 1 {
			t.Errorf("wants %v, unread %v, %v", wants, unread, err)
		}
	}
	if err := s.Save("c", map[string]proto.Message{kv.Key(good): nil, "config/of/the/future": nil, kv.InterfaceKey("x"): nil}, nil); err != nil {
		t.Fatal(err)
	}
	if wants, unread, err := s.Load(); len(wants)+len(unread) != 0 || err != nil {
		t.Errorf("an empty client is left: %v %v %v", wants, unread, err)
	}
	if err := errors.Join(s.Close(), os.WriteFile(file, []byte("this is not a database, however long it is made"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestErrorsNameAHundredItems(t *testing.T) {
	tx, inv := &TransactionError{}, &InvalidError{}
	for i := range 130 {
		st := event.ValueStatus{Key: fmt.Sprintf("k%d", i), State: event.Failed}
		tx.Keys = append(tx.Keys, KeyError{Op: "CREATE", Status: st})
		st.Err = "no"
		inv.Items = append(inv.Items, st)
	}
	for _, err := range []error{tx, inv} {
		if text := err.Error(); !strings.HasSuffix(text, " and 30 more") || strings.Contains(text, "k100") || len(text) > 4096 {
			t.Errorf("%d bytes: %s", len(text), text)
		}
	}
}

// TestClientsDoNotMeet: for any puts, deletes and resyncs of several clients, failing or not, with restarts in between, VPP has the
// union of one map per client.
func TestClientsDoNotMeet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		file := filepath.Join(dir, "grpc.db")
		n := newNode(t)
		k, stop := n.keeper(t, file)
		defer func() { stop() }()
		want := map[string]string{}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			client := rapid.SampledFrom([]string{"", "x", "y"}).Draw(rt, "client")
			req := Request{Client: client, Op: Op(rapid.IntRange(0, 2).Draw(rt, "op")), AllOrNothing: rapid.Bool().Draw(rt, "all")}
			next, fails := maps.Clone(want), false
			if req.Op == Resync {
				maps.DeleteFunc(next, func(name, _ string) bool { return strings.HasPrefix(name, client+"-") })
			}
			for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 3), 0, 3, rapid.ID).Draw(rt, "items") {
				name, mtu := fmt.Sprintf("%s-%d", client, i), rapid.SampledFrom([]string{"1", "2", "1001"}).Draw(rt, "mtu")
				req.Items = append(req.Items, ifs(name+"="+mtu)...)
				switch {
				case req.Op == Delete:
					delete(next, name)
				case mtu == "1001":
					fails = true
					if old, had := want[name]; had {
						next[name] = old
					}
				default:
					next[name] = mtu
				}
			}
			_, err := k.Apply(rt.Context(), req)
			if (err != nil) != fails {
				rt.Fatalf("%+v: %v", req, err)
			}
			if !fails || !req.AllOrNothing {
				want = next
			}
			if rapid.IntRange(0, 4).Draw(rt, "restart") == 0 {
				stop()
				n = newNode(t)
				k, stop = n.keeper(t, file)
				if _, err := k.Apply(rt.Context(), Request{}); err != nil {
					rt.Fatal(err)
				}
			}
			var words []string
			for _, name := range slices.Sorted(maps.Keys(want)) {
				words = append(words, name+"="+want[name])
			}
			if got := n.config(); got != strings.Join(words, " ") {
				rt.Fatalf("VPP has %q, want %q", got, words)
			}
		}
	})
}
