package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/vpp"
)

func TestSameSeedDrawsTheSameSchedule(t *testing.T) {
	seen := map[Kind]bool{}
	for seed := range uint64(200) {
		s := Draw(seed)
		if s.String() != Draw(seed).String() {
			t.Fatalf("seed %d draws two schedules", seed)
		}
		changes, ids := 0, map[int]bool{}
		for _, a := range s.Actions {
			seen[a.Kind], ids[a.ID] = true, true
			if a.ID >= len(s.Actions) || a.Round >= s.Rounds || a.Kind == Change && a.N != changes+1 || a.N >= s.Versions && (a.Kind == Change || a.Kind == BackAPI) {
				t.Errorf("seed %d, %d versions: %s", seed, s.Versions, a)
			}
			if a.Kind == Change {
				changes++
			}
		}
		if len(ids) != len(s.Actions) || !slices.IsSortedFunc(s.Actions, inTime) {
			t.Errorf("seed %d: actions in disorder, or with one number:\n%s", seed, s)
		}
	}
	for _, k := range slices.Concat(faults, apiFaults, etcdFaults, fanoutFaults, laterEtcdFaults, laterFanoutFaults, []Kind{Change}) {
		if !seen[k] {
			t.Errorf("no seed draws %q", k)
		}
	}
}

// A failure that needs two of many actions is shortened to them.
func TestShorten(t *testing.T) {
	s := Draw(7)
	first, last := s.Actions[1].ID, s.Actions[len(s.Actions)-2].ID
	runs := 0
	fails := func(s Schedule) error {
		runs++
		needed := 0
		for _, a := range s.Actions {
			if a.ID == first || a.ID == last {
				needed++
			}
		}
		if needed < 2 {
			return nil
		}
		return fmt.Errorf("fails with %d actions", len(s.Actions))
	}
	got, err := Shorten(s, errors.New("fails"), fails)
	if len(got.Actions) != 2 || err == nil || err.Error() != "fails with 2 actions" || runs > 4*len(s.Actions) {
		t.Errorf("%d runs, %v:\n%s", runs, err, got)
	}
	if want := fmt.Sprintf("make simulate SEED=7 ONLY=%d,%d AGAIN=20", first, last); got.Replay() != want {
		t.Errorf("%s, want %s", got.Replay(), want)
	}
}

// frameOf is a frame with an id, a request's context and a byte.
func frameOf(id, context, content byte) []byte {
	f := eventOf(id, context, content)
	f[answerContext+2] = lowestContext >> 8
	return f
}

// eventOf is a frame with an id, a client's index and a byte.
func eventOf(id, client, content byte) []byte {
	f := make([]byte, frameHeader+7)
	f[11], f[frameHeader+1], f[answerContext+3], f[frameHeader+6] = 7, id, client, content
	return f
}

// Each fault of the link has its effect, and ends.
func TestLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink()
		client, err := l.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		send := func(w io.Writer, frames ...[]byte) {
			if _, err := w.Write(slices.Concat(frames...)); err != nil {
				t.Fatal(err)
			}
		}
		read := func(r io.Reader) (string, time.Duration) {
			began, b := time.Now(), make([]byte, 1000)
			n, err := r.Read(b)
			if err != nil {
				return err.Error(), time.Since(began)
			}
			out := ""
			for i := frameHeader + 6; i < n; i += frameHeader + 7 {
				out += string(b[i])
			}
			return out, time.Since(began)
		}
		expect := func(what string, r io.Reader, text string, after time.Duration) {
			t.Helper()
			if got, took := read(r); got != text || took != after {
				t.Errorf("%s: %q after %s, want %q after %s", what, got, took, text, after)
			}
		}
		send(client, frameOf(1, 1, 'a'), frameOf(1, 2, 'b'))
		expect("one request at a time", server, "a", 0)
		l.setFault(func(l *link) { l.slow = time.Second })
		expect("slow", server, "b", time.Second)
		l.setFault(func(l *link) { l.slow, l.hung = 0, 1 })
		send(client, frameOf(1, 3, 'c'))
		time.AfterFunc(time.Minute, func() { l.setFault(func(l *link) { l.hung = 0 }) })
		expect("hung", server, "c", time.Minute)
		one := 1
		l.setFault(func(l *link) { l.lose = append(l.lose, &one) })
		send(server, eventOf(9, 1, 'u'), eventOf(9, 1, 'v'))
		expect("no event is lost", client, "uv", 0)
		send(server, frameOf(9, 1, 'x'), frameOf(9, 1, 'y'), frameOf(9, 1, 'z'), frameOf(8, 1, '.'))
		expect("a detail is lost", client, "xz.", 0)
		if err := client.SetDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		expect("deadline", client, "i/o timeout", time.Second)
		l.after(2, l.sever)
		send(client, frameOf(1, 4, 'd'), frameOf(1, 5, 'e'))
		expect("the last permitted request", server, "d", 0)
		expect("cut", server, "EOF", 0)
		expect("cut", client, "EOF", 0)
		l.setFault(func(l *link) { l.down = 1 })
		if _, err := l.Dial(t.Context()); err == nil {
			t.Error("a connection to a VPP that does not run")
		}
	})
}

