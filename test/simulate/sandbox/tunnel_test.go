package sandbox

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/frame"
)

// addressOf is the address of a node.
func addressOf(node int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(node + 1)}) }

// nodeBehind is the number of the node whose pods have an address; -1: none.
func nodeBehind(a netip.Addr) int {
	for node := range nodeNames {
		for i, length := range []int{24, 64} {
			if netip.PrefixFrom(rangesOf(node)[i], length).Contains(a) {
				return node
			}
		}
	}
	return -1
}

// farOf is VPP's interface to other nodes; "": it has none.
func farOf(dump string) string {
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "interface ") && strings.Contains(line, ":"+podnet.Overlay+`"`) {
			return strings.Fields(line)[1]
		}
	}
	return ""
}

// tunnelsOf are the nodes whose packets VPP unwraps.
func tunnelsOf(dump string) map[int]bool {
	out := map[int]bool{}
	for line := range strings.Lines(dump) {
		if !strings.HasPrefix(line, "interface vxlan") || !strings.Contains(line, " up ") {
			continue
		}
		for node := range nodeNames {
			if strings.Contains(line, fmt.Sprintf(" %s vni ", addressOf(node))) {
				out[node] = true
			}
		}
	}
	return out
}

// wrapped are the packets that VPP sends to other nodes when a packet arrives: those for a neighbour at its interface to them, behind which a bridge domain has the
// tunnel to the node of that neighbour, whose outer packets leave. Only packets with bytes pass a bridge.
func (at *place) wrapped(in string, p sim.Packet) (out []sim.Output) {
	load, err := loadOf(p)
	if err != nil {
		return nil
	}
	at.vpp.Wired(at.vpp.Now(), func(g sim.Graph) {
		index, found := indexOf(g, in)
		if !found {
			return
		}
		for _, o := range g.Input(index, load).Out {
			if o.Interface == at.far && o.Origin == sim.Forwarded && tunnels(g, o) {
				out = append(out, o)
			}
		}
	})
	return out
}

// unwraps reports whether a packet that came by a tunnel leaves VPP by one of some interfaces, to a neighbour.
func (at *place) unwraps(p sim.Packet, out []string) (arrives bool) {
	load, err := loadOf(p)
	if err != nil {
		return false
	}
	m := at.vpp.Snapshot()
	defer at.vpp.Release()
	at.vpp.Wired(at.vpp.Now(), func(g sim.Graph) {
		index, found := indexOf(g, at.far)
		if !found {
			return
		}
		for _, o := range g.Input(index, load).Out {
			_, known := g.Neighbor(o.Exit.Index, o.Exit.Next)
			arrives = arrives || known && o.Origin == sim.Forwarded && slices.Contains(out, o.Interface)
		}
	})
	at.vpp.Restore(m)
	return arrives
}

// tunnels reports whether a packet that leaves by the bridge reaches the node that has its destination.
func tunnels(g sim.Graph, o sim.Output) bool {
	near, _ := g.Port(o.Exit.Index)
	to, known := g.Neighbor(o.Exit.Index, o.Exit.Next)
	if !known || !near.BVI {
		return false
	}
	inner, err := loadOf(o.Packet)
	if err != nil {
		return false
	}
	kind := frame.IPType(inner.Bytes)
	bytes := append(append(append([]byte{}, to[:]...), near.MAC[:]...), byte(kind>>8), byte(kind))
	ports, _ := g.Switch(o.Exit.Index, near.MAC, to)
	for _, index := range ports {
		port, _ := g.Port(index)
		if !port.Up || port.Tunnel == nil {
			continue
		}
		outer, err := port.Tunnel.Wrap(append(bytes, inner.Bytes...))
		if err != nil {
			continue
		}
		for _, sent := range g.Originate(index, port.Table, false, outer).Out {
			if node := nodeBehind(o.Packet.Dst); node >= 0 && sent.Packet.Dst == addressOf(node) {
				return true
			}
		}
	}
	return false
}

func loadOf(p sim.Packet) (*frame.Load, error) {
	p.TTL = p.Life()
	b, err := p.Marshal()
	if err != nil {
		return nil, err
	}
	return frame.Read(b)
}

// indexOf is the index of an interface.
func indexOf(g sim.Graph, name string) (uint32, bool) {
	for index, missing := uint32(0), 0; missing < 64; index++ {
		switch port, exists := g.Port(index); {
		case !exists:
			missing++
		case port.Name == name:
			return index, true
		}
	}
	return 0, false
}

// TestTrafficBetweenNodesFinds: a forbidden packet that both VPPs pass is found, but for one of the former pod of its address while changes are late. So is a permitted one
// that passes no more.
func TestTrafficBetweenNodesFinds(t *testing.T) {
	v, tr := sim.New(sim.Config{}), newTraffic()
	near, there := &place{vpp: v, far: "far"}, &place{}
	tr.places = []*place{near, there}
	addr := netip.MustParseAddr("10.1.1.2")
	for i, name := range []string{"p0", "p1", "p4"} {
		tr.join(&pod{name: name}, &protocol.Request{Attachment: protocol.Attachment{ContainerID: name}}, []netip.Addr{addr})
		if addr = addr.Next(); i == 1 {
			addr = rangesOf(1)[0].Next()
		}
	}
	finds := func(from string, sends, takes bool, want string) {
		t.Helper()
		tr.bad = nil
		near.sends, there.takes = map[string]bool{tr.key(from, 0, "p4"): sends}, map[string]bool{tr.key(from, 0, "p4"): takes}
		tr.sendBetween(from, "p4", "a test", false)
		if got := fmt.Sprint(tr.bad); !strings.Contains(got, want) || want == "" && len(tr.bad) > 0 {
			t.Errorf("%s, %v, %v: %s, want %q", from, sends, takes, got, want)
		}
	}
	finds("p0", true, false, "")
	finds("p0", false, true, "")
	finds("p0", true, true, "a forbidden packet from p0 to p4 (10.1.2.1) passes after a test")
	tr.mayBe(false, true)
	finds("p0", true, true, "a forbidden packet from p0 to p4")
	tr.had[tr.live["p0"].addrs[0]] = true
	finds("p0", true, true, "")
	tr.mayBe(false, false)
	finds("p0", true, true, "a forbidden packet from p0 to p4")
	finds("p1", false, true, "")
	finds("p1", true, true, "")
	finds("p1", true, false, "a permitted packet from p1 to p4 (10.1.2.1) passed before, and is lost after a test")
	tr.forget(1, func() {})
	finds("p1", true, false, "")
}
