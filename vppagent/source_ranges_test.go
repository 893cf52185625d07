package vppagent_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// ranged is source ranges of a Service at an address, of port 80 if none are given.
func ranged(service, vip string, ranges []string, ports ...uint32) *contivnat.SourceRanges {
	m := &contivnat.SourceRanges{Label: service, Ranges: ranges}
	if len(ports) == 0 {
		ports = []uint32{80}
	}
	for _, p := range ports {
		m.Frontends = append(m.Frontends, &contivnat.SourceRanges_Frontend{Address: vip, Port: p, Protocol: 6})
	}
	return m
}

// office is ranges for 198.51.100.9:80.
func office(ranges ...string) *contivnat.SourceRanges {
	return ranged("default/web", "198.51.100.9", ranges)
}

func restricted(service, vip string, port uint32, backends ...string) *nat.DNat44 {
	return dnat(kv.RestrictedLabel(service, fmt.Sprintf("tcp:%d", port)), vip, port, backends...)
}

func rangesLaws(host proto.Message, list proto.Message) []law {
	needs := []proto.Message{host, &nat.Nat44Global{Forwarding: true}, &nat.Nat44Interface{Name: "host", NatInside: true, NatOutside: true}}
	twice := &nat.Nat44AddressPool{VrfId: ^uint32(0), FirstIp: "10.1.1.254", TwiceNat: true}
	return []law{
		{kind: "acl-source-ranges", needs: needs, one: office("198.18.0.0/15"), two: office("10.0.0.0/8", "192.168.0.0/24")},
		{kind: "acl-permit", needs: needs, one: office("198.18.0.0/15"), two: office()},
		{kind: "source-ranges-enforced", needs: needs, one: office("198.18.0.0/15"), two: office("198.18.0.0/16")},
		{kind: "source-ranges", needs: append(slices.Clone(needs), list), one: office("198.18.0.0/15"), two: office("198.18.0.0/16")},
		{
			kind: "dnat44", needs: append(slices.Clone(needs), twice, office("198.18.0.0/15")),
			one: restricted("default/web", "198.51.100.9", 80, "10.1.1.1:80"), two: restricted("default/web", "198.51.100.9", 80, "10.1.1.2:80"),
		},
	}
}

// among returns the index of a request that holds both texts; it fails if none does.
func among(t *testing.T, requests []string, texts ...string) (first, last int) {
	t.Helper()
	first = -1
	for i, r := range requests {
		if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(r, s) }) {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		t.Fatalf("no request with %q among\n%s", texts, strings.Join(requests, "\n"))
	}
	return first, last
}

// Everything in one transaction: rules, lists, then the mapping; and back.
func TestRestrictedMappingComesLastAndGoesFirst(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	addPod(l, "tap2", "10.1.1.3")
	l.put(append(node(), &nat.Nat44Interface{Name: "tap2", NatInside: true, NatOutside: true})...)
	before := l.sim.Dump()
	l.writes()
	mapping := restricted("default/web", "198.51.100.9", 80, "10.1.1.2:80")
	l.allConfigured(l.put(mapping, office("198.18.0.0/15")))
	w := l.writes()
	made, _ := among(t, w, "nat44_add_del_lb_static_mapping")
	if _, listed := among(t, w, "acl_interface_set_acl_list"); listed > made || made != len(w)-1 {
		t.Errorf("the mapping is not last:\n%s", strings.Join(w, "\n"))
	}
	l.allConfigured(l.put(office("198.18.0.0/16")))
	if w := l.writes(); len(w) != 1 || !strings.Contains(w[0], "acl_add_replace") {
		t.Errorf("other ranges:\n%s", strings.Join(w, "\n"))
	}
	l.restartAgent()
	l.allConfigured(l.resync())
	l.quiet("restart")
	l.allConfigured(l.del(kv.Key(mapping), kv.Key(office())))
	w = l.writes()
	if gone, _ := among(t, w, "nat44_add_del_lb_static_mapping"); gone != 0 {
		t.Errorf("the mapping does not go first:\n%s", strings.Join(w, "\n"))
	}
	if got := l.sim.Dump(); got != before {
		t.Errorf("left:\n%s\nbefore\n%s", got, before)
	}
}

