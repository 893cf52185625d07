package bench

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// program is another program: it wants no values at first, and then those that the test gives it.
type program chan func(context.Context, func(event.Event))

// String implements controller.ExternalConfigSource.
func (program) String() string { return "program" }

// Run implements controller.ExternalConfigSource.
func (p program) Run(ctx context.Context, emit func(event.Event)) error {
	emit(event.ExternalConfigResync(p.String(), nil))
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-p:
			f(ctx, emit)
		}
	}
}

// put has the program want values and waits until VPP has them.
func (p program) put(tb testing.TB, values map[string]proto.Message) {
	tb.Helper()
	done := make(chan error, 1)
	p <- func(ctx context.Context, emit func(event.Event)) {
		result, err := event.Await(ctx, emit, event.ExternalConfigChange(p.String(), values))
		if err == nil {
			err = result.Err
		}
		if err == nil && (len(result.Bad()) > 0 || len(result.Values) != len(values)) {
			err = fmt.Errorf("%d of %d: %v", len(result.Values), len(values), result.Bad())
		}
		done <- err
	}
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
}

// mappings are DNat44s with four backends each.
func mappings(n int) map[string]proto.Message {
	values := kv.Values{}
	for i := range n {
		m := &nat.DNat44_StaticMapping{ExternalIp: fmt.Sprintf("192.0.%d.%d", i>>8&255, i&255), ExternalPort: uint32(80 + i>>16), Protocol: nat.DNat44_TCP}
		for k := range 4 {
			m.LocalIps = append(m.LocalIps, &nat.DNat44_StaticMapping_LocalIP{LocalIp: fmt.Sprintf("10.%d.%d.%d", 1+k, i>>8&255, i&255), LocalPort: 8080, Probability: 1})
		}
		values.Put(&nat.DNat44{Label: fmt.Sprintf("program/%d", i), StMappings: []*nat.DNat44_StaticMapping{m}})
	}
	return values
}

// BenchmarkExternal has another program want many values in one transaction. The bare side writes the same messages through a
// vpp.Conn; what is left is what all between the program and the connection takes, in time and in time of processors.
func BenchmarkExternal(b *testing.B) {
	c := newCluster(1, 1, nil)
	perValue := map[string]map[int]float64{}
	for _, n := range []int{1000, 4000, 16_000} {
		values := mappings(n)
		tape, writes := recordExternal(b, c, values)
		for _, peer := range []string{"sim", "null"} {
			b.Run(fmt.Sprintf("peer=%s/values=%d", peer, n), func(b *testing.B) {
				fresh := func() (dialer, func()) { v := startSim(b, c); return v.dial, v.stop }
				if peer == "null" {
					fresh = func() (dialer, func()) { return tape.listen(b), func() {} }
				}
				var w, cpu stopwatch
				for b.Loop() {
					dial, stop := fresh()
					r, p := runProgram(b, dial, c)
					var spent time.Duration
					w.agent = append(w.agent, timed(func() { spent = spending(b, func() { p.put(b, values) }) }))
					cpu.agent = append(cpu.agent, spent)
					r.stop()
					stop()
					dial, stop = fresh()
					conn := dialBare(b, dial)
					conn.do(b, writes[:writesBefore(writes)]) // what the mappings need
					w.bare = append(w.bare, timed(func() { spent = spending(b, func() { conn.do(b, writes[writesBefore(writes):]) }) }))
					cpu.bare = append(cpu.bare, spent)
					conn.stop()
					stop()
				}
				micro := cpu.over(n)
				if perValue[peer] == nil {
					perValue[peer] = map[int]float64{}
				}
				perValue[peer][n] = micro
				b.ReportMetric(micro, "cpu-µs/value")
				b.ReportMetric(micro/perValue[peer][1000], "x1000")
				b.ReportMetric(w.over(n), "µs/value")
				w.report(b)
			})
		}
	}
}

// over is how much longer the agent takes per value, in µs.
func (w *stopwatch) over(values int) float64 {
	return float64((percentile(w.agent, 50) - percentile(w.bare, 50)).Nanoseconds()) / 1e3 / float64(values)
}

// spending is the processor time the process needs for f: of both peers, and unlike time not of other processes.
func spending(tb testing.TB, f func()) time.Duration {
	tb.Helper()
	now := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			tb.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began := now()
	f()
	return now() - began
}

// writesBefore is how many of the writes come before the first mapping.
func writesBefore(writes []vpp.Call) int {
	for i, w := range writes {
		if w.Msg.GetMessageName() == "nat44_add_del_lb_static_mapping" {
			return i
		}
	}
	return len(writes)
}

// runProgram runs an agent that has synced a node without Services.
func runProgram(b *testing.B, dial dialer, c *cluster) (*running, program) {
	p := make(program)
	r := run(b, dial, func(cfg *agent.Config) { cfg.External = []controller.ExternalConfigSource{p} })
	r.sync(c.nodeAlone())
	return r, p
}

// nodeAlone is the cluster without Services.
func (c *cluster) nodeAlone() (out []event.Change) {
	for _, n := range c.nodes {
		out = append(out, put(n))
	}
	for _, p := range c.pods {
		out = append(out, put(p))
	}
	return out
}

func recordExternal(b *testing.B, c *cluster, values map[string]proto.Message) (*tape, []vpp.Call) {
	v := startSim(b, c)
	defer v.stop()
	rec := &recorder{}
	r, p := runProgram(b, rec.record(v.dial), c)
	p.put(b, values)
	r.stop()
	tape := rec.tape(b)
	return tape, tape.calls(0, (*exchange).write)
}
