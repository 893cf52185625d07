package simulate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/test/simulate/servers"
)

// Kind is a kind of action.
type Kind = servers.Kind

// The kinds: changes that an agent has to follow, and faults.
const (
	Change    Kind = "objects change"          // to version N
	External  Kind = "client puts values"      // N draws them
	KillVPP   Kind = "VPP is killed"           // its state is lost; For: it is away. The CNI's interfaces are back before it listens
	BareVPP   Kind = "VPP is killed bare"      // as KillVPP, and the CNI makes its interfaces again while the agent works; N draws the order
	HangVPP   Kind = "VPP hangs"               // For: it reads nothing
	SlowVPP   Kind = "VPP is slow"             // For: N ms for each request
	RefuseVPP Kind = "VPP refuses"             // For: N of 1,000 requests that change something
	CutVPP    Kind = "connection cut"          // after N requests
	LoseDumps Kind = "dumps lose details"      // For: N of them
	DriftVPP  Kind = "another program changes" // access lists in VPP; N draws what
	CutAPI         = servers.CutAPI            // For
	EmptyAPI       = servers.EmptyAPI          // For: it has no objects
	BackAPI   Kind = "API server is older"     // to version N, and stays there
	KillAgent Kind = "agent is killed"         // after N requests; For: it is away
	SetClock  Kind = "clock is set"            // after N requests the agent is killed; it starts again with a clock that is an hour off
	LosePower Kind = "node loses power"        // after N requests, or while the store is written: VPP and agent end, and so does what no fsync has covered
	FullDisk  Kind = "disk is full"            // For: the store of external values cannot be written
	NoJournal Kind = "journal's disk is full"  // For: the journal cannot be written
)

// faults are the kinds that a schedule draws from, beside changes.
var faults = []Kind{KillVPP, BareVPP, HangVPP, SlowVPP, RefuseVPP, CutVPP, LoseDumps, DriftVPP, CutAPI, EmptyAPI, BackAPI, KillAgent, KillAgent, SetClock, LosePower, FullDisk, NoJournal, External, External}

// Action is something that happens at a moment of a round.
type Action struct {
	ID    int // its place in the schedule of the seed
	Round int
	At    time.Duration // since the beginning of the round
	Kind  Kind
	Node  int // index; of kinds that concern one node
	For   time.Duration
	N     int
}

// String returns "12.3s VPP hangs, node 1, for 4s, 3".
func (a Action) String() string {
	return fmt.Sprintf("%3d  round %d, %5.1fs: %s, node %d, for %s, %d", a.ID, a.Round, a.At.Seconds(), a.Kind, a.Node+1, a.For, a.N)
}

// Schedule is what happens in one simulation.
type Schedule struct {
	Seed     uint64
	Versions int  // of the objects
	Rounds   int  // each ends with a quiet time and the checks
	Etcd     bool // agents follow an etcd
	Fanout   bool // agents follow a fan-out server
	Recheck  time.Duration
	Pauses   []time.Duration // before the rounds of a whole day; none: the rounds follow each other
	Actions  []Action
}

// Times of a round.
const (
	window = time.Minute          // in which actions begin
	hold   = 30 * time.Second     // for which agents hold removals
	quiet  = 3*time.Minute + hold // without faults, within which an agent must reach its desired state
)

// Draw draws the schedule of a seed. Only these kinds of faults occur; none given: all.
func Draw(seed uint64, only ...Kind) Schedule {
	rng := rand.New(rand.NewPCG(seed, 21))
	s := Schedule{Seed: seed, Rounds: 3 + rng.IntN(3), Recheck: config.DefaultRecheck}
	if len(only) == 0 {
		only, s.Etcd, s.Fanout = faults, seed%2 == 0, seed%3 == 0
	} else {
		has := func(kinds []Kind) bool {
			return slices.ContainsFunc(only, func(k Kind) bool { return slices.Contains(kinds, k) })
		}
		s.Etcd, s.Fanout = has(slices.Concat(etcdFaults, laterEtcdFaults)), has(slices.Concat(fanoutFaults, laterFanoutFaults))
	}
	for round := range s.Rounds {
		var list []Action
		for range 1 + rng.IntN(2) {
			s.Versions++
			list = append(list, Action{Kind: Change, At: at(rng), N: s.Versions})
		}
		for range 1 + rng.IntN(5) {
			list = append(list, drawFault(rng, only, s.Versions))
		}
		slices.SortStableFunc(list, inTime)
		for _, a := range list {
			a.ID, a.Round = len(s.Actions), round
			s.Actions = append(s.Actions, a)
		}
	}
	if slices.Equal(only, faults) {
		s.drawMore(22, 3, apiFaults)
		if s.Etcd {
			s.drawMore(23, 4, etcdFaults)
		}
		if s.Fanout {
			s.drawMore(24, 3, fanoutFaults)
			s.drawMore(25, 2, laterFanoutFaults)
		}
		if s.Etcd {
			s.drawMore(26, 2, laterEtcdFaults)
		}
	}
	s.Versions++
	for i := range s.Actions { // versions in the order in which they are used
		if s.Actions[i].Kind == Change {
			s.Actions[i].N = 1 + countChanges(s.Actions[:i])
		}
	}
	return s
}

