package interim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// lawless makes no session.
func lawless() *law.Writer { return &law.Writer{} }

// smallAtom draws a rule about few addresses and ports.
func smallAtom(t *rapid.T, v match.Verb) match.Atom {
	end := func(what string) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 3).Draw(t, what))}), 32-rapid.IntRange(0, 2).Draw(t, "bits")).Masked()
	}
	a := match.Atom{Verb: v, Src: end("src"), Dst: end("dst"), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}
	if a.Proto = rapid.SampledFrom([]uint8{0, match.TCP, match.UDP}).Draw(t, "proto"); a.Proto != 0 {
		lo := uint16(rapid.IntRange(0, 3).Draw(t, "port"))
		a.DstPorts = match.Span{Lo: lo, Hi: lo + uint16(rapid.IntRange(0, 2).Draw(t, "ports"))}
	}
	return a
}

func smallTable(t *rapid.T, name string) *table.Table {
	out := &table.Table{Name: name}
	verbs := rapid.SampledFrom([][]match.Verb{{match.Allow}, {match.Allow}, {match.Deny}, {match.Allow, match.Deny}}).Draw(t, "verbs")
	for range rapid.IntRange(1, 4).Draw(t, "rules") {
		out.Add(smallAtom(t, rapid.SampledFrom(verbs).Draw(t, "verb")), &dataplane.Cause{})
	}
	return out
}

// everything has a rule about every IPv4 packet.
func everything(name string, v match.Verb) *table.Table {
	t := &table.Table{Name: name}
	t.Add(match.Atom{Verb: v, Src: match.V4.All(), Dst: match.V4.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, &dataplane.Cause{})
	return t
}

// smallState draws the tables of a list. The last one denies or permits everything; without any, everything passes.
func smallState(t *rapid.T, have map[string]*table.Table) (map[string]*table.Table, []lists.Place) {
	out := map[string]*table.Table{}
	var list []lists.Place
	names := rapid.Permutation([]string{"a", "b", "c", "d"}).Draw(t, "order")
	n := rapid.IntRange(-1, 4).Draw(t, "tables")
	if n < 0 {
		return out, nil
	}
	for _, name := range names[:n] {
		if out[name] = have[name]; out[name] == nil || rapid.Bool().Draw(t, "changes") {
			out[name] = smallTable(t, name)
		}
		list = append(list, lists.Place{Table: name, Denies: out[name].Denies(), Mixed: out[name].Mixed()})
	}
	end := rapid.SampledFrom([]string{table.DenyAll, table.DenyAll, table.PermitIngress}).Draw(t, "end")
	return out, append(list, lists.Place{Table: end, Denies: end == table.DenyAll})
}

// passes reports whether the first rule of a list that matches a packet permits it.
func passes(list []lists.Place, tables map[string]*table.Table, p match.Atom) bool {
	for _, place := range list {
		for _, r := range tables[place.Table].Rules {
			if covers(&r, &p) {
				return r.Verb != match.Deny
			}
		}
	}
	return len(list) == 0
}

func eachSmallPacket(f func(p match.Atom)) {
	for n := range 4 * 4 * 6 * 2 {
		host := func(i int) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 4)}), 32) }
		port := uint16(n / 16 % 6)
		f(match.Atom{Src: host(n), Dst: host(n / 4), Proto: []uint8{match.TCP, match.UDP}[n/96], SrcPorts: match.Span{Lo: 9, Hi: 9}, DstPorts: match.Span{Lo: port, Hi: port}})
	}
}

