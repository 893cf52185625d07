package reasons

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
)

// sent are values by key.
type sent map[string]proto.Message

func (s sent) Sent(key string) proto.Message { return s[key] }

func (s sent) Each(f func(string, proto.Message)) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		f(key, s[key])
	}
}

// fronted are interfaces whose first list has the source ranges.
type fronted []string

func (f fronted) Fronted(iface string) bool { return slices.Contains(f, iface) }

// The rules of the source ranges' access list follow the values in the order of their keys: those that permit, then the one that denies.
func TestRanges(t *testing.T) {
	values := sent{}
	for _, name := range []string{"prod/a", "prod/b"} {
		m := &contivnat.SourceRanges{
			Label: name + "@1", Ranges: []string{"192.0.2.0/24"},
			Frontends: []*contivnat.SourceRanges_Frontend{{Address: "203.0.113.7", Port: 80, Protocol: 6}},
		}
		values[kv.Key(m)] = m
	}
	f := &Finder{Values: values, VPPAgent: fronted{"uplink"}}
	seen := map[string]bool{}
	for rule := 0; ; rule++ {
		r, known := f.Explain("uplink", false, 0, rule)
		if !known {
			break
		}
		seen[r.Text] = true
	}
	want := []string{
		"denied: Service prod/a takes clients of 192.0.2.0/24 only at 203.0.113.7:80/TCP",
		"denied: Service prod/b takes clients of 192.0.2.0/24 only at 203.0.113.7:80/TCP",
	}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("reasons %q, want %q", got, want)
	}
	for name, explain := range map[string]func() bool{
		"an interface without the list": func() bool { _, known := f.Explain("tap1", false, 0, 0); return known },
		"the output":                    func() bool { _, known := f.Explain("uplink", true, 0, 0); return known },
		"the next list":                 func() bool { _, known := f.Explain("uplink", false, 1, 0); return known },
		"SCTP": func() bool {
			_, known := f.ExplainSCTP("uplink", false, netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:2"))
			return known
		},
	} {
		if explain() {
			t.Errorf("%s has a reason without policies", name)
		}
	}
}

// places records the places of the lists that are asked for.
type places []int

func (p *places) Explain(_ string, _ bool, place, _ int) (policy.Reason, bool) {
	*p = append(*p, place)
	return policy.Reason{}, true
}

// The list of source ranges is before those of policies, on inputs only.
func TestPlaces(t *testing.T) {
	p := &places{}
	f := &Finder{Values: sent{}, VPPAgent: fronted{"uplink"}, Policies: p}
	f.Explain("uplink", false, 1, 0)
	f.Explain("uplink", true, 1, 0)
	f.Explain("tap1", false, 1, 0)
	if want := (places{0, 1, 1}); !slices.Equal(*p, want) {
		t.Errorf("places %v, want %v", *p, want)
	}
}
