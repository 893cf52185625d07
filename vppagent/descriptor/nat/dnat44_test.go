package nat

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

func backend(i int, weight uint8) local {
	return local{addr: [4]byte{10, 1, 1, byte(i)}, port: 8080, weight: weight}
}

func drawBackends(t *rapid.T, label string) []local {
	var out []local
	for i := range rapid.IntRange(0, 8).Draw(t, label) {
		if rapid.Bool().Draw(t, "in") {
			out = append(out, backend(i, uint8(rapid.IntRange(1, 31).Draw(t, "weight"))))
		}
	}
	return out
}

// slots is the pool in which VPP keeps the locals of a mapping: VPP uses a freed slot next.
type slots struct {
	at   []local
	used []bool
	free []int
}

func newSlots(ls []local) *slots {
	s := &slots{at: slices.Clone(ls), used: make([]bool, len(ls))}
	for i := range s.used {
		s.used[i] = true
	}
	return s
}

func (s *slots) list() (out []local) {
	for i, l := range s.at {
		if s.used[i] {
			out = append(out, l)
		}
	}
	return out
}

// do models nat44_lb_static_mapping_add_del_local with its refusals and crashes.
func (s *slots) do(st step) error {
	i := slices.IndexFunc(s.at, func(l local) bool { return l.sameLocal(st.l) && s.used[slices.Index(s.at, l)] })
	for j, l := range s.at {
		if s.used[j] && l.sameLocal(st.l) {
			i = j
		}
	}
	live := i >= 0 && s.used[i]
	switch {
	case st.add && live:
		return fmt.Errorf("add of %s twice: -81", st.l)
	case st.add && len(s.free) > 0:
		i = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		s.at[i], s.used[i] = st.l, true
	case st.add:
		s.at, s.used = append(s.at, st.l), append(s.used, true)
	case !live:
		return fmt.Errorf("del of absent %s: -6", st.l)
	case len(s.list()) == 2:
		return fmt.Errorf("del of %s with two left: -1", st.l)
	default:
		s.used[i] = false
		s.free = append(s.free, i)
	}
	if n, sum := len(s.list()), weights(s.list()); n > 255 || sum == 0 || sum > 255 {
		return fmt.Errorf("%d locals of weight %d: VPP is dead", n, sum)
	}
	return nil
}

// VPP accepts every step of every change between two lists, each step leaves a backend to choose, and clients pinned to a slot
// end at a backend that lives.
func TestChangeLocals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have := represent(true, drawBackends(t, "have"))
		want := represent(true, drawBackends(t, "want"))
		affinity := rapid.Bool().Draw(t, "affinity")
		steps, ok := changeLocals(have, want, affinity)
		if !ok {
			if !affinity && have[2] != dropPad && want[2] != dropPad && weights(have)+weights(want) <= 255 && len(have) > 3 {
				// Without affinity and with room a path always exists, unless the only backend changes its weight.
				t.Fatalf("no way from %v to %v", have, want)
			}
			return
		}
		vpp := newSlots(have)
		for i, s := range steps {
			if err := vpp.do(s); err != nil {
				t.Fatalf("step %d of %v: %v\nfrom %v to %v", i, steps, err, have, want)
			}
		}
		got := vpp.list()
		slices.SortFunc(got, compareLocals)
		slices.SortFunc(want, compareLocals)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		for i, l := range vpp.at { // clients pinned to slot i of a real backend
			if affinity && i < len(have) && have[i].weight > 0 && !slices.Contains(want, l) {
				t.Fatalf("slot %d still points to %s after %v\nfrom %v to %v", i, l, steps, have, want)
			}
		}
	})
}

