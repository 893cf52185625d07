package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// TestCondensedIsExact: a condensed table matches what the table matches, packet by packet, and each of its rules leads back to one of the
// same cause.
func TestCondensedIsExact(t *testing.T) {
	joinedSome := false
	rapid.Check(t, func(r *rapid.T) {
		tab := &table{egress: rapid.Bool().Draw(r, "egress"), join6: rapid.Bool().Draw(r, "join6")}
		base := [2]netip.Addr{netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("fd00::")}[rapid.IntRange(0, 1).Draw(r, "family")]
		causes := []*dataplane.Cause{{Rule: 1}, {Rule: 2}}
		verbs := []match.Verb{match.Allow}
		if rapid.IntRange(0, 9).Draw(r, "mixed") == 0 {
			verbs = append(verbs, match.Deny)
		}
		for range condenseFrom + 20 {
			bits := rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2}).Draw(r, "bits")
			p, _ := neighbour(base, rapid.IntRange(0, 63).Draw(r, "host")).Prefix(base.BitLen() - bits)
			port := uint16(rapid.SampledFrom([]int{80, 81}).Draw(r, "port"))
			a := match.Atom{Verb: rapid.SampledFrom(verbs).Draw(r, "verb"), Proto: match.TCP, SrcPorts: match.AllPorts, DstPorts: match.Span{Lo: port, Hi: port}, Src: match.FamilyOf(base).All(), Dst: match.FamilyOf(base).All()}
			*tab.peer(&a) = p
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
			if of := tab.rules[from[i]]; !tab.peer(&a).Contains(tab.peer(&of).Addr()) || of.DstPorts != a.DstPorts || of.Verb != a.Verb {
				r.Fatalf("%v leads back to %v", a, of)
			}
			if !tab.join6 && tab.peer(&a).Bits() < base.BitLen()-2 && base.Is6() {
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

func matchOf(t *table, rules []match.Atom, peer netip.Addr, port uint16) string {
	for _, a := range rules {
		if t.peer(&a).Contains(peer) && a.DstPorts.Lo <= port && port <= a.DstPorts.Hi {
			return fmt.Sprint(a.Verb)
		}
	}
	return "none"
}

// TestDenseSetIsShort: the pods of whole nodes are a few prefixes, and a small table keeps each member.
func TestDenseSetIsShort(t *testing.T) {
	dense := &table{}
	for i := range 110 {
		a := match.Atom{Verb: match.Allow, Src: netip.PrefixFrom(neighbour(netip.MustParseAddr("10.0.0.2"), i), 32), Dst: match.V4.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}
		dense.add(a, nil)
	}
	if rules, _ := dense.condensed(); len(rules) != 7 { // 2/31 4/30 8/29 16/28 32/27 64/27 96/28
		t.Errorf("110 pods are %d rules", len(rules))
	}
	small := &table{rules: dense.rules[:condenseFrom-1], causes: dense.causes[:condenseFrom-1]}
	if rules, from := small.condensed(); len(rules) != condenseFrom-1 || from != nil {
		t.Errorf("%d rules of a small table", len(rules))
	}
}