// The checks at the end of a quiet time find each of these changes of a correct state.
func TestChecksFind(t *testing.T) {
	for name, spoil := range map[string]func(*run) error{
		"a list is detached": detachLists,
		"a client's acknowledged value is missing": func(r *run) error {
			r.nodes[0].clients.acked["ext-a"] = 1501
			return nil
		},
		"a removed value of a client is in VPP": func(r *run) error {
			r.nodes[0].clients.acked["pod-"] = 0
			return nil
		},
		"a goroutine too many": func(r *run) error {
			for by := range r.base {
				r.base[by]--
				break
			}
			return nil
		},
		"the objects are others": func(r *run) error {
			r.now = len(r.history) - 1
			return nil
		},
		"the agent is away": func(r *run) error {
			n := r.nodes[0]
			n.link.setFault(func(*link) { n.killAgent(time.Hour, nil) })
			synctest.Wait()
			return nil
		},
		"VPP hangs": func(r *run) error {
			r.nodes[0].link.setFault(func(l *link) { l.hung = 1 })
			time.Sleep(5 * time.Second)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRun(Draw(3), Config{Dir: t.TempDir()})
				end, err := r.begin()
				defer end()
				if err == nil {
					err = spoil(r)
				}
				if err != nil {
					t.Fatal(err)
				}
				if r.check() == nil {
					t.Error("not found")
				}
			})
		})
	}
}

// detachLists detaches the lists of all interfaces of the first node.
func detachLists(r *run) error {
	do, stop, err := dump.Open(context.Background(), "", r.nodes[0].sim.Dial)
	if err != nil {
		return err
	}
	defer stop()
	all := do(context.Background(), vpp.Call{Dump: true, Msg: &acl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}})
	for _, m := range all[0].Details {
		reply := do(context.Background(), vpp.Call{Msg: &acl.ACLInterfaceSetACLList{SwIfIndex: m.(*acl.ACLInterfaceListDetails).SwIfIndex}})
		if reply[0].Err != nil {
			return reply[0].Err
		}
	}
	return nil
}

// The CNI waits until a VPP that was killed twice is restored.
func TestVPPKilledTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(Draw(3), Config{Dir: t.TempDir()})
		end, err := r.begin()
		defer end()
		if err != nil {
			t.Fatal(err)
		}
		n := r.nodes[0]
		for _, bare := range []bool{false, true} {
			r.faulting.Go(func() {
				if err := n.killVPP(10*time.Second, bare, rand.New(rand.NewPCG(1, 1))); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(5 * time.Second)
		}
		time.Sleep(time.Second)
		r.moveTo(1) // after the end of the first kill
		r.faulting.Wait()
		if err := r.rest("two kills", quiet); err != nil {
			t.Error(err)
		}
	})
}

// A packet that no version allows, and that passes after a message, is found.
func TestForbiddenPacketIsFound(t *testing.T) {
	probed := false
	for seed := uint64(1); seed < 20 && !probed; seed++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRun(Draw(seed), Config{Dir: t.TempDir()})
			end, err := r.begin()
			defer end()
			if err != nil {
				t.Fatal(err)
			}
			if probed = len(r.probes(r.nodes[0].name, []int{0})) > 0; !probed {
				return
			}
			r.watch([]int{0})
			if err := detachLists(r); err != nil {
				t.Fatal(err)
			}
			r.unwatch()
			if r.broken() == nil || r.Packets == 0 {
				t.Errorf("seed %d: not found, with %d packets", seed, r.Packets)
			}
		})
	}
	if !probed {
		t.Error("no seed has a packet that is forbidden")
	}
}