func TestChangeLocalsSteps(t *testing.T) {
	a, b, c := backend(1, 1), backend(2, 1), backend(3, 1)
	heavy := backend(1, 2)
	for _, tc := range []struct {
		name       string
		have, want []local
		affinity   bool
		steps      string
	}{
		{"one more", []local{a}, []local{a, b}, false, "+2"},
		{"one less", []local{a, b}, []local{a}, false, "-2"},
		{"replaced: add first", []local{a, b}, []local{a, c}, false, "+3 -2"},
		{"replaced with affinity: the new one takes over the slot", []local{a, b}, []local{a, c}, true, "-2 +3"},
		{"one less with affinity: one that stays takes over the slot", []local{a, b, c}, []local{a, b}, true, "-2 -3 +2"},
		{"two to one with affinity: nobody could be chosen meanwhile", []local{a, b}, []local{a}, true, "recreate"},
		{"weight", []local{a, b}, []local{heavy, b}, false, "-1 +1"},
		{"weight of the only one", []local{a}, []local{heavy}, false, "recreate"},
		{"none left", []local{a}, nil, false, "+drop -1"},
		{"from none", nil, []local{a}, false, "+1 -drop"},
		{"nothing", []local{a, b}, []local{a, b}, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			steps, ok := changeLocals(represent(true, tc.have), represent(true, tc.want), tc.affinity)
			got := "recreate"
			if ok {
				var words []string
				for _, s := range steps {
					name := fmt.Sprint(s.l.addr[3])
					if s.l == dropPad {
						name = "drop"
					}
					words = append(words, map[bool]string{true: "+", false: "-"}[s.add]+name)
				}
				got = strings.Join(words, " ")
			}
			if got != tc.steps {
				t.Errorf("got %q, want %q", got, tc.steps)
			}
		})
	}
}

func TestRepresentWithoutPads(t *testing.T) {
	a, b := backend(1, 3), backend(2, 1)
	alone := a
	alone.weight = 1
	for _, tc := range []struct{ in, out []local }{
		{nil, []local{dropPad, dropPad}},
		{[]local{a}, []local{alone, alone}},
		{[]local{a, b}, []local{a, b}},
	} {
		if diff := cmp.Diff(tc.out, represent(false, tc.in), cmp.AllowUnexported(local{})); diff != "" {
			t.Error(diff)
		}
	}
	// From one to two, and back: VPP accepts a duplicate local only in a create message.
	if steps, ok := changeLocals(represent(false, []local{a}), represent(false, []local{a, b}), false); ok {
		t.Errorf("weight 1 twice to weight 3 once: %v", steps)
	}
	if steps, ok := changeLocals(represent(false, []local{alone}), represent(false, []local{alone, b}), false); !ok || len(steps) != 2 {
		t.Errorf("A,A to A,B: %v %t", steps, ok)
	}
	if steps, ok := changeLocals(represent(false, []local{a, b}), represent(false, []local{a}), false); ok {
		t.Errorf("A,B to A,A: %v", steps)
	}
}

