package nattable

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/test/samples"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// fakeTable is a table of 1000 sessions; the first client has all of them.
type fakeTable struct {
	used    uint64
	limit   uint64
	asked   []vppagent.Relief
	evicted int
}

func (f *fakeTable) SessionLimit(context.Context) (vppagent.SessionUse, error) {
	return vppagent.SessionUse{Limit: f.limit, Workers: 1}, nil
}

func (f *fakeTable) SessionUse(context.Context) (vppagent.SessionUse, error) {
	return vppagent.SessionUse{Used: f.used, Limit: f.limit, Workers: 1}, nil
}

func (f *fakeTable) RelieveSessions(_ context.Context, r vppagent.Relief) (vppagent.Relieved, error) {
	f.asked = append(f.asked, r)
	return vppagent.Relieved{Holders: []vppagent.SessionHolder{{Addr: netip.MustParseAddr("10.1.1.2"), Sessions: f.used}}, Evicted: f.evicted}, nil
}

func newWatcher(f *fakeTable, now *time.Time) *Watcher {
	return New(Config{
		Table: f, Now: func() time.Time { return *now }, Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(), Sessions: 1000,
		Pods: func(context.Context) (map[netip.Addr]string, error) {
			return map[netip.Addr]string{netip.MustParseAddr("10.1.1.2"): "prod/web"}, nil
		},
	})
}

// The watcher counts clients from half of the table on, frees sessions from 80 % on, and the table is full from 95 % on.
func TestThresholds(t *testing.T) {
	for _, c := range []struct {
		used    uint64
		want    uint64 // sessions to free
		asks    bool
		full    bool
		problem string
	}{
		{used: 499},
		{used: 500, asks: true},
		{used: 799, asks: true},
		{used: 800, asks: true, want: 100, problem: "800 of 1000 sessions (80 %): nearly full; most by pod prod/web (10.1.1.2) 800"},
		{used: 950, asks: true, want: 250, full: true, problem: "950 of 1000 sessions (95 %): new connections through Services fail"},
	} {
		f, now := &fakeTable{used: c.used, limit: 1000}, time.Unix(1e6, 0)
		n := newWatcher(f, &now)
		if _, err := n.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := n.Status()
		if used, known := n.Used(); !known || uint64(used) != c.used {
			t.Errorf("%d sessions: %d known %t", c.used, used, known)
		}
		if (len(f.asked) > 0) != c.asks || c.asks && f.asked[0].Want != c.want || st.Full != c.full || !strings.HasPrefix(st.Problem, c.problem) || c.problem == "" && st.Problem != "" {
			t.Errorf("%d sessions: asked %+v, status %+v", c.used, f.asked, st)
		}
	}
}

// Only pods of this node are above a share, and the status shows an eviction for ten minutes.
func TestEviction(t *testing.T) {
	f, now := &fakeTable{used: 900, limit: 1000, evicted: 300}, time.Unix(1e6, 0)
	n := newWatcher(f, &now)
	if _, err := n.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := f.asked[0]
	if r.Share != 250 || !r.Evictable(netip.MustParseAddr("10.1.1.2")) || r.Evictable(netip.MustParseAddr("10.1.1.3")) {
		t.Errorf("share %d", r.Share)
	}
	f.used = 600
	for _, c := range []struct {
		after time.Duration
		shown bool
	}{{0, true}, {10*time.Minute - time.Second, true}, {10 * time.Minute, false}} {
		now = time.Unix(1e6, 0).Add(c.after)
		if _, err := n.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := n.Status(); strings.Contains(st.Problem, "freed the longest idle sessions of pods above 25 %") != c.shown || st.Evicted < 300 {
			t.Errorf("after %s: %+v", c.after, st)
		}
	}
}

// A table of another size than configured gets a remark; without NAT44 there is no status.
func TestOtherTables(t *testing.T) {
	f, now := &fakeTable{used: 1, limit: 2000}, time.Unix(1e6, 0)
	n := newWatcher(f, &now)
	if _, err := n.Look(t.Context()); err != nil || !strings.HasPrefix(n.Status().Remark, "--nat-sessions is 1000, but VPP's table has room for 2000 sessions") {
		t.Errorf("%+v %v", n.Status(), err)
	}
	f.limit = 0
	if _, err := n.Look(t.Context()); err != nil || n.Status() != nil {
		t.Errorf("%+v %v", n.Status(), err)
	}
	if _, known := (*Watcher)(nil).Used(); known || (*Watcher)(nil).Status() != nil {
		t.Error("an agent without Services has a status of the table")
	}
}

func TestMetricNames(t *testing.T) {
	names := samples.Names{}
	if err := NewMetrics().Register(names); err != nil || len(names) != 5 || !names["contiv_nat_sessions"] {
		t.Errorf("%v %v", names, err)
	}
}

// TestDrains: the status and the metric have the endpoints that were drained, and those that could not be.
func TestDrains(t *testing.T) {
	now := time.Unix(0, 0)
	n := newWatcher(&fakeTable{used: 1, limit: 1000}, &now)
	if _, err := n.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.Drained(3, 0)
	n.Drained(0, 1)
	if st := n.Status(); st.Drained != 3 || st.Lost != 1 {
		t.Errorf("%+v", st)
	}
	(*Watcher)(nil).Drained(1, 1)
}

// TestFrontends: an address is NAT44's until the last value with it is gone.
func TestFrontends(t *testing.T) {
	web := func(protocol nat.DNat44_Protocol) *nat.DNat44 {
		return &nat.DNat44{StMappings: []*nat.DNat44_StaticMapping{{ExternalIp: "10.96.0.1", ExternalPort: 80, Protocol: protocol}}}
	}
	var f Frontends
	at := netip.MustParseAddrPort("10.96.0.1:80")
	for i, tc := range []struct {
		was, now proto.Message
		count    int
		has      bool
	}{
		{nil, web(nat.DNat44_UDP), 1, false},
		{nil, web(nat.DNat44_TCP), 2, true},
		{web(nat.DNat44_TCP), web(nat.DNat44_TCP), 2, true},
		{nil, &cnat.Translation{}, 3, true},
		{web(nat.DNat44_TCP), nil, 2, false},
	} {
		if f.Sent(tc.was, tc.now); f.Count() != tc.count || f.HasTCP(at) != tc.has {
			t.Errorf("%d: %d frontends, has %t", i, f.Count(), f.HasTCP(at))
		}
	}
}
