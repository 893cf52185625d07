package nat44

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/adapter"
)

// locals are the endpoints of a port in VPP's form.
type locals struct {
	taking []*nat.DNat44_StaticMapping_LocalIP // get new connections
	all    []*nat.DNat44_StaticMapping_LocalIP // those, and behind them those that keep their connections and get no new ones
	// leaving: some of these terminate or are not ready.
	leaving bool
}

// locals returns the endpoints of a port in VPP's form: IPv4, sorted, each once, at most MaxBackends, weighted. All mappings of
// the port share the messages. Leaving are endpoints that terminate or are not ready: those that
// are not in the list get no new connections.
func (s *rendering) locals(port string, list, leaving []*renderer.ServiceBackend) locals {
	s.room = adapter.Endpoints(s.room, list, netip.Addr.Is4)
	set := s.room
	if n := len(set); n > MaxBackends {
		s.notes.Add(false, "port %q has %d endpoints: this node uses %d of them, the most nat44 can", port, n, MaxBackends)
		set = adapter.Pick(set, MaxBackends, s.node.Name)
	}
	drained := s.drained(port, set, leaving)
	set = append(set, drained...) // the weights of the others do not change when an endpoint leaves
	remote, local := weights(set, s.cfg.LocalEndpointWeight)
	messages := make([]nat.DNat44_StaticMapping_LocalIP, len(set))
	out := make([]*nat.DNat44_StaticMapping_LocalIP, len(set))
	text := addressText(set)
	taking := len(set) - len(drained)
	for i, b := range set {
		m := &messages[i]
		end := strings.IndexByte(text, ' ')
		m.LocalIp, m.LocalPort = text[:end], uint32(b.At.Port())
		text = text[end+1:]
		switch {
		case i >= taking: // probability 0: it keeps its connections
		case b.Local:
			m.Probability = local
		default:
			m.Probability = remote
		}
		out[i] = m
	}
	return locals{taking: out[:taking:taking], all: out, leaving: len(drained) > 0}
}

// drained returns the leaving endpoints that are not in a set. VPP ends their connections if the mapping has no room for pads.
func (s *rendering) drained(port string, set []adapter.Endpoint, leaving []*renderer.ServiceBackend) []adapter.Endpoint {
	if len(leaving) == 0 || len(set) == 0 {
		return nil
	}
	list := slices.DeleteFunc(adapter.Endpoints(nil, leaving, netip.Addr.Is4), func(e adapter.Endpoint) bool {
		return slices.ContainsFunc(set, func(used adapter.Endpoint) bool { return used.At == e.At })
	})
	if n := len(set) + len(list); len(list) > 0 && n > MaxDrained {
		s.notes.Add(false, "port %q has %d endpoints with those that terminate or are not ready: the connections of these end, because nat44 can drain endpoints of at most %d (cnat of any number)", port, n, MaxDrained)
		return nil
	}
	return list
}

// beside returns the endpoints of policy Local for external addresses. The cluster set served them as long as this node had no endpoint, and its endpoints
// keep their connections: VPP would end all sessions to an endpoint that a mapping loses, those of cluster IPs as well.
func (l locals) beside(cluster locals) locals {
	if len(l.taking) == 0 {
		return l
	}
	all := slices.Clip(l.all)
	for _, b := range cluster.all {
		if !slices.ContainsFunc(l.all, func(o *nat.DNat44_StaticMapping_LocalIP) bool {
			return o.LocalIp == b.LocalIp && o.LocalPort == b.LocalPort
		}) {
			all = append(all, &nat.DNat44_StaticMapping_LocalIP{LocalIp: b.LocalIp, LocalPort: b.LocalPort})
		}
	}
	if len(all) > MaxDrained {
		return l
	}
	return locals{taking: l.taking, all: all, leaving: l.leaving}
}

// addressText returns the addresses of all backends in one text, each with a space behind it: one allocation for all.
func addressText(set []adapter.Endpoint) string {
	var room [256]byte
	out := room[:0]
	for _, b := range set {
		out = append(b.At.Addr().AppendTo(out), ' ')
	}
	return string(out)
}

// weights returns the weights of remote and of local endpoints, whose ratio is the wanted one or the nearest whose sum VPP can
// hold (rule A5). A set is never larger than MaxBackends, so they are at least 1.
//
// They are doubled if the sum allows it: VPP draws endpoints and the ports of twice-nat from one generator whose lowest bit
// alternates, and takes the draw modulo the sum. With a sum of 2, connections that draw twice would all get the same endpoint of
// two (rule A11); doubled, each endpoint has an odd and an even draw. Larger factors would be better for clients that draw four
// times in turn, and worse for all others: when the sum no longer allows a factor, all weights change. VPP keeps the weights of endpoints that stay
// (vppagent/descriptor/nat/drain), so those get up to twice as much as new ones.
func weights(set []adapter.Endpoint, wanted uint8) (remote, local uint32) {
	locals := 0
	for _, b := range set {
		if b.Local {
			locals++
		}
	}
	remotes := len(set) - locals
	ratio := 1
	if locals > 0 {
		ratio = max(1, min(int(wanted), (maxWeight-remotes)/locals))
	}
	factor := 1
	if (remotes+locals*ratio)*2 <= maxWeight {
		factor = 2
	}
	return uint32(factor), uint32(factor * ratio)
}
