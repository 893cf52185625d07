package table

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/classifier"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// FilterOf returns the filter of lists; nil if none is needed, or if it would not fit. If one direction needs a filter, so does the
// other, unless everything may begin there: sessions that let answers pass have only addresses.
func (g *Segments) FilterOf(in, out []Origin) (f *Filter, fits bool) {
	var now Filter
	var differs [2]bool
	now[0], differs[0] = g.decide(in)
	now[1], differs[1] = g.decide(out)
	if differs == [2]bool{} {
		return nil, true
	}
	for d, list := range now {
		if !differs[d] && !slices.ContainsFunc(list, func(a Association) bool { return !a.Permit }) {
			now[d] = nil
		}
		if match.Widened(pairs(now[d])) > match.MaxAtoms {
			return nil, false
		}
	}
	if !now.fits() {
		return nil, false
	}
	return &now, true
}

// fits reports whether VPP's classifier has room for the filter.
func (f *Filter) fits() bool {
	_, err := classifier.Compile(f.Value("any"))
	return err == nil
}

// AddPairs appends the rules of the pairs.
func (t *Table) AddPairs(rules []Association, wholeBytes bool) {
	passes := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "SCTP, of which only ports are left to be asked for"}
	denied := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "SCTP, denied at all ports"} // the filter has the cause
	x := match.Expander{WholeBytes: wholeBytes}
	for _, a := range x.Widen(pairs(rules), 0) {
		cause := passes
		if a.Verb == match.Deny {
			cause = denied
		}
		t.Add(a, cause)
	}
}

// DeniesPair returns the cause of the first rule of a direction that denies an atom's addresses at all ports; nil: none does.
func (f *Filter) DeniesPair(d int, a *match.Atom) *dataplane.Cause {
	for _, rule := range f.Direction(d) {
		within := func(in, p netip.Prefix) bool { return in.Bits() <= p.Bits() && in.Contains(p.Addr()) }
		if !rule.Permit && rule.SrcPorts == match.AllPorts && rule.DstPorts == match.AllPorts && within(rule.Src, a.Src) && within(rule.Dst, a.Dst) {
			return rule.Cause
		}
	}
	return nil
}

// Value returns the filter as a value for vppagent.
func (f *Filter) Value(iface string) *contivacl.SCTPPorts {
	v := &contivacl.SCTPPorts{Interface: iface}
	for d, list := range [2]*[]*contivacl.SCTPPorts_Rule{&v.Input, &v.Output} {
		for i := range f[d] {
			a := &f[d][i]
			*list = append(*list, &contivacl.SCTPPorts_Rule{
				Permit: a.Permit, SourceNetwork: a.Src.String(), DestinationNetwork: a.Dst.String(), Source: portsValue(a.SrcPorts), Destination: portsValue(a.DstPorts),
			})
		}
	}
	return v
}

func portsValue(s match.Span) *contivacl.SCTPPorts_Ports {
	if s == match.AllPorts {
		return nil
	}
	return &contivacl.SCTPPorts_Ports{Lower: uint32(s.Lo), Upper: uint32(s.Hi)}
}

// Direction returns the rules of a direction: 0 is in, 1 is out; nil: none.
func (f *Filter) Direction(d int) []Association {
	if f == nil {
		return nil
	}
	return f[d]
}

// CommonFilter returns a filter that lets begin what both filters do. It is closed if few rules cannot express that.
func CommonFilter(old, now *Filter) *Filter {
	switch {
	case old == nil || old.Same(now):
		return now
	case now == nil:
		return old
	}
	var out Filter
	for d := range out {
		had, has := old[d], now[d]
		switch {
		case had == nil:
			out[d] = has
		case has == nil:
			out[d] = had
		default:
			out[d] = meet(had, has)
		}
	}
	if !out.fits() {
		return &Filter{closed(), closed()}
	}
	return &out
}

// AskPorts reports whether steps name ports of SCTP.
func AskPorts(uses []Use) bool {
	return slices.ContainsFunc(uses, func(u Use) bool { return u.Seg != nil && u.Seg.AsksPorts })
}
