package vppagent_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// crowd is a node of a large cluster: 10,000 Services with ten endpoints each, 110 pods under policies.
func crowd(pods int) kv.Values {
	v := kv.Values{}
	for _, m := range node() {
		v.Put(m)
	}
	for i := range 10_000 {
		var backends []string
		for j := range 10 {
			backends = append(backends, fmt.Sprintf("10.%d.%d.%d:8080", 1+i/2500, i%250, 1+j))
		}
		vip := fmt.Sprintf("10.%d.%d.%d", 96+i/60000, i/250%250, 1+i%250)
		v.Put(dnat(fmt.Sprintf("ns/service-%d", i), vip, 80, backends...))
		v.Put(&contivl3.RejectRoute{DstNetwork: vip + "/32"})
	}
	for i := range pods {
		in, out := fmt.Sprintf("in-%d", i), fmt.Sprintf("out-%d", i)
		var rules []*acl.ACL_Rule
		for j := range 50 {
			rules = append(rules, rule(acl.ACL_Rule_PERMIT, "tcp", fmt.Sprintf("10.%d.%d.0/24", 1+j, i), "", 80))
		}
		v.Put(accessList(in, rules...))
		v.Put(accessList(out, rules...))
		v.Put(lists(fmt.Sprintf("tap%d", 1+i), []string{in}, []string{out}))
		v.Put(&nat.Nat44Interface{Name: fmt.Sprintf("tap%d", 1+i), NatInside: true, NatOutside: true})
	}
	return v
}

// timed measures VPP's answers: the time of each batch from the first request to the last answer.
type stopwatch struct {
	conn    *vpp.Conn
	longest time.Duration
	sum     time.Duration
}

func (s *stopwatch) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	began := time.Now()
	out := s.conn.Do(ctx, calls...)
	took := time.Since(began)
	s.longest, s.sum = max(s.longest, took), s.sum+took
	return out
}

// BenchmarkRecheckRound is the cost of a round on 10,000 Services with ten endpoints each: for the agent in CPU time, for VPP in the time
// between question and answer, and on a real VPP the longest time that its main thread did nothing else.
func BenchmarkRecheckRound(b *testing.B) {
	const pods = 110
	if os.Getenv("CONTIV_VPP") != "" {
		b.Run("vpp", func(b *testing.B) { benchmarkRound(b, realVPP(b, pods, ""), crowd(pods), true) })
	}
	b.Run("sim", func(b *testing.B) {
		v := sim.New(sim.Config{})
		for i := range pods {
			v.AddInterface(sim.Interface{Name: fmt.Sprintf("tap%d", 1+i)})
		}
		benchmarkRound(b, newLabOn(b, v, vppagent.Config{}).conn, crowd(pods), false)
	})
}

func benchmarkRound(b *testing.B, conn *vpp.Conn, want kv.Values, real bool) {
	w := &stopwatch{conn: conn}
	now := time.Unix(1_700_000_000, 0)
	a := vppagent.New(vppagent.Config{Caller: w, Recheck: roundTime, Now: func() time.Time { return now }})
	if c := a.Commit(b.Context(), &event.Txn{Resync: event.Full, Values: want}); c.Err != nil {
		b.Fatal(c.Err)
	}
	a.Recheck(b.Context()) // the clock of the rounds starts here
	turns, wall := 0, [10]time.Duration{}
	hz := clockRate(b, conn, real)
	var stuck [10]time.Duration
	var cpu, whole time.Duration
	for b.Loop() {
		for turn := range 10 {
			now = now.Add(time.Hour) // later than the end of any pause
			w.longest, w.sum = 0, 0
			if real {
				cli(b, conn, "clear runtime")
			}
			before := used(b)
			began := time.Now()
			if c := a.Recheck(b.Context()); c != nil {
				b.Fatalf("an unchanged VPP: %+v", c)
			}
			whole += time.Since(began)
			cpu += used(b) - before
			wall[turn] = max(wall[turn], w.longest)
			if real {
				stuck[turn] = max(stuck[turn], longestDispatch(b, conn, hz))
			}
			turns++
		}
	}
	rounds := float64(turns) / 10
	b.ReportMetric(cpu.Seconds()*1000/rounds, "ms-cpu/round")
	b.ReportMetric(whole.Seconds()*1000/rounds, "ms-wall/round")
	for turn, d := range wall {
		if turn == 0 || turn%2 == 1 {
			b.ReportMetric(d.Seconds()*1000, fmt.Sprintf("ms-answer/turn%d", turn))
			if real {
				b.ReportMetric(stuck[turn].Seconds()*1000, fmt.Sprintf("ms-vpp/turn%d", turn))
			}
		}
	}
}

// used is the CPU time of this process.
func used(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func cli(b *testing.B, conn *vpp.Conn, cmd string) string {
	r := conn.Do(b.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: cmd}})[0]
	if r.Err != nil {
		b.Fatal(r.Err)
	}
	return r.Msg.(*vlib.CliInbandReply).Reply
}

// clockRate is the number of VPP's clock ticks in a second.
func clockRate(b *testing.B, conn *vpp.Conn, real bool) float64 {
	if !real {
		return 0
	}
	m := regexp.MustCompile(`([0-9.e+]+) ?(?:GHz|Ghz)`).FindStringSubmatch(cli(b, conn, "show cpu"))
	if m == nil {
		b.Fatal(cli(b, conn, "show cpu"))
	}
	ghz, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return ghz * 1e9
}

// longestDispatch is the longest time that VPP's main loop spent in one call of the node that answers the API; without workers it
// forwards nothing meanwhile, with workers a barrier holds them as long.
func longestDispatch(b *testing.B, conn *vpp.Conn, hz float64) (longest time.Duration) {
	for _, line := range strings.Split(cli(b, conn, "show runtime max"), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "api-rx-from-ring" && f[0] != "unix-epoll-input" {
			continue
		}
		clocks, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			b.Fatal(line)
		}
		longest = max(longest, time.Duration(clocks/hz*float64(time.Second)))
	}
	return longest
}
