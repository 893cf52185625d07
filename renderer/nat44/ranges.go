package nat44

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/adapter"
)

// restricted is a frontend that only the clients of loadBalancerSourceRanges may use.
type restricted struct {
	renderer.Frontend
	mapping *nat.DNat44_StaticMapping // nil: without endpoints it is rejected, for permitted clients
}

// restrict stores one such frontend separately.
func (s *rendering) restrict(f renderer.Frontend, to target) {
	switch {
	case !f.IP.Is4():
	case s.cfg.NoSourceRanges != "":
		s.notes.Add(true, "load-balancer IP %s is not served: nat44 checks loadBalancerSourceRanges by access lists, and %s", f.IP, s.cfg.NoSourceRanges)
	case s.svc.SourceRangesRefused != "":
		s.notes.Add(true, "load-balancer IP %s is not served: loadBalancerSourceRanges: %s", f.IP, s.svc.SourceRangesRefused)
	case s.ours(f, false):
		r := restricted{Frontend: f}
		if !to.reject {
			r.mapping = s.mapping(f, to)
		}
		s.restricted = append(s.restricted, r)
	}
}

// putRestricted puts the source ranges, and a separate DNat44 for each frontend: a removed DNat44 leaves VPP before its protection
// changes, which a part of a value could not.
func (s *rendering) putRestricted(values kv.Values) {
	if len(s.restricted) == 0 {
		return
	}
	slices.SortFunc(s.restricted, func(a, b restricted) int { return a.Compare(b.Frontend) })
	label := s.svc.ID.String()
	for first := 0; first < len(s.restricted); {
		vip := s.restricted[first].IP
		m := &contivnat.SourceRanges{Label: label + "@" + vip.String(), Ranges: s.ranges(vip)}
		for ; first < len(s.restricted) && s.restricted[first].IP == vip; first++ {
			f := &s.restricted[first]
			m.Frontends = append(m.Frontends, &contivnat.SourceRanges_Frontend{
				Address: vip.String(), Port: uint32(f.Port), Protocol: uint32(f.Protocol),
			})
			if f.mapping != nil {
				values.Put(&nat.DNat44{Label: restrictedLabel(m.Label, f.Protocol.String(), uint32(f.Port)), StMappings: []*nat.DNat44_StaticMapping{f.mapping}})
			}
		}
		values.Put(m)
	}
}

func restrictedLabel(label, protocol string, port uint32) string {
	return kv.RestrictedLabel(label, strings.ToLower(protocol)+":"+strconv.FormatUint(uint64(port), 10))
}

// Restricted returns the keys of the mappings at the frontends of source ranges; nil: the value is something else.
func Restricted(m proto.Message) (keys []string) {
	ranges, _ := m.(*contivnat.SourceRanges)
	for _, f := range ranges.GetFrontends() {
		protocol := renderer.TCP
		if f.GetProtocol() == uint32(renderer.UDP) {
			protocol = renderer.UDP
		}
		keys = append(keys, kv.Key(&nat.DNat44{Label: restrictedLabel(ranges.GetLabel(), protocol.String(), f.GetPort())}))
	}
	return keys
}

// ranges returns the clients that may use a load balancer's address. If an address of this node is among them, so is the load
// balancer's address: a node that has it, too, may call from it.
func (s *rendering) ranges(vip netip.Addr) []string {
	set := adapter.SourceRanges(s.svc, vip)
	if slices.ContainsFunc(s.node.IPs, func(a netip.Addr) bool {
		return slices.ContainsFunc(set, func(p netip.Prefix) bool { return p.Contains(a) })
	}) {
		set = append(set, netip.PrefixFrom(vip, vip.BitLen()))
	}
	slices.SortFunc(set, netip.Prefix.Compare)
	var out []string
	for _, p := range slices.Compact(set) {
		out = append(out, p.String())
	}
	return out
}

// Interim returns the source ranges that two values both permit, for the frontends of the second one; nil: the second one admits no more clients, or
// these are no source ranges. Between the two, a client that only the second one admits must not reach an endpoint that only the first one has.
func Interim(was, now proto.Message) proto.Message {
	before, is := was.(*contivnat.SourceRanges)
	after, also := now.(*contivnat.SourceRanges)
	if !is || !also {
		return nil
	}
	var both []netip.Prefix
	more := false
	for _, text := range after.GetRanges() {
		p, err := netip.ParsePrefix(text)
		within := false
		for _, text := range before.GetRanges() {
			o, wrong := netip.ParsePrefix(text)
			switch {
			case err != nil || wrong != nil:
				return nil
			case !o.Overlaps(p):
			case o.Bits() <= p.Bits():
				within, both = true, append(both, p)
			default:
				both = append(both, o)
			}
		}
		more = more || !within
	}
	if !more {
		return nil
	}
	m := &contivnat.SourceRanges{Label: after.GetLabel(), Frontends: after.GetFrontends()}
	slices.SortFunc(both, netip.Prefix.Compare)
	for _, p := range slices.Compact(both) {
		m.Ranges = append(m.Ranges, p.String())
	}
	return m
}