// An agent that starts after the removal of the Service removes the mapping first, too.
func TestRestrictedMappingGoesFirstAfterARestart(t *testing.T) {
	for _, other := range []bool{false, true} { // other ranges stay
		l := newLab(t, vppagent.Config{})
		addPod(l, "tap1", "10.1.1.2")
		mapping := restricted("default/web", "198.51.100.9", 80, "10.1.1.2:80")
		l.put(append(node(), mapping, office("198.18.0.0/15"))...)
		if other {
			l.put(ranged("default/other", "198.51.100.7", nil))
		}
		delete(l.want, kv.Key(mapping))
		delete(l.want, kv.Key(office()))
		l.restartAgent()
		l.writes()
		l.allConfigured(l.resync())
		w := l.writes()
		if gone, _ := among(t, w, "nat44_add_del_lb_static_mapping"); gone != 0 || len(w) < 2 {
			t.Errorf("the mapping does not go first:\n%s", strings.Join(w, "\n"))
		}
	}
}

// Policies apply behind source ranges, which do not make up for a list that cannot be had.
func TestSourceRangesBesidePolicies(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	addPod(l, "tap2", "10.1.1.3")
	deny := accessList("web", rule(acl.ACL_Rule_DENY, "", "", ""))
	l.allConfigured(l.put(append(node(), deny, &contivacl.InterfaceACLs{Interface: "tap1", Input: []string{"web"}, Output: []string{"web"}}, office("198.18.0.0/15"))...))
	if dump := l.sim.Dump(); strings.Contains(dump, "ca1:p:all") || strings.Count(dump, "ca1:s:") != 2 {
		t.Errorf("not in front of the list that is there:\n%s", dump)
	}
	l.allConfigured(l.del(kv.InterfaceACLsKey("tap1")))
	if dump := l.sim.Dump(); !strings.Contains(dump, "ca1:p:all") || strings.Count(dump, "acl-list tap1 input") != 1 {
		t.Errorf("not alone:\n%s", dump)
	}
}

// A refusal of source ranges keeps restricted mappings out, and affects no other value.
func TestSourceRangesVPPRefuses(t *testing.T) {
	for _, message := range []string{"acl_add_replace", "acl_interface_set_acl_list"} {
		now := time.Unix(0, 0)
		l := newLab(t, vppagent.Config{Now: func() time.Time { return now }})
		addPod(l, "tap1", "10.1.1.2")
		l.put(node()...)
		l.sim.Fail(func(name string) (int32, bool) {
			if name == message {
				return -1, false
			}
			return 0, false
		})
		l.put(restricted("default/web", "198.51.100.9", 80, "10.1.1.2:80"), office("198.18.0.0/15"), dnat("default/web", "10.96.0.9", 80, "10.1.1.2:80"))
		addPod(l, "tap2", "10.1.1.3")
		c := l.agent.Interfaces(t.Context())
		l.put(&nat.Nat44Interface{Name: "tap2", NatInside: true, NatOutside: true})
		dump := l.sim.Dump()
		if strings.Contains(dump, "198.51.100.9") && strings.Contains(dump, "lb TCP 198.51.100.9") {
			t.Errorf("%s refused: the mapping is there:\n%s", message, dump)
		}
		if !strings.Contains(dump, "10.96.0.9") || message == "acl_add_replace" && strings.Contains(dump, "acl-list") {
			t.Errorf("%s refused: others suffer:\n%s\n%s", message, dump, statuses(c))
		}
		l.sim.Fail(nil)
		for range 5 {
			now = now.Add(time.Hour)
			l.agent.Retry(t.Context())
		}
		l.allConfigured(l.resync())
		if dump := l.sim.Dump(); !strings.Contains(dump, "198.51.100.9:80") {
			t.Errorf("%s was refused: the mapping is not there:\n%s", message, dump)
		}
	}
}

var tapAddrs = map[string]string{"tap1": "10.1.1.2", "tap2": "10.1.1.3", "tap3": "10.1.1.4"} // by interface

// A mapping that VPP refuses to remove keeps its rules, and the lists with them, whatever else changes meanwhile.
func TestRulesStayWhileTheMappingDoes(t *testing.T) {
	now := time.Unix(0, 0)
	l := newLab(t, vppagent.Config{Now: func() time.Time { return now }})
	addPod(l, "tap1", "10.1.1.2")
	mapping := restricted("default/web", "198.51.100.9", 80, "10.1.1.2:80")
	l.allConfigured(l.put(append(node(), mapping, office("198.18.0.0/15"), ranged("default/other", "198.51.100.7", nil))...))
	l.sim.Fail(func(name string) (int32, bool) {
		if name == "nat44_add_del_lb_static_mapping" {
			return -1, false
		}
		return 0, false
	})
	guarded := func(when string) {
		t.Helper()
		if dump := l.sim.Dump(); !strings.Contains(dump, "-> 198.51.100.9/32 dport 80") || !strings.Contains(dump, "acl-list tap1 input \"ca1:s:") {
			t.Fatalf("%s:\n%s", when, dump)
		}
	}
	l.del(kv.Key(mapping), kv.Key(office()))
	guarded("the service goes")
	l.put(ranged("default/other", "198.51.100.7", []string{"10.0.0.0/8"}))
	guarded("another one changes")
	l.del(kv.SourceRangesKey("default/other"))
	guarded("there are no ranges any more")
	l.put(accessList("web", rule(acl.ACL_Rule_PERMIT, "", "", "")), &contivacl.InterfaceACLs{Interface: "tap1", Input: []string{"web"}})
	guarded("policies come")
	l.sim.Fail(nil)
	for range 5 {
		now = now.Add(time.Hour)
		l.agent.Retry(t.Context())
	}
	l.allConfigured(l.resync())
	if dump := l.sim.Dump(); strings.Contains(dump, "198.51.100.9") || strings.Contains(dump, "ca1:s:") {
		t.Errorf("in the end:\n%s", dump)
	}
}

