package sim

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/sim/cnat"
	"github.com/contiv-agent/contiv-agent/sim/policer"
)

// cnatNet is the cnat plugin's view of the rest of VPP. The engine runs under v.mu.
type cnatNet struct{ v *VPP }

func (n cnatNet) Address(swIf uint32, v6 bool) (netip.Addr, bool) {
	f := n.v.ifs.get(swIf)
	if f == nil {
		return netip.Addr{}, false
	}
	for _, p := range f.addrs {
		if p.Addr().Is6() == v6 {
			return p.Addr(), true
		}
	}
	return netip.Addr{}, false
}

func (n cnatNet) Own(a netip.Addr, exclusive bool) {
	n.v.fib[family(a)].findTable(0).own(a, exclusive)
	n.survive(a)
}

func (n cnatNet) Disown(a netip.Addr) {
	n.v.fib[family(a)].findTable(0).disown(a)
	n.survive(a)
}

func (n cnatNet) Track(a netip.Addr) {
	n.v.fib[family(a)].recursive([]path{{swIf: noIndex, via: a}}, 1)
	n.survive(a)
}

func (n cnatNet) Untrack(a netip.Addr) {
	n.v.fib[family(a)].recursive([]path{{swIf: noIndex, via: a}}, -1)
}

// survive springs trapUnreachableNextHop: a reject route covers an address to which the plugin needs a route.
func (n cnatNet) survive(a netip.Addr) {
	if n.v.fib[family(a)].findTable(0).deadly(hostPrefix(a)) {
		panic(trapUnreachableNextHop)
	}
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func (v *VPP) bootCNAT() {
	v.cnat = cnat.New(cnat.Config{
		Net: cnatNet{v}, Now: func() time.Duration { return v.now.Sub(v.booted) }, EchoInErrors: !v.cfg.older(25, 2), Anew: !v.cfg.older(26, 6),
	})
	v.cnat.SetChoice(v.choice)
	v.features = features{map[featureKey]int{}, map[featureKey]bool{}, policer.New()}
}

// featureKey identifies a node that feature_enable_disable put on an arc of an interface.
type featureKey struct {
	arc  arcID
	name string
	swIf uint32
}

// features are nodes that clients put on arcs or removed from them.
type features struct {
	times    map[featureKey]int
	off      map[featureKey]bool // removed where a plug-in had put them
	policers *policer.Engine
}

// optional are the nodes that the sim's feature_enable_disable supports.
func optional(a arcID) []string {
	return [arcCount][]string{
		ip4Unicast: {"cnat-input-ip4", "cnat-snat-ip4"}, ip4Output: {"cnat-output-ip4"},
		ip6Unicast: {"cnat-input-ip6", "cnat-snat-ip6"}, ip6Output: {"cnat-output-ip6"},
	}[a]
}

// addOptional puts them in their places. A node that was enabled twice is on the arc twice.
func addOptional(a *arcs, v *VPP) {
	for id := range arcCount {
		for _, name := range optional(id) {
			run := func(f *flow) bool { return f.obey(f.v.cnat.Input(&f.p)) }
			switch {
			case strings.Contains(name, "snat"):
				run = func(f *flow) bool { return f.obey(f.v.cnat.SNAT(&f.p, f.rx)) }
			case strings.Contains(name, "output"):
				run = func(f *flow) bool { return f.obey(f.v.cnat.Output(&f.p, f.rx, f.tx, f.known)) }
			}
			times := func(swIf uint32) int { return v.features.times[featureKey{id, name, swIf}] }
			a.addFeature(id, feature{
				name: name,
				on:   func(swIf uint32) bool { return times(swIf) > 0 },
				run: func(f *flow) bool {
					at := f.rx
					if id == ip4Output || id == ip6Output {
						at = f.tx
					}
					for range times(at) {
						if !run(f) {
							return false
						}
					}
					return true
				},
			})
		}
	}
}

// cnatFIB processes packets that routes lead to an address of the plugin; false: the packet left by another path.
func (f *flow) cnatFIB() bool {
	return f.table != 0 || !f.v.fib[family(f.p.Dst)].findTable(0).owned(f.p.Dst) || f.obey(f.v.cnat.FIB(&f.p))
}

// obey applies the plugin's decision; false: the packet has left this arc.
func (f *flow) obey(r cnat.Result) bool {
	if r.Action == cnat.Drop {
		return f.drop(r.Node, "%s", r.Text)
	}
	if r.Text != "" {
		f.hop(r.Node, "%s", r.Text)
	}
	f.badChecksum, f.known = f.badChecksum || r.BadChecksum, cmp.Or(r.Flow, f.known)
	switch r.Action {
	case cnat.Lookup:
		f.lookup()
	case cnat.Forward:
		f.table = 0
		f.forward(r.Node, r.Backend)
	default:
		return true
	}
	return false
}

// forward sends the packet to a backend.
func (f *flow) forward(node string, backend netip.Addr) {
	switch {
	case f.v.fib[family(backend)].findTable(0).entries[hostPrefix(backend)] == nil:
		f.drop(node, "nothing leads to %s any more: the session's load balance is gone", backend)
	case f.p.Dst == backend:
		f.lookup()
	default:
		f.followNext(f.v.resolve(0, backend, f.hash(), 0))
	}
}

// TranslationSessions returns the sessions of the cnat plugin, sorted.
func (v *VPP) TranslationSessions() []cnat.Session {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.cnat.Sessions()
}

// dumpCNAT is the part of Dump about the cnat plugin and optional features.
func (v *VPP) dumpCNAT(b *strings.Builder) {
	for _, l := range v.cnat.Lines(v.ifs.name) {
		b.WriteString(l + "\n")
	}
	for _, f := range v.ifs.sorted() {
		for id := range arcCount {
			for _, name := range optional(id) {
				switch n := v.features.times[featureKey{id, name, f.index}]; n {
				case 0:
				case 1:
					fmt.Fprintf(b, "feature %s %s\n", f.name, name)
				default:
					fmt.Fprintf(b, "feature %s %s %d times\n", f.name, name, n)
				}
			}
		}
	}
}

// forgetFeatures removes the features of a deleted interface.
func (v *VPP) forgetFeatures(swIf uint32) {
	maps.DeleteFunc(v.features.times, func(k featureKey, _ int) bool { return k.swIf == swIf })
	maps.DeleteFunc(v.features.off, func(k featureKey, _ bool) bool { return k.swIf == swIf })
}
