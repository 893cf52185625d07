package vppagent_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// yes is a VPP that has nothing and accepts every request: the remaining time is the agent's.
type yes struct{ calls, batches int }

func (y *yes) Do(_ context.Context, calls ...vpp.Call) []vpp.Reply {
	y.calls += len(calls)
	y.batches++
	return make([]vpp.Reply, len(calls))
}

// services are n Services with some backends each, and the values they need.
func services(n, backends int) kv.Values {
	v := kv.Values{}
	v.Put(&nat.Nat44Global{Forwarding: true})
	v.Put(&nat.Nat44AddressPool{VrfId: ^uint32(0), FirstIp: "10.1.1.254", TwiceNat: true})
	for i := range n {
		v.Put(service(i, backends))
	}
	return v
}

func service(i, backends int) *nat.DNat44 {
	b := make([]string, backends)
	for j := range b {
		b[j] = fmt.Sprintf("10.%d.%d.%d:8080", 1+j, i>>8&255, i&255)
	}
	return dnat(fmt.Sprintf("default/service-%d", i), fmt.Sprintf("10.96.%d.%d", i>>8, i&255), uint32(80+i>>16), b...)
}

func ready(tb testing.TB, n, backends int) (*vppagent.Agent, *yes) {
	tb.Helper()
	y := &yes{}
	a := vppagent.New(vppagent.Config{Caller: y})
	if c := a.Commit(context.Background(), &event.Txn{Resync: event.Full, Values: services(n, backends)}); c.Err != nil || c.Add != n+2 {
		tb.Fatalf("%d added: %v", c.Add, c.Err)
	}
	return a, y
}

// One endpoint more is three messages in one batch, regardless of the number of Services: the endpoint and two pads, with which it can be drained.
func TestOneEndpointOneBatch(t *testing.T) {
	for _, n := range []int{10, 1000} {
		a, y := ready(t, n, 10)
		*y = yes{}
		c := a.Commit(context.Background(), change(7, 11))
		if c.Writes != 3 || c.Mod != 1 || y.calls != 3 || y.batches != 1 {
			t.Errorf("%d services: %d writes, %d calls in %d batches, %+v", n, c.Writes, y.calls, y.batches, c)
		}
	}
}

func change(i, backends int) *event.Txn {
	s := service(i, backends)
	return &event.Txn{Values: map[string]proto.Message{kv.Key(s): s}}
}

// BenchmarkOneEndpoint must not depend on the number of Services.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a, _ := ready(b, n, 10)
			txns := []*event.Txn{change(7, 11), change(7, 10)}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				a.Commit(context.Background(), txns[i%2])
				i++
			}
		})
	}
}

// BenchmarkFirstSync is the time of everything but VPP, per value.
func BenchmarkFirstSync(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			values := services(n, 10)
			b.ReportAllocs()
			for b.Loop() {
				a := vppagent.New(vppagent.Config{Caller: &yes{}})
				a.Commit(context.Background(), &event.Txn{Resync: event.Full, Values: values})
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(values)), "µs/value")
		})
	}
}