// Two copies of the ACL exist, and neither equals the desired state: the copy in the lists stays there, because the other may lack rules.
func TestListsKeepTheCopyTheyHave(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	reflects, denies := rule(acl.ACL_Rule_REFLECT, "tcp", "", "", 80, 80), rule(acl.ACL_Rule_DENY, "tcp", "", "", 80, 80)
	web := func(r *acl.ACL_Rule) proto.Message { return accessList("web", r) }
	l.allConfigured(l.put(append(node(), web(denies), &contivacl.InterfaceACLs{Interface: "tap1", Input: []string{"web"}}, ranged("default/other", "198.51.100.7", nil))...))
	refuse := func(message string, only int) { // the request with that number, or all
		n := 0
		l.sim.Fail(func(name string) (int32, bool) {
			if name != message {
				return 0, false
			}
			if n++; only == 0 || n == only {
				return -1, false
			}
			return 0, false
		})
	}
	front := func() string {
		_, rest, _ := strings.Cut(l.sim.Dump(), "acl-list tap1 input ")
		tag, _, _ := strings.Cut(rest, " ")
		return tag
	}
	refuse("acl_del", 0)
	l.put(web(reflects), ranged("default/other", "198.51.100.7", []string{"10.0.0.0/8"}), office("198.18.0.0/15"), restricted("default/web", "198.51.100.9", 80, "10.1.1.2:80"))
	had := front()
	if !strings.Contains(had, "ca1:s:") || strings.Count(l.sim.Dump(), "acl \"ca1:s:") != 2 {
		t.Fatalf("no second copy:\n%s", l.sim.Dump())
	}
	refuse("acl_add_replace", 1)
	l.put(web(denies), ranged("default/other", "198.51.100.7", []string{"10.0.0.0/9"}))
	if got := front(); got != had {
		t.Errorf("%s instead of %s is in front:\n%s\n%s", got, had, l.sim.Dump(), strings.Join(l.writes(), "\n"))
	}
	l.sim.Fail(nil)
	l.resync()
	l.allConfigured(l.resync())
}

const outsider = "203.0.113.9" // never in a range

// walker changes an agent at random, and checks after every message to VPP whether an outsider is translated.
type walker struct {
	*lab
	rng    *rand.Rand
	now    time.Time
	taps   []string
	passed []string
	faults bool
}

var backends = netip.MustParsePrefix("10.1.1.0/24")

func outs(f sim.Fate) (list []sim.Packet) {
	for _, o := range f.Out {
		list = append(list, o.Packet)
	}
	return list
}

func (w *walker) look(r sim.Record) {
	mark := w.sim.Snapshot()
	for _, tap := range w.taps {
		for _, vip := range []string{"198.51.100.1", "198.51.100.2"} {
			for _, port := range []uint16{80, 81} {
				fate := w.sim.Send(tap, sim.Packet{Src: netip.MustParseAddr(outsider), Dst: netip.MustParseAddr(vip), Proto: 6, SrcPort: 4000, DstPort: port, TCPFlags: 2})
				for _, p := range append(outs(fate), fate.Last) {
					if backends.Contains(p.Dst) {
						w.passed = append(w.passed, fmt.Sprintf("%s:%d from %s becomes %v after %s", vip, port, tap, &p, r.String()))
					}
				}
			}
		}
	}
	w.sim.Restore(mark)
	w.sim.Release()
}

