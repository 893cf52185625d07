package podnet

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/policer"
)

func TestLimits(t *testing.T) {
	for _, tc := range []struct {
		what string
		set  *protocol.Bandwidth
		want []string // direction, rate, burst
	}{
		{"none", nil, nil},
		{"zero", &protocol.Bandwidth{}, nil},
		{"ingress is VPP's output", &protocol.Bandwidth{IngressRate: 10_000_000}, []string{"OUTPUT 10000 312500"}},
		{"a burst that nobody chose", &protocol.Bandwidth{EgressRate: 8_000_000, EgressBurst: math.MaxInt32}, []string{"INPUT 8000 250000"}},
		{"a chosen burst", &protocol.Bandwidth{EgressRate: 8_000_000, EgressBurst: 1_600_000}, []string{"INPUT 8000 200000"}},
		{"a burst of less than packets", &protocol.Bandwidth{EgressRate: 1, EgressBurst: 8}, []string{"INPUT 1 90000"}},
		{"more than VPP counts", &protocol.Bandwidth{IngressRate: math.MaxUint64, EgressRate: 1001}, []string{"INPUT 2 90000", "OUTPUT 4294967295 4294967295"}},
	} {
		a := web()
		a.Bandwidth = tc.set
		var got []string
		for key, m := range (&cluster{}).podValues(&Settings{}, a) {
			if p, is := m.(*policer.Policer); is {
				got = append(got, fmt.Sprintf("%s %d %d", p.GetDirection(), p.GetRate(), p.GetBurst()))
				if !strings.Contains(key, "/policer/"+a.iface()+"/") {
					t.Errorf("%s: key %s", tc.what, key)
				}
			}
		}
		if slices.Sort(got); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}

// TestBandwidthRemains: a restarted agent limits the pod as before.
func TestBandwidthRemains(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"))
	r := request("c1", "web")
	r.Bandwidth = &protocol.Bandwidth{IngressRate: 10_000_000, EgressRate: 20_000_000}
	w.add(r)
	before := w.podKeys()
	w.stop()
	w.start()
	w.nodes()
	after := w.podKeys()
	slices.Sort(before)
	if slices.Sort(after); !slices.Equal(before, after) || !strings.Contains(strings.Join(after, " "), "/policer/") {
		t.Errorf("before %q\nafter %q", before, after)
	}
}
