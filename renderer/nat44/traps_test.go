package nat44

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkSafe fails on any mapping that VPP 24.06 crashes on, or accepts and does not honour.
func checkSafe(t failer, values kv.Values) {
	t.Helper()
	for key, value := range values {
		dnat, is := value.(*nat.DNat44)
		if !is {
			continue
		}
		if len(dnat.StMappings) == 0 && len(dnat.IdMappings) == 0 {
			t.Fatalf("%s maps nothing", key)
		}
		seen := map[string]bool{}
		for _, m := range dnat.StMappings {
			at := fmt.Sprintf("%s:%d/%s", m.ExternalIp, m.ExternalPort, m.Protocol)
			if seen[at] {
				t.Fatalf("A1: %s is mapped twice", at)
			}
			seen[at] = true
			if a, err := netip.ParseAddr(m.ExternalIp); err != nil || !a.Is4() {
				t.Fatalf("A10: %s is not IPv4", at)
			}
			if m.ExternalPort == 0 || m.Protocol != nat.DNat44_TCP && m.Protocol != nat.DNat44_UDP {
				t.Fatalf("A9: %s", at)
			}
			if len(m.LocalIps) > MaxBackends {
				t.Fatalf("A6: %s has %d endpoints", at, len(m.LocalIps))
			}
			checkLocals(t, at, m.LocalIps)
			drains := slices.ContainsFunc(m.LocalIps, func(l *nat.DNat44_StaticMapping_LocalIP) bool { return l.Probability == 0 })
			if drains && (m.SessionAffinity > 0 || len(m.LocalIps) > MaxDrained) {
				t.Fatalf("%s drains endpoints: %v", at, m)
			}
		}
	}
}

func checkLocals(t failer, at string, locals []*nat.DNat44_StaticMapping_LocalIP) {
	t.Helper()
	sum, seen := uint32(0), map[string]bool{}
	for _, l := range locals {
		if l.Probability == 0 && sum == 0 || l.Probability > 255 { // 0 behind others: it is drained
			t.Fatalf("A5: weight %d at %s", l.Probability, at)
		}
		sum += l.Probability
		id := fmt.Sprintf("%s:%d", l.LocalIp, l.LocalPort)
		if seen[id] {
			t.Fatalf("A3: %s has %s twice", at, id)
		}
		seen[id] = true
		if a, err := netip.ParseAddr(l.LocalIp); err != nil || !a.Is4() || l.LocalPort == 0 {
			t.Fatalf("A10: endpoint %s of %s", id, at)
		}
	}
	if sum > 255 {
		t.Fatalf("A5: weights of %s add up to %d", at, sum)
	}
}
