package felix

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/calico/recorded"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// flushes returns what a calculation sends while it runs through the states of one of Felix's tests: forward, back, and
// forward again.
func flushes(t testing.TB, list int) (out [][]*pb.ToDataplane) {
	t.Helper()
	lists := recorded.Lists()
	l := lists[list%len(lists)]
	g := calc.New(calc.Config{Node: "localhostname", NodeResources: l.UseNodeResources, WorkloadRoutes: l.WorkloadRoutes()})
	feed := datastore.NewFeed(g)
	known := map[string]bool{}
	for range 2 {
		for _, step := range l.Steps {
			for _, kv := range step.KVs {
				u, err := datastore.Decode(kv.Key, kv.Bytes())
				if err != nil {
					t.Fatal(err)
				}
				feed.Apply(u)
				known[kv.Key] = true
			}
			g.InSync()
			out = append(out, g.Flush())
		}
		for key := range known {
			u, _ := datastore.Decode(key, nil)
			feed.Apply(u)
		}
		out = append(out, g.Flush())
	}
	return out[:len(out)-1]
}

// TestLedger (CONTIV_CASES times) sends a calculation's messages to drivers in rounds at random times, and restarts drivers
// at random times. No driver receives a message with a missing reference, and in the end its state equals that of all
// messages sent at once.
func TestLedger(t *testing.T) {
	seeds := 16
	if n, err := strconv.Atoi(os.Getenv("CONTIV_CASES")); err == nil {
		seeds = n
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(uint64(seed), 0))
		l, direct, driver := newLedger(), mirror.New(), mirror.New()
		round := func() {
			if due := l.due(); due {
				driver.Apply(l.round(), true)
			}
			driver.Check(t, fmt.Sprint("seed ", seed))
		}
		for _, flush := range flushes(t, seed) {
			direct.Apply(flush, false)
			for _, m := range flush {
				l.recordMessage(m)
			}
			switch rng.IntN(4) {
			case 0:
				round()
			case 1:
				driver = mirror.New()
				l.recordRestart()
			}
		}
		round()
		if diff := cmp.Diff(direct.Dump(), driver.Dump()); diff != "" || driver.InSyncs != 1 {
			t.Fatalf("seed %d: %d times in sync (-direct +by rounds):\n%s", seed, driver.InSyncs, diff)
		}
		if l.due() || l.countUnsent() > 0 {
			t.Fatalf("seed %d: after a round %d things are due", seed, l.countUnsent())
		}
	}
}

func member(i int) string { return fmt.Sprintf("10.%d.%d.%d/32", i>>16&255, i>>8&255, i&255) }

func setUpdate(id string, members ...string) *pb.ToDataplane {
	return &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetUpdate{IpsetUpdate: &pb.IPSetUpdate{Id: id, Members: members, Type: pb.IPSetUpdate_NET}}}
}

func setDelta(id string, added, removed []string) *pb.ToDataplane {
	d := &pb.IPSetDeltaUpdate{Id: id, AddedMembers: added, RemovedMembers: removed}
	return &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: d}}
}

func setRemove(id string) *pb.ToDataplane {
	return &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetRemove{IpsetRemove: &pb.IPSetRemove{Id: id}}}
}

// The ledger sends the shortest update of a set.
func TestLedgerSendsShortestSetUpdate(t *testing.T) {
	text := func(ms []*pb.ToDataplane) (out []string) {
		for _, m := range ms {
			switch p := m.Payload.(type) {
			case *pb.ToDataplane_IpsetUpdate:
				out = append(out, fmt.Sprint("update ", p.IpsetUpdate.Id, p.IpsetUpdate.Members))
			case *pb.ToDataplane_IpsetDeltaUpdate:
				out = append(out, fmt.Sprint("delta ", p.IpsetDeltaUpdate.Id, p.IpsetDeltaUpdate.AddedMembers, p.IpsetDeltaUpdate.RemovedMembers))
			case *pb.ToDataplane_IpsetRemove:
				out = append(out, "remove "+p.IpsetRemove.Id)
			}
		}
		return out
	}
	for _, c := range []struct {
		name  string
		takes []*pb.ToDataplane
		want  []string
	}{
		{"nothing", nil, nil},
		{"comes", []*pb.ToDataplane{setDelta("s", []string{"d"}, nil)}, []string{"delta s[d] []"}},
		{"comes and goes", []*pb.ToDataplane{setDelta("s", []string{"d"}, nil), setDelta("s", nil, []string{"d"})}, nil},
		{"goes and comes", []*pb.ToDataplane{setDelta("s", nil, []string{"a"}), setDelta("s", []string{"a"}, nil)}, nil},
		{"twice", []*pb.ToDataplane{setDelta("s", []string{"d"}, nil), setDelta("s", []string{"e"}, []string{"a"})}, []string{"delta s[d e] [a]"}},
		{"nearly all", []*pb.ToDataplane{setDelta("s", []string{"d"}, []string{"a", "b"})}, []string{"update s[c d]"}},
		{"anew", []*pb.ToDataplane{setDelta("s", []string{"d"}, nil), setUpdate("s", "x"), setDelta("s", []string{"y"}, nil)}, []string{"update s[x y]"}},
		{"gone", []*pb.ToDataplane{setDelta("s", []string{"d"}, nil), setRemove("s")}, []string{"remove s"}},
		{"gone and back", []*pb.ToDataplane{setRemove("s"), setUpdate("s", "a", "b", "c")}, []string{"update s[a b c]"}},
		{"there and gone", []*pb.ToDataplane{setUpdate("n", "a"), setRemove("n")}, nil},
		{"unknown", []*pb.ToDataplane{setDelta("n", []string{"a"}, nil), setRemove("n")}, nil},
	} {
		l := newLedger()
		l.recordMessage(inSync(0))
		l.recordMessage(setUpdate("s", "a", "b", "c"))
		l.round()
		for _, m := range c.takes {
			l.recordMessage(m)
		}
		if got := text(l.round()); !slices.Equal(got, c.want) {
			t.Errorf("%s: told %q, want %q", c.name, got, c.want)
		}
		if got := text(l.round()); len(got) > 0 {
			t.Errorf("%s: told again %q", c.name, got)
		}
	}
}

