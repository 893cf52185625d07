package table

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
)

func peerRule(n int) match.Atom {
	a := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n / 6 >> 8), byte(n / 6), 1}), 32)
	return match.Atom{
		Verb: []match.Verb{match.Allow, match.Deny}[n%2], Src: a, Dst: netip.MustParsePrefix("10.1.1.2/32"), Proto: []uint8{0, match.TCP, match.UDP}[n%3],
		SrcPorts: match.Span{Hi: 65535}, DstPorts: match.Span{Lo: 80, Hi: 80},
	}
}

// A table that is written after another one has the same rules as one that is written alone.
func TestRulesDoNotDependOnThoseBefore(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for range 300 {
		var numbers []int
		for range r.IntN(60) {
			numbers = append(numbers, r.IntN(90))
		}
		served := law.NewPorts([]match.Span{{Lo: 40000, Hi: 40000}}, nil)
		if r.IntN(2) == 0 {
			served = nil
		}
		var old *Table
		for range 4 {
			now := &Table{Name: "t", Egress: false}
			for _, n := range numbers {
				now.Rules, now.Causes = append(now.Rules, peerRule(n)), append(now.Causes, nil)
			}
			alone := &Table{Name: now.Name, Rules: now.Rules, Causes: now.Causes}
			got, want := now.Value(old, served), alone.Value(nil, served)
			if !proto.Equal(got, want) {
				t.Fatalf("%v after another table:\n%v, want\n%v", numbers, got, want)
			}
			for i := range got.Rules {
				a, okA := now.RuleOf(i, served)
				b, okB := alone.RuleOf(i, served)
				if a != b || okA != okB {
					t.Fatalf("rule %d is of %d (%t), want %d (%t)", i, a, okA, b, okB)
				}
			}
			old = now
			for range r.IntN(6) {
				if at := r.IntN(len(numbers) + 1); at < len(numbers) && r.IntN(2) == 0 {
					numbers = slices.Delete(slices.Clone(numbers), at, min(len(numbers), at+1+r.IntN(20)))
				} else {
					numbers = slices.Insert(slices.Clone(numbers), at, r.IntN(90))
				}
			}
		}
	}
}

// Of a table in which one rule is replaced at either end, all others keep their pointers.
func TestSameRulesKeepPointers(t *testing.T) {
	var old, now Table
	for i := range 100 {
		old.Rules, old.Causes = append(old.Rules, peerRule(i)), append(old.Causes, nil)
		if i == 1 || i == 97 {
			continue
		}
		now.Rules, now.Causes = append(now.Rules, peerRule(i)), append(now.Causes, nil)
		if i == 2 || i == 95 {
			now.Rules, now.Causes = append(now.Rules, peerRule(1000+i)), append(now.Causes, nil)
		}
	}
	before := old.Value(nil, nil).Rules
	fresh := 0
	for _, r := range now.Value(&old, nil).Rules {
		if !slices.Contains(before, r) {
			fresh++
		}
	}
	var added Table
	added.Rules, added.Causes = append(added.Rules, peerRule(1002), peerRule(1095)), append(added.Causes, nil, nil)
	if want := len(added.Value(nil, nil).Rules); fresh != want {
		t.Errorf("%d rules are new, want %d", fresh, want)
	}
}
