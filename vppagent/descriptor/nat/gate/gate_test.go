package gate

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

func mapping(ip string, backends ...string) *nat.DNat44_StaticMapping {
	m := &nat.DNat44_StaticMapping{ExternalIp: ip, ExternalPort: 80, Protocol: nat.DNat44_TCP}
	for _, b := range backends {
		m.LocalIps = append(m.LocalIps, &nat.DNat44_StaticMapping_LocalIP{LocalIp: b, LocalPort: 8080, Probability: 1})
	}
	return m
}

func service(list ...*nat.DNat44_StaticMapping) *nat.DNat44 {
	return &nat.DNat44{Label: "default/web", StMappings: list}
}

// TestOnlyNewDestinationsWait: access lists precede a mapping that leads to an endpoint, and no mapping that only loses some.
func TestOnlyNewDestinationsWait(t *testing.T) {
	one, two := "10.1.1.2", "10.1.1.3"
	hiding := mapping("10.96.0.10", one)
	hiding.TwiceNat = nat.DNat44_StaticMapping_ENABLED
	udp := mapping("10.96.0.10", one)
	udp.Protocol = nat.DNat44_UDP
	drained := mapping("10.96.0.10", one, two)
	drained.LocalIps[1].Probability = 0
	for _, tc := range []struct {
		what      string
		have, now *nat.DNat44
		waits     bool
	}{
		{"a new Service", nil, service(mapping("10.96.0.10", one)), true},
		{"a new Service without endpoints", nil, service(mapping("10.96.0.10")), false},
		{"the same", service(mapping("10.96.0.10", one)), service(mapping("10.96.0.10", one)), false},
		{"an endpoint joins", service(mapping("10.96.0.10", one)), service(mapping("10.96.0.10", one, two)), true},
		{"an endpoint leaves", service(mapping("10.96.0.10", one, two)), service(mapping("10.96.0.10", one)), false},
		{"an endpoint takes another's place", service(mapping("10.96.0.10", one)), service(mapping("10.96.0.10", two)), true},
		{"another address", service(mapping("10.96.0.10", one)), service(mapping("10.96.0.10", one), mapping("10.96.0.11", one)), true},
		{"another protocol", service(mapping("10.96.0.10", one)), service(udp), true},
		{"it hides clients", service(mapping("10.96.0.10", one)), service(hiding), true},
		{"an endpoint drains", service(mapping("10.96.0.10", one, two)), service(drained), false},
		{"a drained endpoint returns", service(drained), service(mapping("10.96.0.10", one, two)), true},
	} {
		var have any
		if tc.have != nil {
			have = tc.have
		}
		if got := Behind(func(state any) proto.Message { return state.(*nat.DNat44) }, have, tc.now); len(got) > 0 != tc.waits {
			t.Errorf("%s: waits for %v", tc.what, got)
		}
	}
}
