package adversary

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/test/adversary/kube"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/trace"
)

const (
	// defaultSequences is what go test plays; CONTIV_CASES says otherwise, CONTIV_SEED where to begin.
	defaultSequences = 200
	// players is how many worlds are played at a time.
	players = 2
	// excusable is the part of all arrivals that one excuse may take: one in so many.
	excusable = 50
)

func TestAdversary(t *testing.T) {
	sequences, first := oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](defaultSequences, 8)), oracle.Setting(t, "CONTIV_SEED", 1)
	start := time.Now()
	counts := tournament(t, first, (sequences+games-1)/games)
	report(t, counts)
	t.Logf("in %s", time.Since(start).Round(time.Millisecond))
	if counts.Arrived < int(sequences) || counts.Checks == 0 || counts.Established == 0 && sequences >= defaultSequences {
		t.Errorf("nothing much was judged: %+v", counts)
	}
	for why, n := range counts.Excused {
		if sequences >= defaultSequences && n > 10+counts.Arrived/excusable {
			t.Errorf("%q excuses %d of %d arrivals", why, n, counts.Arrived)
		}
	}
}

// tournament plays worlds, some at a time.
func tournament(t *testing.T, first, worlds uint64) (sum Counts) {
	var mu sync.Mutex
	next, known := first, all(os.Getenv("CONTIV_ONLY"))
	draw := func() (seed uint64, more bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next-1 < first+worlds && !t.Failed()
	}
	var playing sync.WaitGroup
	for range players {
		playing.Go(func() {
			for seed, more := draw(); more; seed, more = draw() {
				counts, finding, err := Play(seed, ConfigOf(seed), games, Limits{NoShrink: os.Getenv("CONTIV_SHRINK") == "no", NoExtras: os.Getenv("CONTIV_EXTRAS") == "no", NoBetween: os.Getenv("CONTIV_BETWEEN") == "no"}, known)
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				if finding != nil {
					t.Errorf("seed %d: %s", seed, finding)
				}
				mu.Lock()
				sum.Add(counts)
				mu.Unlock()
			}
		})
	}
	playing.Wait()
	return sum
}

// TestFoundSeeds plays worlds that broke the law once, before packets were extra.
func TestFoundSeeds(t *testing.T) {
	first := []uint64{892, 977, 1001, 1108, 2492}
	for _, seed := range first[:pace.Fewer(len(first), 5)] {
		if _, finding, err := Play(seed, ConfigOf(seed), games, Limits{NoExtras: true}, nil); err != nil || finding != nil {
			t.Errorf("seed %d: %v %s", seed, err, finding)
		}
	}
	forged := []uint64{899, 3520, 4180, 4184} // outsiders that forge addresses
	for _, seed := range forged[:pace.Fewer(len(forged), 4)] {
		if _, finding, err := Play(seed, ConfigOf(seed), games, Limits{}, nil); err != nil || finding != nil {
			t.Errorf("seed %d: %v %s", seed, err, finding)
		}
	}
}

// TestSendersExist: parties of the cluster and addresses outside send the packets that continue after a change. A packet that left the cluster for a pod's
// address has no receiver that may answer.
func TestSendersExist(t *testing.T) {
	k := NewAttacker(1, Limits{})
	objects := k.Objects()
	pod := kube.Running(objects)[0]
	for _, from := range []string{"external:10.1.2.99@node-1", "external:198.51.100.7@node-1"} {
		k.talk = nil
		for range 50 {
			s := trace.Step{Question: trace.Question{From: from, To: pod.Status.PodIPs[0].IP, Protocol: "ICMP"}, SourcePort: 4999, Flags: "echo-reply", OneWay: true}
			k.talk = append(k.talk, s)
		}
		sent := 0
		for len(k.talk) > 0 {
			if e := k.Next(objects); e.SourcePort == 4999 {
				sent++
			}
		}
		if exists := strings.Contains(from, outsiders[0]); (sent > 0) != exists {
			t.Errorf("%s sent %d packets", from, sent)
		}
	}
}

// all are the classes that are only counted where one alone is looked for; "": none.
func all(but string) map[Class]bool {
	out := map[Class]bool{}
	for _, c := range []Class{Forged, SCTP, Hidden, Revoked, Open, Lost} {
		out[c] = but != "" && string(c) != but
	}
	return out
}

func report(t *testing.T, c Counts) {
	t.Logf("%d sequences, %d packets, %d arrived: %d allowed, %d answers; %d new connections asked about, %d packets of established ones; %d datagrams in fragments, %d other fragments, %d forged from outside; forged packets may have ended %d connections", c.Sequences, c.Packets, c.Arrived, c.Allowed, c.Answers, c.Checks, c.Established, c.Whole, c.Pieces, c.Forged, c.Disturbed)
	for _, why := range slices.Sorted(maps.Keys(c.Excused)) {
		t.Logf("excused: %s: %d", why, c.Excused[why])
	}
	for _, class := range slices.Sorted(maps.Keys(c.Known)) {
		t.Logf("known: %s: %d", class, c.Known[class])
	}
}

// TestFindingsAreSmall: what is found, with agents that enforce no policies, is shrunk to a few events, which find it again.
func TestFindingsAreSmall(t *testing.T) {
	for seed := uint64(1); seed < 40; seed++ {
		cfg := ConfigOf(seed)
		cfg.Agent.Policies.Off = true
		_, f, err := Play(seed, cfg, games, Limits{NoChanges: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f == nil {
			continue
		}
		if breach, n := replay(f.Config, f.Objects, f.Events, nil); breach.Class != f.Class || n != len(f.Events) {
			t.Errorf("seed %d: %s: played again: %v after %d of %d events", seed, f, breach, n, len(f.Events))
		}
		if len(f.Events) > 10 {
			t.Errorf("seed %d: %d events are left:\n%s", seed, len(f.Events), f)
		}
		return
	}
	t.Error("nothing was found")
}