func (w *walker) change() {
	service := func() (string, string) {
		n := 1 + w.rng.IntN(2)
		return fmt.Sprintf("default/s%d", n), fmt.Sprintf("198.51.100.%d", n)
	}
	tap := w.taps[w.rng.IntN(len(w.taps))]
	values := map[string]proto.Message{}
	put := func(m proto.Message) { values[kv.Key(m)] = m }
	for range 1 + w.rng.IntN(3) {
		switch w.rng.IntN(7) {
		case 0, 1:
			name, vip := service()
			ports := []uint32{80, 81}[w.rng.IntN(2):]
			sets := [][]string{{"198.18.0.0/15"}, {"10.0.0.0/8"}, {"192.168.0.0/16", "10.1.1.0/24"}, nil}
			put(ranged(name, vip, sets[w.rng.IntN(len(sets))], ports...))
			for _, p := range []uint32{80, 81} {
				m := restricted(name, vip, p, "10.1.1.2:80", fmt.Sprintf("10.1.1.%d:80", 3+w.rng.IntN(2)))
				if values[kv.Key(m)] = nil; slices.Contains(ports, p) {
					put(m)
				}
			}
		case 2:
			name, vip := service()
			values[kv.SourceRangesKey(name)] = nil
			for _, p := range []uint32{80, 81} {
				values[kv.Key(restricted(name, vip, p))] = nil
			}
		case 3:
			m := &nat.Nat44Interface{Name: tap, NatInside: true, NatOutside: true}
			if values[kv.Key(m)] = nil; w.rng.IntN(3) > 0 {
				put(m)
			}
		case 4:
			put(accessList("web", rule(acl.ACL_Rule_REFLECT, "tcp", "", "", uint32(w.rng.IntN(3)), 1000), rule(acl.ACL_Rule_PERMIT, "", "", "")))
		case 5:
			m := &contivacl.InterfaceACLs{Interface: tap, Input: []string{"web"}, Output: []string{"web"}[w.rng.IntN(2):]}
			if values[kv.Key(m)] = nil; w.rng.IntN(2) > 0 {
				put(m)
			}
		case 6:
			w.sim.RemoveInterface(tap)
			w.agent.Interfaces(w.t.(*testing.T).Context())
			addPod(w.lab, tap, tapAddrs[tap])
			w.agent.Interfaces(w.t.(*testing.T).Context())
		}
	}
	w.commit(values)
}

func (w *walker) step() {
	switch w.rng.IntN(12) {
	case 0:
		w.restartAgent()
		w.resync()
	case 1:
		w.restartVPP()
		w.resync()
	case 2:
		w.resync()
	case 3, 4:
		w.now = w.now.Add(time.Hour)
		w.agent.Retry(w.t.(*testing.T).Context())
	default:
		w.change()
	}
}

func walkRanges(t *testing.T, seed uint64, faults, slow bool) {
	w := &walker{rng: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(0, 0), taps: []string{"tap1", "tap2", "tap3"}, faults: faults}
	w.lab = newLab(t, vppagent.Config{Now: func() time.Time { return w.now }, Journal: filepath.Join(t.TempDir(), "journal")})
	w.slow = slow
	for _, tap := range w.taps {
		addPod(w.lab, tap, tapAddrs[tap])
	}
	w.put(append(node(), accessList("web", rule(acl.ACL_Rule_PERMIT, "", "", "")))...)
	w.sim.After(w.look)
	defer w.sim.After(nil)
	for n := range 25 {
		if faults {
			w.sim.Fail(func(name string) (int32, bool) {
				changes := strings.Contains(name, "add") || strings.Contains(name, "set_acl") || strings.HasPrefix(name, "acl_del")
				if changes && w.rng.IntN(8) == 0 {
					return -1, false
				}
				return 0, false
			})
		}
		if w.step(); len(w.passed) > 0 {
			t.Fatalf("seed %d step %d: %s", seed, n, w.passed[0])
		}
	}
	w.sim.Fail(nil)
	w.resync()
	for range 6 {
		w.now = w.now.Add(time.Hour)
		w.agent.Retry(t.Context())
	}
	c := w.resync()
	for _, s := range c.Statuses {
		if s.State == event.Retrying {
			t.Fatalf("seed %d: in the end:\n%s", seed, statuses(c))
		}
	}
	w.writes()
	w.resync()
	w.quiet(fmt.Sprintf("seed %d: resync in the end", seed))
}

// TestNoOutsiderGetsThrough changes ranges, mappings, lists, interfaces and roles at random, with fresh agents and VPPs.
func TestNoOutsiderGetsThrough(t *testing.T) {
	for seed := range uint64(6) {
		walkRanges(t, seed, false, false)
		walkRanges(t, seed, false, true)
	}
}

// TestNoOutsiderGetsThroughWithRefusals is the same while VPP refuses every eighth request.
func TestNoOutsiderGetsThroughWithRefusals(t *testing.T) {
	seeds := []uint64{1002, 1041, 1, 2, 3, 4, 5, 6} // the first ones have found a hole, once
	for _, seed := range seeds[:pace.Fewer(len(seeds), 4)] {
		walkRanges(t, seed, true, false)
		walkRanges(t, seed, true, true)
	}
}
