package builtin

import (
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// mapped is a mapping of nat44 with endpoints and their probabilities.
func mapped(change func(*nat.DNat44_StaticMapping), locals ...*nat.DNat44_StaticMapping_LocalIP) *nat.DNat44 {
	m := &nat.DNat44_StaticMapping{ExternalIp: "10.96.0.10", ExternalPort: 80, LocalIps: locals}
	if change != nil {
		change(m)
	}
	return &nat.DNat44{Label: "web", StMappings: []*nat.DNat44_StaticMapping{m}}
}

func local(ip string, probability uint32) *nat.DNat44_StaticMapping_LocalIP {
	return &nat.DNat44_StaticMapping_LocalIP{LocalIp: ip, LocalPort: 8080, Probability: probability}
}

func ranges(list ...string) *contivnat.SourceRanges {
	return &contivnat.SourceRanges{
		Label: "web", Ranges: list, Frontends: []*contivnat.SourceRanges_Frontend{{Address: "10.96.0.10", Port: 80, Protocol: 6}, {Address: "10.96.0.10", Port: 81, Protocol: 6}},
	}
}

func translated(paths ...string) *cnat.Translation {
	t := &cnat.Translation{Vip: &cnat.Endpoint{Address: "fd00:96::10", Port: 80}}
	for _, p := range paths {
		t.Paths = append(t.Paths, &cnat.Path{Destination: &cnat.Endpoint{Address: p, Port: 8080}})
	}
	return t
}

// TestEnded: the addresses of connections that a change ends, in either renderer's values.
func TestEnded(t *testing.T) {
	behind := mapped(nil, local("10.1.1.7", 1), local("10.1.1.8", 0))
	behind.Label = kv.RestrictedLabel("web", "tcp:80")
	sent := map[string]proto.Message{kv.Key(behind): behind}
	two := mapped(nil, local("10.1.1.2", 1), local("10.1.1.3", 1))
	for _, c := range []struct {
		name     string
		was, now proto.Message
		want     string
	}{
		{"a new mapping", nil, two, "[]"},
		{"an endpoint joins", mapped(nil, local("10.1.1.2", 0)), two, "[]"},
		{"another weight", two, mapped(nil, local("10.1.1.2", 1), local("10.1.1.3", 5)), "[]"},
		{"an endpoint leaves", two, mapped(nil, local("10.1.1.2", 1)), "[10.1.1.3 10.96.0.10]"},
		{"an endpoint drains", two, mapped(nil, local("10.1.1.2", 1), local("10.1.1.3", 0)), "[10.1.1.3 10.96.0.10]"},
		{"a drained endpoint leaves", mapped(nil, local("10.1.1.2", 1), local("10.1.1.3", 0)), mapped(nil, local("10.1.1.2", 1)), "[]"},
		{"the mapping ends", two, nil, "[10.1.1.2 10.1.1.3 10.96.0.10]"},
		{"clients are hidden", two, mapped(func(m *nat.DNat44_StaticMapping) { m.TwiceNat = nat.DNat44_StaticMapping_ENABLED }, two.StMappings[0].LocalIps...), "[10.1.1.2 10.1.1.3 10.96.0.10]"},
		{"of an interface's address", mapped(func(m *nat.DNat44_StaticMapping) { m.ExternalIp, m.ExternalInterface = "", "eth0" }, local("10.1.1.2", 0)), nil, "[invalid IP 10.1.1.2]"},
		{"a path leaves", translated("fd00:1::2", "fd00:1::3"), translated("fd00:1::3"), "[fd00:1::2 fd00:96::10]"},
		{"a path joins", translated("fd00:1::2"), translated("fd00:1::2", "fd00:1::3"), "[]"},
		{"source ranges close", ranges("10.0.0.0/8", "192.0.2.0/24"), ranges("10.0.0.0/9", "192.0.2.0/24"), "[10.1.1.7 10.96.0.10]"},
		{"source ranges close and open", ranges("10.0.0.0/8"), ranges("192.0.2.0/24"), "[10.1.1.7 10.96.0.10]"},
		{"source ranges open", ranges("10.0.0.0/9"), ranges("10.0.0.0/8"), "[]"},
		{"source ranges begin", nil, ranges("10.0.0.0/9"), "[]"},
		{"source ranges end", ranges("10.0.0.0/9"), nil, "[]"},
		{"no translation", &nat.Nat44Interface{Name: "eth0"}, nil, "[]"},
	} {
		got := Ended(c.was, c.now, func(key string) proto.Message { return sent[key] })
		slices.SortFunc(got, netip.Addr.Compare)
		if text := texts(slices.Compact(got)); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

func texts(list []netip.Addr) string {
	out := "["
	for i, a := range list {
		if i > 0 {
			out += " "
		}
		out += a.String()
	}
	return out + "]"
}
