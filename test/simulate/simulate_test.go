package simulate

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/test/simulate/powerloss"
)

// inBubble runs a schedule in a bubble.
func inBubble(t *testing.T, s Schedule, cfg Config) (f Figures, err error) {
	t.Helper()
	dir, mkErr := os.MkdirTemp(memory(), "simulate-")
	if mkErr != nil {
		t.Fatal(mkErr)
	}
	defer os.RemoveAll(dir)
	cfg.Dir = dir
	ended := false
	defer func() { // of goroutines that wait for ever
		p := recover()
		if p != nil && err == nil {
			err = fmt.Errorf("the bubble ends with: %v", p)
		}
		if p == nil && !ended { // by runtime.Goexit, and so does the whole test
			t.Errorf("seed %d: the bubble ends without a reason\n%sagain: %s", s.Seed, s, s.Replay())
		}
	}()
	defer guardWork(s)()
	synctest.Test(t, func(*testing.T) { f, err = Run(s, cfg) })
	ended = true
	return f, err
}

// memory is a folder in memory, or the one of a followed process; "": the usual folder for temporary files.
func memory() string {
	if isFollowed() {
		return os.Getenv(powerloss.DiskIn)
	}
	if _, err := os.Stat("/dev/shm"); err == nil {
		return "/dev/shm"
	}
	return ""
}

// schedule is what the environment asks for, of a seed.
func schedule(t *testing.T, seed uint64) Schedule {
	t.Helper()
	var kinds []Kind
	if text := os.Getenv("CONTIV_KINDS"); text != "" {
		for _, k := range strings.Split(text, ",") {
			kinds = append(kinds, Kind(k))
		}
	}
	s := Draw(seed, kinds...)
	if days := oracle.Setting(t, "CONTIV_DAYS", 0); days > 0 || seed%everyDay == 0 {
		s = DrawDay(seed, kinds...)
	}
	if only := os.Getenv("CONTIV_ONLY"); only != "" {
		var ids []int
		for _, id := range strings.Split(only, ",") {
			if n, err := strconv.Atoi(id); err == nil {
				ids = append(ids, n)
			} else if only != "none" {
				t.Fatal(err)
			}
		}
		s = s.Keep(ids)
	}
	return s
}

// TestSimulate runs the schedules of some seeds. A failure prints the shortest schedule that still fails, and the command that runs it.
func TestSimulate(t *testing.T) {
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	cfg := Config{Night: time.Duration(oracle.Setting(t, "CONTIV_NIGHT", 0)) * time.Hour}
	if os.Getenv("CONTIV_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	if os.Getenv("GOMAXPROCS") == "" {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // goroutines mostly wake each other: on two processors that costs a third more
	}
	again := oracle.Setting(t, "CONTIV_AGAIN", 1)
	total := map[bool]*tally{false: newTally("seeds"), true: newTally("seeds of whole days")}
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_SEEDS", pace.Fewer[uint64](12, 6)) && !t.Failed(); seed++ {
		fmt.Printf("seed %d\n", seed) // at once: a panic of an agent ends the process
		s := schedule(t, seed)
		for range again {
			began := processorTime()
			f, err := inBubble(t, s, cfg)
			if err != nil {
				t.Errorf("seed %d: %v\n%s", seed, err, s)
				shorten(t, s, err, cfg)
				return
			}
			sum := total[s.IsDay()]
			sum.took += processorTime() - began
			addFigures(&sum.Figures, f)
			if sum.seeds++; sum.seeds%50 == 0 {
				t.Logf("seed %d passes", seed)
			}
		}
	}
	for _, sum := range []*tally{total[false], total[true]} {
		if sum.TooBig > max(mostTooBig, sum.Compared/100) {
			t.Errorf("%d of %d checks differ for policies that are too big", sum.TooBig, sum.Compared)
		}
		if sum.Untracked > max(mostUntracked, sum.Lasting/4) {
			t.Errorf("%d of %d associations of SCTP end by the list no-sctp", sum.Untracked, sum.Lasting)
		}
		if sum.Mixed > max(mostMixed, sum.Packets/100) {
			t.Errorf("%d of %d forbidden packets passed an agent with objects of several versions", sum.Mixed, sum.Packets)
		}
		if sum.seeds > 0 {
			t.Log(sum)
		}
	}
}

// tally has the figures of all seeds of one kind.
type tally struct {
	Figures
	kind  string
	seeds int
	took  time.Duration // of a processor
}

func newTally(kind string) *tally {
	return &tally{Figures: Figures{Actions: map[Kind]int{}}, kind: kind}
}

// String is the line that a run ends with.
func (s *tally) String() string {
	var kinds []string
	actions := 0
	for _, k := range slices.Sorted(maps.Keys(s.Actions)) {
		kinds = append(kinds, fmt.Sprintf("%d× %s", s.Actions[k], k))
		actions += s.Actions[k]
	}
	day := time.Duration(float64(s.took) * float64(24*time.Hour) / float64(s.Virtual+1))
	return fmt.Sprintf("%d %s, %s simulated in %s of a processor (a day in %s); %d requests, %d checks and %d of policies that are too big, %d forbidden packets and %d of mixed versions, %d of revoked connections, %d of others, %d of these of SCTP, %d of SCTP that nat44 hides and %d that nothing tracks, %d acknowledged values, %d agents; %d actions: %s",
		s.seeds, s.kind, s.Virtual.Round(time.Second), s.took.Round(time.Millisecond), day.Round(time.Millisecond), s.Requests, s.Compared, s.TooBig, s.Packets, s.Mixed, s.Revoked, s.Continued, s.Lasting, s.Hidden, s.Untracked, s.Acked, s.Lives, actions, strings.Join(kinds, ", "))
}

// mostTooBig bounds the checks that differ for policies that are too big for VPP. One policy has several at each quiet time of a seed.
const mostTooBig = 40

// mostMixed bounds the packets that no version allows, and that pass while an agent has objects of several versions.
const mostMixed = 40

// mostUntracked bounds the associations of SCTP that end because policies begin to restrict the other direction (ADR 11).
const mostUntracked = 10

// processorTime is what the process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func addFigures(total *Figures, f Figures) {
	total.Virtual += f.Virtual
	total.Requests += f.Requests
	total.Compared += f.Compared
	total.Packets += f.Packets
	total.Revoked += f.Revoked
	total.Continued += f.Continued
	total.Lasting += f.Lasting
	total.Hidden += f.Hidden
	total.Untracked += f.Untracked
	total.Acked += f.Acked
	total.Lives += f.Lives
	total.TooBig += f.TooBig
	total.Mixed += f.Mixed
	for k, n := range f.Actions {
		total.Actions[k] += n
	}
}

// shortening is how long a test looks for a shorter schedule.
const shortening = time.Minute

// shorten prints the shortest schedule that still fails.
func shorten(t *testing.T, s Schedule, err error, cfg Config) {
	t.Helper()
	cfg.Logger = nil
	until := time.Now().Add(shortening)
	s, err = Shorten(s, err, func(s Schedule) error {
		for range 3 {
			if time.Now().After(until) {
				return nil
			}
			if _, err := inBubble(t, s, cfg); err != nil {
				return err
			}
		}
		return nil
	})
	t.Errorf("the shortest schedule that fails:\n%s%v\nagain: %s", s, err, s.Replay())
}
