package vppagent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// manyPorts is a Service with so many ports and backends; another base gives other backends.
func manyPorts(label, vip string, ports, backends, base int) *nat.DNat44 {
	var m *nat.DNat44
	for p := range ports {
		var list []string
		for b := range backends {
			list = append(list, fmt.Sprintf("10.1.%d.%d:%d", base, 1+b, 8000+p))
		}
		one := dnat(label, vip, uint32(1000+p), list...)
		if m == nil {
			m = one
		} else {
			m.StMappings = append(m.StMappings, one.GetStMappings()...)
		}
	}
	return m
}

// dividing is a lab whose agent divides what takes longer than stall.
func dividing(t *testing.T, stall time.Duration) *lab {
	l := newLab(t, vppagent.Config{Stall: stall, Pause: func(context.Context, time.Duration) {}})
	addPod(l, "tap1", "10.1.1.2")
	for key, m := range portion(node()...) {
		l.want[key] = m
	}
	l.allConfigured(l.resync())
	l.writes()
	return l
}

// commit steps once. It returns the result of the transaction (nil: of the rest; it may still be under way).
func (l *lab) stepOnce(values kv.Values, seq uint64) (out *event.Committed) {
	l.t.Helper()
	var txn *event.Txn
	if values != nil {
		txn = &event.Txn{Seq: seq, Values: values}
	}
	for _, e := range l.agent.Step(l.t.Context(), txn) {
		if c, is := e.(*event.Committed); is {
			if out = c; c.Err != nil {
				l.t.Fatal(c.Err)
			}
		}
	}
	return out
}

// TestMappingsAreDivided: the creation, the change and the removal of a value of many mappings each end after a part of them; another value goes
// between, and in the end VPP has what is wanted.
func TestMappingsAreDivided(t *testing.T) {
	const ports, backends = 40, 50
	l := dividing(t, 200*time.Microsecond)
	key := kv.Key(manyPorts("evil/crowd", "10.96.66.2", 1, 1, 2))
	other := 0
	for i, m := range []proto.Message{manyPorts("evil/crowd", "10.96.66.2", ports, backends, 2), manyPorts("evil/crowd", "10.96.66.2", ports, backends, 3), nil} {
		l.want[key] = m
		c := l.stepOnce(kv.Values{key: m}, 1)
		before := len(l.writes())
		if len(c.Left) != 1 || c.Left[0] != key || before == 0 || before > 400 {
			t.Fatalf("change %d: %q are left after %d messages", i, c.Left, before)
		}
		other++
		small := dnat(fmt.Sprint("victim/", other), fmt.Sprint("10.96.0.", other), 80, "10.1.1.2:80")
		l.want[kv.Key(small)] = small
		c = l.stepOnce(kv.Values{kv.Key(small): small}, 2)
		if w := l.writes(); len(w) != 1 || !strings.Contains(w[0], fmt.Sprint("10.96.0.", other)) || len(c.Left) != 1 {
			t.Fatalf("change %d: the other value takes %d messages, and %q are left", i, len(w), c.Left)
		}
		all, portions := before, 1
		for l.agent.Unfinished() {
			l.stepOnce(nil, 0)
			n := len(l.writes())
			if portions++; n > 200 {
				t.Errorf("change %d: %d messages in a portion", i, n)
			}
			all += n
		}
		if want := []int{ports, 2 * ports * backends, ports}[i]; all != want || portions < 3 {
			t.Errorf("change %d: %d messages in %d portions, want %d", i, all, portions, want)
		}
		l.allConfigured(l.resync())
		l.quiet("resync")
	}
}

// TestMovingMappingsStayTogether: VPP refuses a mapping that another value still has. So values that exchange mappings are not divided.
func TestMovingMappingsStayTogether(t *testing.T) {
	const ports = 40
	l := dividing(t, time.Nanosecond)
	a, z := manyPorts("default/a", "10.96.0.7", ports, 3, 2), manyPorts("default/z", "10.96.0.8", ports, 3, 2)
	l.want[kv.Key(a)], l.want[kv.Key(z)] = a, z
	l.allConfigured(l.resync())
	l.writes()
	half := ports / 2
	a, z = proto.CloneOf(a), proto.CloneOf(z)
	z.StMappings = append(z.StMappings, a.StMappings[:half]...)
	a.StMappings = a.StMappings[half:]
	l.want[kv.Key(a)], l.want[kv.Key(z)] = a, z
	c := l.stepOnce(kv.Values{kv.Key(a): a, kv.Key(z): z}, 1)
	if c.Left != nil || count(c.Statuses, event.Configured) != 2 {
		t.Errorf("%q are left, %v", c.Left, c.Statuses)
	}
	l.writes()
	l.allConfigured(l.resync())
	l.quiet("resync")
}
