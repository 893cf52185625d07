package sim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/sim/classify"
	"github.com/contiv-agent/contiv-agent/sim/hop"
)

// ClassifyMatch is the result of an interface's classifier for a packet.
type ClassifyMatch = hop.ClassifyMatch

// The nodes of the classifier that drop or permit packets, by arc.
func classifyNode(a arcID) string {
	return [arcCount]string{ip4Unicast: "ip4-inacl", ip4Output: "ip4-outacl", ip6Unicast: "ip6-inacl", ip6Output: "ip6-outacl"}[a]
}

func classifyPlace(a arcID) (classify.Direction, classify.Kind) {
	d, k := classify.Input, classify.IP4
	if a == ip4Output || a == ip6Output {
		d = classify.Output
	}
	if a == ip6Unicast || a == ip6Output {
		k = classify.IP6
	}
	return d, k
}

func addClassify(a *arcs, v *VPP) {
	for id := range arcCount {
		d, k := classifyPlace(id)
		a.addFeature(id, feature{
			name: classifyNode(id),
			on:   func(swIf uint32) bool { return v.classify.On(d, k, swIf) },
			run:  func(f *flow) bool { return f.checkClassify(id, d, k) },
		})
	}
}

// linkHeader is the header before the IP header: zero addresses, because a mask may cover them, and the Ethernet type.
const linkHeader = 14

func etherType(a netip.Addr) []byte {
	if a.Is4() {
		return []byte{0x08, 0x00}
	}
	return []byte{0x86, 0xdd}
}

// checkClassify is a classifier node.
func (f *flow) checkClassify(id arcID, d classify.Direction, k classify.Kind) bool {
	swIf := f.rx
	if d == classify.Output {
		swIf = f.tx
	}
	wire, err := f.p.Marshal()
	if err != nil {
		panic(fmt.Sprintf("sim: %s came this far: %v", &f.p, err))
	}
	r := f.v.classify.Check(d, k, swIf, append(append(make([]byte, linkHeader-2, linkHeader+len(wire)), etherType(f.p.Dst)...), wire...), linkHeader)
	text := fmt.Sprintf("table %d of the chain", r.Place)
	if r.Hit {
		text += fmt.Sprintf(" session %x", r.Session.Match)
	} else {
		text += " missed"
	}
	node := classifyNode(id)
	if r.Pass {
		f.hop(node, "%s", text)
	} else {
		f.drop(node, "%s", text)
	}
	if len(f.fate.Hops) == 0 {
		return r.Pass
	}
	f.fate.Hops[len(f.fate.Hops)-1].Classify = &ClassifyMatch{
		Interface: f.v.ifs.name(swIf), Output: d == classify.Output, Place: r.Place, Hit: r.Hit, Opaque: r.Session.Opaque, Permit: r.Pass,
		Packet: f.p.Clone(),
	}
	return r.Pass
}

// dumpClassify is the classifier's part of Dump: the chains of each interface, then the unattached tables. It omits the chains of
// deleted interfaces.
func (v *VPP) dumpClassify(b *strings.Builder) {
	used := map[uint32]bool{}
	for _, f := range v.ifs.sorted() {
		for d, way := range []string{"input", "output"} {
			for k := range classify.Kinds {
				first := v.classify.Attached(classify.Direction(d), k, f.index)
				if first == classify.None {
					continue
				}
				fmt.Fprintf(b, "classify %s %s %s", f.name, way, classifyKind(k))
				if !v.classify.On(classify.Direction(d), k, f.index) {
					b.WriteString(" (noted, but off)")
				}
				b.WriteByte('\n')
				for i := first; v.classify.Has(i) && !used[i]; i, _ = v.nextTable(i) {
					used[i] = true
					b.WriteString(v.classifyText(i))
				}
			}
		}
	}
	v.holdStale(used)
	var loose []string
	for _, i := range v.classify.Tables() {
		if !used[i] {
			loose = append(loose, "classify-table\n"+v.classifyText(i))
		}
	}
	slices.Sort(loose)
	b.WriteString(strings.Join(loose, ""))
}

// holdStale marks the tables that VPP still records for deleted interfaces. No packet meets them, and no request can remove them
// from the records before another interface gets the index.
func (v *VPP) holdStale(used map[uint32]bool) {
	for d := range classify.Direction(2) {
		for k := range classify.Kinds {
			for _, swIf := range v.classify.Noted(d, k) {
				for i := v.classify.Attached(d, k, swIf); v.classify.Has(i) && !used[i]; i, _ = v.nextTable(i) {
					used[i] = true
				}
			}
		}
	}
}

func (v *VPP) nextTable(i uint32) (uint32, int) {
	t, n := v.classify.Table(i)
	return t.Next, n
}

func classifyKind(k classify.Kind) string { return []string{"ip4", "ip6", "l2"}[k] }

func classifyIndex(i uint32) string {
	if i == noIndex {
		return "next"
	}
	return fmt.Sprint(i)
}

func (v *VPP) classifyText(i uint32) string {
	t, _ := v.classify.Table(i)
	base := "frame"
	if t.CurrentData {
		base = fmt.Sprintf("packet%+d", t.Offset)
	}
	s := fmt.Sprintf("  table buckets %d %s skip %d mask %x miss %s\n", t.Buckets, base, t.Skip, t.Mask, classifyIndex(t.Miss))
	list := slices.Clone(v.classify.Sessions(i))
	slices.SortFunc(list, func(a, b classify.Session) int { return cmp.Compare(string(a.Match), string(b.Match)) })
	for _, e := range list {
		hit := fmt.Sprint(e.Hit)
		if e.Hit == 0xffff {
			hit = "next"
		}
		s += fmt.Sprintf("    session %x hit %s opaque %#x\n", e.Match, hit, e.Opaque)
	}
	return s
}