func TestCompileDNat44(t *testing.T) {
	mapping := func(change func(*nat.DNat44_StaticMapping)) *nat.DNat44 {
		m := &nat.DNat44_StaticMapping{
			ExternalIp: "10.96.0.1", ExternalPort: 80,
			LocalIps: []*nat.DNat44_StaticMapping_LocalIP{{LocalIp: "10.1.1.1", LocalPort: 8080}, {LocalIp: "10.1.1.2", LocalPort: 8080}},
		}
		change(m)
		return &nat.DNat44{Label: "x", StMappings: []*nat.DNat44_StaticMapping{m}}
	}
	many := func(n int, weight uint32) *nat.DNat44 {
		return mapping(func(m *nat.DNat44_StaticMapping) {
			m.LocalIps = nil
			for i := range n {
				m.LocalIps = append(m.LocalIps, &nat.DNat44_StaticMapping_LocalIP{LocalIp: fmt.Sprintf("10.1.%d.%d", i>>8, i&255), LocalPort: 1, Probability: weight})
			}
		})
	}
	for _, tc := range []struct {
		name string
		m    *nat.DNat44
		err  string // "": none
	}{
		{"good", mapping(func(*nat.DNat44_StaticMapping) {}), ""},
		{"no label", &nat.DNat44{}, "label: empty"},
		{"253 backends", many(253, 0), ""},
		{"254 backends", many(254, 0), "local_ips: 254 backends, VPP takes at most 253"},
		{"weights", many(2, 128), "add up to 256"},
		{"weight", many(1, 256), "local_ips[0].probability: 256 is above 255"},
		{"IPv6", mapping(func(m *nat.DNat44_StaticMapping) { m.ExternalIp = "2001:db8::1" }), "st_mappings[0].external_ip"},
		{"IPv6 backend", mapping(func(m *nat.DNat44_StaticMapping) { m.LocalIps[1].LocalIp = "::1" }), "local_ips[1].local_ip"},
		{"port", mapping(func(m *nat.DNat44_StaticMapping) { m.ExternalPort = 65536 }), "external_port: 65536"},
		{"ICMP", mapping(func(m *nat.DNat44_StaticMapping) { m.Protocol = nat.DNat44_ICMP }), "protocol: ICMP"},
		{"SCTP", mapping(func(m *nat.DNat44_StaticMapping) { m.Protocol = 132 }), "protocol: unknown 132"},
		{"interface", mapping(func(m *nat.DNat44_StaticMapping) { m.ExternalInterface = "tap" }), "external_interface"},
		{"twice", mapping(func(m *nat.DNat44_StaticMapping) { m.LocalIps[1].LocalIp = "10.1.1.1" }), "10.1.1.1:8080 twice"},
		{"address only, two", mapping(func(m *nat.DNat44_StaticMapping) { m.ExternalPort = 0 }), "exactly 1"},
		{"address only, twice-nat", mapping(func(m *nat.DNat44_StaticMapping) {
			m.ExternalPort, m.LocalIps, m.TwiceNat = 0, m.LocalIps[:1], nat.DNat44_StaticMapping_SELF
		}), "twice_nat"},
		{"pool", mapping(func(m *nat.DNat44_StaticMapping) { m.TwiceNatPoolIp = "10.0.0.1" }), "twice_nat_pool_ip"},
		{"same mapping twice", func() *nat.DNat44 {
			d := mapping(func(*nat.DNat44_StaticMapping) {})
			d.StMappings = append(d.StMappings, d.StMappings[0])
			return d
		}(), "tcp 10.96.0.1:80 twice"},
		{"identity of nothing", &nat.DNat44{Label: "x", IdMappings: []*nat.DNat44_IdentityMapping{{}}}, "id_mappings[0].ip_address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := compileDNat("key", tc.m)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
}

func TestTags(t *testing.T) {
	for _, name := range []string{"default/web", strings.Repeat("a", 253) + "/" + strings.Repeat("b", 253), "#x", ""} {
		tag := descriptor.NewTag("n", descriptor.Fingerprint("affinity 10"), name)
		if len(tag) > descriptor.MaxTag {
			t.Errorf("%q is %d bytes long", tag, len(tag))
		}
		print, got, ok := descriptor.ParseTag(tag, "n", true)
		if !ok || print != descriptor.Fingerprint("affinity 10") || got != name && got != descriptor.HashedName(name) {
			t.Errorf("%q parses as %q %q %t", tag, print, got, ok)
		}
	}
	for _, foreign := range []string{"", "web", "ca1", "ca1:", "ca1:i:web", "ca2:n:-:web"} {
		if _, _, ok := descriptor.ParseTag(foreign, "n", true); ok {
			t.Errorf("%q is taken for ours", foreign)
		}
	}
	if descriptor.Fingerprint("affinity 10") == descriptor.Fingerprint("affinity 11") || descriptor.Fingerprint("") != "-" {
		t.Error("fingerprints say nothing")
	}
}