// A restarted driver has received nothing: the ledger removes nothing from it.
func TestLedgerRestarts(t *testing.T) {
	namespace := func(name string) *pb.ToDataplane {
		return &pb.ToDataplane{Payload: &pb.ToDataplane_NamespaceUpdate{NamespaceUpdate: &pb.NamespaceUpdate{Id: &pb.NamespaceID{Name: name}}}}
	}
	gone := func(name string) *pb.ToDataplane {
		return &pb.ToDataplane{Payload: &pb.ToDataplane_NamespaceRemove{NamespaceRemove: &pb.NamespaceRemove{Id: &pb.NamespaceID{Name: name}}}}
	}
	l := newLedger()
	for _, m := range []*pb.ToDataplane{inSync(0), setUpdate("s", "a"), setUpdate("t", "a"), namespace("n"), namespace("o")} {
		l.recordMessage(m)
	}
	l.round()
	l.recordRestart()
	l.recordMessage(setRemove("s"))
	l.recordMessage(gone("n"))
	m := mirror.New()
	m.Apply(l.round(), true)
	m.Check(t, "a new driver")
	if len(m.Sets) != 1 || len(m.Things) != 1 || m.InSyncs != 1 {
		t.Errorf("it knows %d sets and %d things", len(m.Sets), len(m.Things))
	}
}

// A route uses a tunnel's end: it is added after the tunnel and removed before it.
func TestLedgerOrdersTunnels(t *testing.T) {
	l := newLedger()
	l.recordMessage(inSync(0))
	l.recordMessage(&pb.ToDataplane{Payload: &pb.ToDataplane_RouteUpdate{RouteUpdate: &pb.RouteUpdate{Dst: "10.0.0.0/8"}}})
	l.recordMessage(&pb.ToDataplane{Payload: &pb.ToDataplane_VtepUpdate{VtepUpdate: &pb.VXLANTunnelEndpointUpdate{Node: "n"}}})
	if round := l.round(); len(round) != 3 || round[0].GetVtepUpdate() == nil || round[1].GetRouteUpdate() == nil {
		t.Errorf("told %v", round)
	}
	l.recordMessage(&pb.ToDataplane{Payload: &pb.ToDataplane_VtepRemove{VtepRemove: &pb.VXLANTunnelEndpointRemove{Node: "n"}}})
	l.recordMessage(&pb.ToDataplane{Payload: &pb.ToDataplane_RouteRemove{RouteRemove: &pb.RouteRemove{Dst: "10.0.0.0/8"}}})
	if round := l.round(); len(round) != 2 || round[0].GetRouteRemove() == nil || round[1].GetVtepRemove() == nil {
		t.Errorf("told %v", round)
	}
}

// However long a driver does not read, the ledger's size is bounded by the desired state.
func TestLedgerIsBounded(t *testing.T) {
	l := newLedger()
	l.recordMessage(inSync(0))
	l.recordMessage(setUpdate("s", member(0)))
	l.round()
	for i := range 10_000 {
		l.recordMessage(setDelta("s", []string{member(i + 1)}, []string{member(i)}))
		l.recordMessage(setUpdate(fmt.Sprint("n", i%10), member(i)))
		if i%3 == 0 {
			l.recordMessage(setRemove(fmt.Sprint("n", i%10)))
		}
	}
	if s := l.sets["s"]; len(l.sets) > 11 || l.countUnsent() > 11 || len(s.members) != 1 || len(s.delta) > 2 {
		t.Errorf("%d sets, %d unsent; the set has %d members and %d changes", len(l.sets), l.countUnsent(), len(s.members), len(s.delta))
	}
}