// TestInterimStateIsExact: an interim state lets a packet pass if the states before and after do, also by different rules, and no other packet.
func TestInterimStateIsExact(t *testing.T) {
	rescued := 0
	rapid.Check(t, func(t *rapid.T) {
		o := NewOutput(nil, table.NewStore(), noPods{}, 255, true)
		old, before := smallState(t, nil)
		now, after := smallState(t, old)
		o.acls, o.sent["i"] = maps.Clone(old), lists.Lists{In: before, Out: before}
		o.acls[table.DenyAll], o.acls[table.PermitIngress] = everything(table.DenyAll, match.Deny), everything(table.PermitIngress, match.Allow)
		c := newChange()
		for name := range old {
			c.tables[name] = nil
		}
		for name, table := range now {
			if c.tables[name] = table; old[name] == table {
				delete(c.tables, name)
			}
		}
		maps.Copy(now, map[string]*table.Table{table.DenyAll: o.acls[table.DenyAll], table.PermitIngress: o.acls[table.PermitIngress]})
		c.lists["i"] = lists.Lists{In: after, Out: after}
		first, then := o.interim(&c, shiftsOf(o, &c), map[string]bool{"i": true})
		tables := maps.Clone(o.acls)
		maps.Copy(tables, first.tables)
		if _, again := then.lists["i"]; !again {
			t.Fatal("the rest of the change has no lists")
		}
		interim := first.lists["i"].In
		eachSmallPacket(func(p match.Atom) {
			had, has, is := passes(before, o.acls, p), passes(after, now, p), passes(interim, tables, p)
			if is != (had && has) {
				t.Fatalf("%v: before %v, after %v, between %v\n%s", p, had, has, is, show(interim, tables))
			}
		})
		if len(interim) > 0 && kv.IsInterimACL(interim[0].Table) {
			rescued++
		}
	})
	if rescued == 0 && !testing.Short() { // fewer checks may have none
		t.Error("no packet passes by different rules")
	}
}

func show(list []lists.Place, tables map[string]*table.Table) string {
	var b strings.Builder
	for _, p := range list {
		for _, r := range tables[p.Table].Rules {
			fmt.Fprintf(&b, "%s: %+v\n", p.Table, r)
		}
	}
	return b.String()
}

// TestBothTableIsBounded: beyond the bounds an interface has no such table, and only its common part passes.
func TestBothTableIsBounded(t *testing.T) {
	flat := func(n int, lo uint16) (out []flatRule) {
		for i := range n {
			a := match.Atom{Src: match.V4.All(), Dst: match.V4.All(), Proto: match.TCP, SrcPorts: match.AllPorts, DstPorts: match.Span{Lo: lo, Hi: lo}}
			a.Src = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
			out = append(out, flatRule{a, &dataplane.Cause{}, lawless(), false})
		}
		return out
	}
	everywhere := []flatRule{{Atom: match.Atom{Src: match.V4.All(), Dst: match.V4.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}}}
	for n, want := range map[int]bool{10: true, mostBoth: true, mostBoth + 1: false} {
		if got := (&both{old: flat(n, 80), now: everywhere, sctp: true, work: mostTable}).makeTable("t"); (got != nil) != want {
			t.Errorf("%d rules: %v", n, got != nil)
		}
	}
	for n, want := range map[int]bool{100: true, 1000: false} {
		b := &both{old: flat(n, 80), now: everywhere, sctp: true, work: 3000}
		if got := b.makeTable("t"); (got != nil) != want || want != (b.work >= 0) {
			t.Errorf("%d rules: %v, %d comparisons left", n, got != nil, b.work)
		}
	}
}

// TestBothTableAndSCTP: beside a filter, a rule about any protocol does not let SCTP pass.
func TestBothTableAndSCTP(t *testing.T) {
	from := func(bits int) []flatRule {
		a := match.Atom{Src: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), bits).Masked(), Dst: match.V4.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}
		return []flatRule{{a, &dataplane.Cause{}, lawless(), false}}
	}
	for sctp, want := range map[bool][]uint8{true: {0}, false: {match.TCP, match.UDP, match.ICMP}} {
		var got []uint8
		for _, r := range (&both{old: from(32), now: from(0), sctp: sctp, work: mostTable}).makeTable("t").Rules {
			got = append(got, r.Proto)
		}
		if !slices.Equal(got, want) {
			t.Errorf("filter %v: protocols %v, want %v", !sctp, got, want)
		}
	}
}
