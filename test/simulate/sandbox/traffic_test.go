package sandbox

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/sim"
)

// traffic is the packets between pods that follow each message to VPP. A pod takes part from its acknowledged ADD to the first request that removes
// its sandbox.
type traffic struct {
	mu      sync.Mutex
	live    map[string]*member // by name of the pod
	passed  map[string]bool    // packets that have passed, by "ATTACHMENT FAMILY ATTACHMENT": they must pass until an end of theirs is removed, or VPP
	packets map[string]int
	bad     []error
}

// member is the sandbox of a pod that takes part.
type member struct {
	at    protocol.Attachment
	addrs []netip.Addr
}

func newTraffic() *traffic {
	return &traffic{live: map[string]*member{}, passed: map[string]bool{}, packets: map[string]int{}}
}

// join lets a pod take part.
func (t *traffic) join(p *pod, at protocol.Attachment, addrs []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live[p.name] = &member{at, addrs}
}

// leave ends a pod's part.
func (t *traffic) leave(p *pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, p.name)
}

// forget ends a VPP, while no packets are sent: the next one has nothing.
func (t *traffic) forget(end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.passed)
	end()
}

// isWeb reports whether the policy isolates a pod: clients alone may reach it.
func isWeb(name string) bool { return name[1]%2 == 0 }

// send sends a packet of each family from each pod to each other one, without a trace in VPP's sessions. all: also those that have not passed yet must pass.
func (t *traffic) send(v *sim.VPP, after string, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.live) < 2 {
		return
	}
	of := interfacesOf(v.Dump())
	for _, from := range slices.Sorted(maps.Keys(t.live)) {
		for _, to := range slices.Sorted(maps.Keys(t.live)) {
			if from != to {
				t.sendBetween(v, of, from, to, after, all)
			}
		}
	}
}

func (t *traffic) sendBetween(v *sim.VPP, of map[string][]string, from, to, after string, all bool) {
	a, b := t.live[from], t.live[to]
	for i := range min(len(a.addrs), len(b.addrs)) {
		passes := false
		for _, in := range of[from] {
			passes = passes || arrives(v, in, sim.Packet{Src: a.addrs[i], Dst: b.addrs[i], Proto: model.TCP, SrcPort: 40000, DstPort: 80}.Opening(), of[to])
		}
		key := fmt.Sprint(a.at, " ", i, " ", b.at)
		allowed := !isWeb(to) || !isWeb(from)
		switch {
		case !allowed && passes:
			t.bad = append(t.bad, fmt.Errorf("a forbidden packet from %s to %s (%s) passes after %s", from, to, b.addrs[i], after))
		case !allowed:
			t.packets["forbidden packets"]++
		case passes:
			t.passed[key] = true
			t.packets["permitted packets"]++
		case t.passed[key]:
			t.bad = append(t.bad, fmt.Errorf("a permitted packet from %s to %s (%s) passed before, and is lost after %s", from, to, b.addrs[i], after))
		case all:
			t.bad = append(t.bad, fmt.Errorf("a permitted packet from %s to %s (%s) does not pass", from, to, b.addrs[i]))
		}
	}
}

// arrives reports whether a packet leaves VPP by one of some interfaces.
func arrives(v *sim.VPP, in string, p sim.Packet, out []string) bool {
	m := v.Snapshot()
	fate := v.Send(in, p)
	v.Restore(m)
	v.Release()
	return slices.ContainsFunc(fate.Out, func(o sim.Output) bool { return o.Origin == sim.Forwarded && slices.Contains(out, o.Interface) })
}

// interfacesOf are VPP's interfaces with the tag of a pod, by its name.
func interfacesOf(dump string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(dump) {
		words := strings.Fields(line)
		_, tag, tagged := strings.Cut(line, "pod:"+namespace+"/")
		if name, _, ended := strings.Cut(tag, ":"); tagged && ended && words[0] == "interface" {
			out[name] = append(out[name], words[1])
		}
	}
	return out
}

// errors are the broken laws.
func (t *traffic) errors() []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.bad)
}

// TestTrafficFinds: a packet that the policy forbids passes a VPP without access lists, and a permitted one passes no more after the removal of its route.
func TestTrafficFinds(t *testing.T) {
	v, tr := sim.New(sim.Config{}), newTraffic()
	of := map[string][]string{}
	for i, name := range []string{"p0", "p1", "p2"} {
		iface, a := fmt.Sprint("tap", i), netip.AddrFrom4([4]byte{10, 1, 1, byte(i)})
		v.AddInterface(sim.Interface{Name: iface})
		if err := v.AddRoute(sim.Route{Prefix: netip.PrefixFrom(a, 32), Paths: []sim.Path{{Interface: iface, Via: a}}}); err != nil {
			t.Fatal(err)
		}
		of[name] = []string{iface}
		tr.join(&pod{name: name}, protocol.Attachment{ContainerID: name}, []netip.Addr{a})
	}
	finds := func(from, to, want string) {
		t.Helper()
		tr.bad = nil
		tr.sendBetween(v, of, from, to, "a test", false)
		if got := fmt.Sprint(tr.bad); !strings.Contains(got, want) || want == "" && len(tr.bad) > 0 {
			t.Errorf("%s to %s: %s, want %q", from, to, got, want)
		}
	}
	finds("p0", "p2", "a forbidden packet from p0 to p2 (10.1.1.2) passes after a test")
	finds("p1", "p0", "")
	v.RemoveRoute(0, netip.MustParsePrefix("10.1.1.0/32"))
	finds("p1", "p0", "a permitted packet from p1 to p0 (10.1.1.0) passed before, and is lost after a test")
	tr.forget(v.Restart)
	finds("p1", "p0", "")
}
