package interim

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// noPods are interfaces without a pod, except pod.
type noPods struct{}

func (noPods) Addrs(iface string) ([]netip.Addr, bool) { return nil, iface == "pod" }
func (noPods) Isolated() lists.Lists                   { return lists.Lists{} }
func (noPods) Node() *dataplane.Node                   { return &dataplane.Node{} }

// An interface without lists has a value only if a pod is behind it; an interim state adds none.
func TestValueWithoutLists(t *testing.T) {
	o := NewOutput(nil, nil, noPods{}, 0, true)
	if o.openWithout("pod", lists.Lists{}, true) {
		t.Error("an interim state opens an interface")
	}
	if !o.openWithout("pod", lists.Lists{}, false) || o.openWithout("uplink", lists.Lists{}, false) {
		t.Error("a pod's interface has no value, or another has one")
	}
	if o.valid = false; o.openWithout("pod", lists.Lists{}, false) {
		t.Error("a value although nobody asks for one")
	}
}

// newShifter is of an output that knows nothing but one table.
func newShifter(old, now *table.Table) *shifter {
	o := NewOutput(nil, nil, noPods{}, 0, true)
	o.acls["t"] = old
	c := &change{tables: map[string]*table.Table{"t": now}}
	return &shifter{o: o, c: c, peers: map[part2]*conflict.Peers{}, found: map[shiftKey]*conflict.Shift{}, users: map[string][]string{}}
}

// effectOfContent is the effect of new rules in a table at an output.
func effectOfContent(old, now *table.Table) (e effect) {
	s := newShifter(old, now)
	s.contentChanges(&conflict.Hook{}, lists.Place{Table: "t"}, true)
	for k := range s.found {
		if len(differing(old, now, k.which)) > 0 {
			e = effect{e.opens || k.opens, e.closes || !k.opens}
		}
	}
	return e
}

// TestATableLosesASource: a table that decides about some sources loses one, with the rule for it. The source's pod may dial no Services any more at
// the same time, so its interface and the output that lets its packets pass need an interim state.
func TestATableLosesASource(t *testing.T) {
	one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	s := newShifter(tableOf("-1 -2"), tableOf("-2"))
	place := func(sources ...netip.Addr) []lists.Place {
		return []lists.Place{{Table: "t", Denies: true, Egress: true, Sources: sources}}
	}
	s.listChanges(&conflict.Hook{Name: "overlay"}, place(one, two), place(two), true)
	for addr, needs := range map[netip.Addr]bool{one: true, netip.MustParseAddr("10.0.0.3"): false} {
		pod := &conflict.Hook{Name: "pod", Addrs: []netip.Addr{addr}, Checked: true}
		closing := &conflict.Shift{Table: "own", Peers: conflict.Everything(), Hooks: []*conflict.Hook{pod}}
		torn := s.world().Torn(append(s.shifts(), closing), nil)
		if torn["overlay"] != needs || torn["pod"] != needs {
			t.Errorf("%s: need an interim state: %v", addr, torn)
		}
	}
}

// effectOfInput is the effect of other lists on packets that enter VPP.
func effectOfInput(old, now lists.Lists) (e effect) {
	s := newShifter(nil, nil)
	s.interfaceChanges("i", old, now)
	for k := range s.found {
		if !k.output {
			e = effect{e.opens || k.opens, e.closes || !k.opens}
		}
	}
	return e
}

// listOf has a place for each word, as in tableOf; "!" denies everything.
func listOf(words string) []lists.Place {
	var out []lists.Place
	for _, w := range strings.Fields(words) {
		if w == "!" {
			out = append(out, lists.Place{Table: table.DenyAll, Denies: true})
			continue
		}
		out = append(out, lists.Place{Table: w[1:], Denies: w[0] == '-'})
	}
	return out
}

// The common part of lists keeps the order of both; denying tables keep their place, and no table occurs twice.
func TestCommonList(t *testing.T) {
	for _, c := range []struct{ old, now, want string }{
		{"+a +b !", "+a +c !", "a " + table.DenyAll},
		{"+a -x +b !", "+a +b -y !", "a x b y " + table.DenyAll},
		{"-x -y !", "-y -x !", "x y " + table.DenyAll},
		{"", "+a !", "a " + table.DenyAll},
		{"+a !", "", "a " + table.DenyAll},
		{"", "", ""},
	} {
		if got := strings.Join(lists.Names(lists.CommonTables(listOf(c.old), listOf(c.now))), " "); got != c.want {
			t.Errorf("%q and %q: %q, want %q", c.old, c.now, got, c.want)
		}
	}
}