// drawMore draws fewer than most further faults of each round by a separate generator, so that the others keep their numbers.
func (s *Schedule) drawMore(generator uint64, most int, kinds []Kind) {
	rng := rand.New(rand.NewPCG(s.Seed, generator))
	for round := range s.Rounds {
		for range rng.IntN(most) {
			a := drawFault(rng, kinds, s.Versions)
			a.ID, a.Round = len(s.Actions), round
			s.Actions = append(s.Actions, a)
		}
	}
	slices.SortStableFunc(s.Actions, inTime)
}

func inTime(a, b Action) int { return cmp.Or(cmp.Compare(a.Round, b.Round), cmp.Compare(a.At, b.At)) }

func countChanges(list []Action) (n int) {
	for _, a := range list {
		if a.Kind == Change {
			n++
		}
	}
	return n
}

// at is a moment of the window, in steps of 100 ms.
func at(rng *rand.Rand) time.Duration {
	return time.Duration(rng.IntN(int(window/(100*time.Millisecond)))) * 100 * time.Millisecond
}

func drawFault(rng *rand.Rand, only []Kind, versions int) Action {
	a := Action{Kind: only[rng.IntN(len(only))], At: at(rng), Node: rng.IntN(3), For: time.Duration(100+rng.IntN(20000)) * time.Millisecond, N: rng.IntN(1 << 20)}
	switch a.Kind {
	case HangVPP:
		a.For = []time.Duration{a.For, 70 * time.Second}[rng.IntN(2)] // longer than vpp.Config.Silence
	case SlowVPP:
		a.N = 1 + a.N%200
	case CutEtcd, HangEtcd, SlowEtcd, HangFanout, SlowFanout:
		a.For = []time.Duration{a.For, 70 * time.Second}[rng.IntN(2)] // longer than an agent waits for etcd, than its lease, and than clients of a fan-out server wait for pings
		a.N = []int{50, 500, 4000}[a.N%3]
	case DeadEtcd, DeadFanout:
		a.N = []int{0, 1 + a.N%20, 1 + a.N%2000}[rng.IntN(3)] // from the beginning, in a hello, in a later message
	case SlowAPI:
		a.N = []int{500, 5000, 30000}[a.N%3]
	case RefuseVPP, FailAPI:
		a.N = []int{50, 300, 1000}[a.N%3]
	case CutVPP, KillAgent, SetClock, LosePower:
		a.N = 1 + a.N%[]int{8, 60, 300}[rng.IntN(3)]
	case LoseDumps:
		a.N = 1 + a.N%20
	case BackAPI:
		a.N %= versions
	}
	return a
}

// Without returns the schedule without the actions from i to j-1.
func (s Schedule) Without(i, j int) Schedule {
	s.Actions = slices.Delete(slices.Clone(s.Actions), i, j)
	return s
}

// Keep returns the schedule with the actions of these IDs alone.
func (s Schedule) Keep(ids []int) Schedule {
	s.Actions = slices.DeleteFunc(slices.Clone(s.Actions), func(a Action) bool { return !slices.Contains(ids, a.ID) })
	return s
}

// String has a line for each action.
func (s Schedule) String() string {
	var b strings.Builder
	for _, a := range s.Actions {
		fmt.Fprintln(&b, a)
	}
	return b.String()
}

// Replay returns the command that runs the schedule again.
func (s Schedule) Replay() string {
	var ids []string
	for _, a := range s.Actions {
		ids = append(ids, fmt.Sprint(a.ID))
	}
	days := ""
	if s.IsDay() {
		days = "DAYS=1 "
	}
	return fmt.Sprintf("make simulate SEED=%d %sONLY=%s AGAIN=20", s.Seed, days, cmp.Or(strings.Join(ids, ","), "none"))
}
