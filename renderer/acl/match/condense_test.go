package match

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

type table struct {
	Condenser
	rules  []Atom
	causes []*dataplane.Cause
}

func (t *table) add(a Atom, c *dataplane.Cause) {
	t.rules, t.causes = append(t.rules, a), append(t.causes, c)
}

func (t *table) condensed() ([]Atom, []int32) { return t.Condense(t.rules, t.causes) }

// TestCondensedIsExact: a condensed table matches what the table matches, packet by packet, and each of its rules leads back to one of the
// same cause.
func TestCondensedIsExact(t *testing.T) {
	joinedSome := false
	rapid.Check(t, func(r *rapid.T) {
		tab := &table{Condenser: Condenser{rapid.Bool().Draw(r, "egress"), rapid.Bool().Draw(r, "join6")}}
		base := [2]netip.Addr{netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("fd00::")}[rapid.IntRange(0, 1).Draw(r, "family")]
		causes := []*dataplane.Cause{{Rule: 1}, {Rule: 2}}
		verbs := []Verb{Allow}
		if rapid.IntRange(0, 9).Draw(r, "mixed") == 0 {
			verbs = append(verbs, Deny)
		}
		for range CondenseFrom + 20 {
			bits := rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2}).Draw(r, "bits")
			p, _ := neighbour(base, rapid.IntRange(0, 63).Draw(r, "host")).Prefix(base.BitLen() - bits)
			port := uint16(rapid.SampledFrom([]int{80, 81}).Draw(r, "port"))
			a := Atom{Verb: rapid.SampledFrom(verbs).Draw(r, "verb"), Proto: TCP, SrcPorts: AllPorts, DstPorts: Span{Lo: port, Hi: port}, Src: FamilyOf(base).All(), Dst: FamilyOf(base).All()}
			*tab.peerOf(&a) = p
			tab.add(a, rapid.SampledFrom(causes).Draw(r, "cause"))
		}
		rules, from := tab.condensed()
		if from == nil {
			if !slices.Equal(rules, tab.rules) {
				r.Fatal("other rules, and nothing says which")
			}
			return
		}
		joinedSome = true
		for i, a := range rules {
			if of := tab.rules[from[i]]; !tab.peerOf(&a).Contains(tab.peerOf(&of).Addr()) || of.DstPorts != a.DstPorts || of.Verb != a.Verb {
				r.Fatalf("%v leads back to %v", a, of)
			}
			if !tab.Join6 && tab.peerOf(&a).Bits() < base.BitLen()-2 && base.Is6() {
				r.Fatalf("%v though IPv6 is not to be joined", a)
			}
		}
		for host := range 64 {
			for _, port := range []uint16{80, 81} {
				if got, want := matchOf(tab, rules, neighbour(base, host), port), matchOf(tab, tab.rules, neighbour(base, host), port); got != want {
					r.Fatalf("host %d port %d: %s, want %s", host, port, got, want)
				}
			}
		}
	})
	if !joinedSome {
		t.Error("nothing was ever joined")
	}
}

func neighbour(base netip.Addr, n int) netip.Addr {
	b := base.AsSlice()
	b[len(b)-1] += byte(n)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func matchOf(t *table, rules []Atom, peer netip.Addr, port uint16) string {
	for _, a := range rules {
		if t.peerOf(&a).Contains(peer) && a.DstPorts.Lo <= port && port <= a.DstPorts.Hi {
			return fmt.Sprint(a.Verb)
		}
	}
	return "none"
}

// TestDenseSetIsShort: the pods of whole nodes are a few prefixes, and a small table keeps each member.
func TestDenseSetIsShort(t *testing.T) {
	dense := &table{}
	for i := range 110 {
		a := Atom{Verb: Allow, Src: netip.PrefixFrom(neighbour(netip.MustParseAddr("10.0.0.2"), i), 32), Dst: V4.All(), SrcPorts: AllPorts, DstPorts: AllPorts}
		dense.add(a, nil)
	}
	if rules, _ := dense.condensed(); len(rules) != 7 { // 2/31 4/30 8/29 16/28 32/27 64/27 96/28
		t.Errorf("110 pods are %d rules", len(rules))
	}
	small := &table{rules: dense.rules[:CondenseFrom-1], causes: dense.causes[:CondenseFrom-1]}
	if rules, from := small.condensed(); len(rules) != CondenseFrom-1 || from != nil {
		t.Errorf("%d rules of a small table", len(rules))
	}
}