// The common part of tables allows what both allow, and denies what either denies.
func TestCommon(t *testing.T) {
	for _, c := range []struct {
		old, now, want string
		effect         effect
	}{
		{"+1 +2", "+2 +3", "+2", effect{true, true}},
		{"+1 +2", "+1 +2 +3", "+1 +2", effect{opens: true}},
		{"+1 +2", "+2", "+2", effect{closes: true}},
		{"-1 -2", "-2 -3", "-2 -3 -1", effect{true, true}},
		{"-1", "-1 -2", "-1 -2", effect{closes: true}},
		{"-1 -2", "-2", "-1 -2", effect{opens: true}},
		{"+1", "-1", "-1", effect{true, true}},
		{"-1", "+1", "-1", effect{true, true}},
		{"+1 -2 +3", "+3 -4", "-2 -4 +3", effect{true, true}},
		{"+1 +1", "+1", "+1", effect{closes: true}},
		{"+5 +1 -2 +6", "+5 +3 -4 +6", "+5 -2 -4 +6", effect{true, true}}, // no rule moves before the common beginning
		{"+5 -7 +1 -8", "+5 -7 +3 +1 -8", "+5 -7 +1 -8", effect{true, true}},
	} {
		old, now := tableOf(c.old), tableOf(c.now)
		if got := words(table.Common(old, now)); got != c.want {
			t.Errorf("%s and %s: %s, want %s", c.old, c.now, got, c.want)
		}
		if got := effectOfContent(old, now); got != c.effect {
			t.Errorf("%s to %s: %+v, want %+v", c.old, c.now, got, c.effect)
		}
	}
	if got := table.Common(tableOf("+1"), tableOf("+2")); len(got.Rules) != 1 || got.Rules[0].Verb != match.Deny {
		t.Errorf("nothing in common: %v", words(got))
	}
}

// tableOf has a rule for each word: "+3" allows 10.0.0.3, "-3" denies it.
func tableOf(words string) *table.Table {
	t := &table.Table{Name: "t"}
	for _, w := range strings.Fields(words) {
		a := match.Atom{Src: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, w[1] - '0'}), 32), Dst: match.V4.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}
		if w[0] == '-' {
			a.Verb = match.Deny
		}
		t.Add(a, &dataplane.Cause{})
	}
	return t
}

func words(t *table.Table) string {
	var out []string
	for _, a := range t.Rules {
		b := a.Src.Addr().As4()
		out = append(out, string([]byte{"+-"[a.Verb], '0' + b[3]}))
	}
	return strings.Join(out, " ")
}

// TestStatesOfAChangedCheck: if addresses and policies change at once, nothing passes during the change that neither state lets pass.
func TestStatesOfAChangedCheck(t *testing.T) {
	old := &lists.Check{From: []netip.Prefix{netip.MustParsePrefix("10.1.1.1/32")}}
	now := &lists.Check{From: []netip.Prefix{netip.MustParsePrefix("10.1.1.2/32")}}
	only, first := lists.Place{Table: table.SourceOnly + "x", SourceCheck: true}, lists.Place{Table: table.SourceFirst + "x", SourceCheck: true}
	rest, all := lists.Place{Table: "rest", Denies: true}, lists.Place{Table: table.PermitEgress}
	outside, before := lists.Place{Table: table.OutsideOnly + table.OverlaySuffix, SourceCheck: true}, lists.Place{Table: table.PermitIngress}
	out := []lists.Place{rest}
	for i, c := range []struct {
		old, now lists.Lists
		want     string
		e        effect
	}{
		{lists.Lists{}, lists.Lists{}, "[]", effect{}},
		{lists.Lists{In: []lists.Place{only}, Check: old}, lists.Lists{In: []lists.Place{first, rest}, Check: old}, "[" + first.Table + " rest]", effect{closes: true}},
		{lists.Lists{In: []lists.Place{only}, Check: old}, lists.Lists{In: []lists.Place{first, rest}, Check: now}, "[deny-all]", effect{true, true}},
		{lists.Lists{In: []lists.Place{only}, Check: old}, lists.Lists{In: []lists.Place{only}, Check: now}, "[" + only.Table + "]", effect{true, true}},
		{lists.Lists{}, lists.Lists{In: []lists.Place{only}, Check: now}, "[" + only.Table + "]", effect{closes: true}},
		{lists.Lists{In: []lists.Place{only}, Check: old}, lists.Lists{}, "[" + only.Table + "]", effect{opens: true}},
		{lists.Lists{In: []lists.Place{only}, Check: old}, lists.Lists{In: []lists.Place{rest}}, "[deny-all]", effect{true, true}},
		{lists.Lists{In: []lists.Place{first, rest}, Check: old}, lists.Lists{In: []lists.Place{rest}}, "[" + first.Table + " rest]", effect{opens: true}},
		// The output keeps its list: only sessions of the input admit answers there.
		{lists.Lists{In: []lists.Place{first, all}, Out: out, Check: old}, lists.Lists{In: []lists.Place{only}, Check: old}, "[" + first.Table + " " + all.Table + "]", effect{}},
		{lists.Lists{In: []lists.Place{before}, Out: out}, lists.Lists{In: []lists.Place{outside}, Check: now}, "[outside-check-overlay " + before.Table + "]", effect{closes: true}},
	} {
		if got := fmt.Sprint(lists.Names(lists.CommonInput(c.old, c.now))); got != c.want {
			t.Errorf("%d: %s, not %s", i, got, c.want)
		}
		if got := effectOfInput(c.old, c.now); got != c.e {
			t.Errorf("%d: effect %+v", i, got)
		}
	}
}
