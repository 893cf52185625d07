package realvpp

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/binapi/ip"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

var update = flag.Bool("update", false, "rewrite testdata/fragments-*.txt")

// portWorld lets friend in at one UDP port of the pod sealed.
const portWorld = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: sealed-port, namespace: shop}
spec:
  podSelector: {matchLabels: {app: sealed}}
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{protocol: UDP, port: 53}]}]
`

// TestVPPFragments: which fragments of UDP datagrams reach a pod. A first fragment meets policies like a whole datagram. The others have no ports, so VPP
// matches rules by addresses and protocol alone: those of a datagram to a denied port pass if a rule allows another port, and no host makes a datagram
// of them. No fragment passes from a sender that no rule allows. NAT44 holds them until the first one arrives; cnat does not translate them.
func TestVPPFragments(t *testing.T) {
	path := theVPP(t)
	for name, cfg := range identities {
		t.Run(name, func(t *testing.T) {
			w := startFragments(t, path, name, cfg)
			for i, c := range fragmentCases {
				src, dst := netip.MustParseAddr(c.src), netip.MustParseAddrPort(c.dst)
				held := name == "nat44" && src.Is4()
				want := [3]bool{c.first, c.others, c.others && !held}
				if c.service && name == "cnat" {
					want[1], want[2] = false, false
				}
				datagram := packet.NewUDP(netip.AddrPortFrom(src, 5000+uint16(i)), dst)
				parts, alone := packet.Split(&datagram, 2, uint16(2*i+1)), packet.Split(&datagram, 2, uint16(2*i+2))
				var got [3]bool
				for k, p := range []packet.Packet{parts[0], parts[1], alone[1]} {
					out, err := w.send("pod-shop/"+c.from, same(p))
					if err != nil {
						t.Fatal(err)
					}
					got[k] = len(out) == 1 && out[0].at == "pod-shop/"+c.to
				}
				if got != want {
					t.Errorf("%s -> %s: first, second, second alone: %v, not %v", c.src, c.dst, got, want)
				}
			}
		})
	}
}

// startFragments starts both VPPs with the world of the fragments. They wait for first fragments for longer than a packet of a test may take.
func startFragments(t *testing.T, path, name string, cfg agent.Config) *twin {
	t.Helper()
	w := startTwin(t, path, "node-1", cfg)
	if name == "cnat" && w.lab.newerCNAT() {
		t.Skip("the simulated VPP does not have the cnat of VPP 26.06")
	}
	file := filepath.Join(t.TempDir(), "ports.yaml")
	if err := os.WriteFile(file, []byte(portWorld), 0o600); err != nil {
		t.Fatal(err)
	}
	more, err := manifest.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.apply(append(identityManifest(t, identityWorld), more...)); err != nil {
		t.Fatal(err)
	}
	if err := w.patient(); err != nil {
		t.Fatal(err)
	}
	return w
}

// patient lets both VPPs wait for fragments for longer than a packet of a test may take.
func (w *twin) patient() error {
	wait := func(of ip.IPReassType, v6 bool) error {
		return w.both(&ip.IPReassemblySet{TimeoutMs: 60_000, MaxReassemblies: 1024, MaxReassemblyLength: 3, ExpireWalkIntervalMs: 10_000, Type: of, IsIP6: v6})
	}
	return errors.Join(wait(ip.IP_REASS_TYPE_SHALLOW_VIRTUAL, false), wait(ip.IP_REASS_TYPE_FULL, false), wait(ip.IP_REASS_TYPE_FULL, true))
}

// TestVPPFragmentStories plays fragments one after the other on both VPPs, which must send on the same: what testdata says.
func TestVPPFragmentStories(t *testing.T) {
	path := theVPP(t)
	for name, cfg := range identities {
		t.Run(name, func(t *testing.T) {
			w := startFragments(t, path, name, cfg)
			var text strings.Builder
			for i, s := range fragmentStories {
				fmt.Fprintf(&text, "# %s\n", s.name)
				for _, step := range s.steps {
					got, err := w.fragmentStep(i, step)
					if err != nil {
						t.Errorf("%s: %v", s.name, err)
						break
					}
					text.WriteString(got)
				}
			}
			golden := filepath.Join("testdata", "fragments-"+name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(text.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), text.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", golden, diff)
			}
		})
	}
}

// fragmentStep sends a packet of a story, "<interface>: <packet>", and returns it with what leaves both VPPs.
func (w *twin) fragmentStep(story int, step string) (string, error) {
	from, line, _ := strings.Cut(step, ": ")
	p, err := packet.Parse(line)
	if err != nil {
		return "", err
	}
	if p.Fragment.Any() {
		p.Fragment.ID += uint16(100 * story) // no datagram of another story
	}
	in := "pod-shop/" + from
	if from == cni.Uplink {
		in = from
	}
	out, err := w.send(in, same(p))
	if err != nil {
		return "", err
	}
	text := from + ": " + p.String() + "\n"
	for _, l := range out {
		if l.sim.IsICMPError() {
			continue // VPP sends few in a time
		}
		text += "  " + strings.TrimPrefix(l.at, "pod-shop/") + " gets " + l.sim.String() + "\n"
	}
	return text, nil
}

var fragmentStories = []struct {
	name  string
	steps []string
}{
	{"the answer to a whole request: nothing knows its later fragments", []string{
		"sealed: udp 10.1.1.68:40000 -> 10.1.1.66:53",
		"evil: udp 10.1.1.66:53 -> 10.1.1.68:40000 fragment 1 offset 0 length 24 more",
		"evil: udp 10.1.1.66:0 -> 10.1.1.68:0 fragment 1 offset 24 length 24",
	}},
	{"the answer to a request in fragments: the request made no session for later ones, either", []string{
		"sealed: udp 10.1.1.68:40001 -> 10.1.1.66:53 fragment 1 offset 0 length 24 more",
		"sealed: udp 10.1.1.68:0 -> 10.1.1.66:0 fragment 1 offset 24 length 24",
		"evil: udp 10.1.1.66:53 -> 10.1.1.68:40001 fragment 2 offset 0 length 24 more",
		"evil: udp 10.1.1.66:0 -> 10.1.1.68:0 fragment 2 offset 24 length 24",
	}},
	{"later ones first", []string{
		"friend: udp 10.1.1.4:0 -> 10.96.0.20:0 fragment 1 offset 24 length 24 more",
		"friend: udp 10.1.1.4:0 -> 10.96.0.20:0 fragment 1 offset 48 length 24",
		"friend: udp 10.1.1.4:5100 -> 10.96.0.20:6379 fragment 1 offset 0 length 24 more",
		"friend: udp 10.1.1.4:0 -> 10.96.0.20:0 fragment 1 offset 24 length 24 more",
	}},
	{"too many later ones", []string{
		"friend: udp 10.1.1.4:0 -> 10.1.1.3:0 fragment 1 offset 24 length 24 more",
		"friend: udp 10.1.1.4:0 -> 10.1.1.3:0 fragment 1 offset 48 length 24 more",
		"friend: udp 10.1.1.4:0 -> 10.1.1.3:0 fragment 1 offset 72 length 24 more",
		"friend: udp 10.1.1.4:0 -> 10.1.1.3:0 fragment 1 offset 96 length 24",
		"friend: udp 10.1.1.4:5101 -> 10.1.1.3:53 fragment 1 offset 0 length 24 more",
	}},
	{"a second first one has other ports", []string{
		"friend: udp 10.1.1.4:5102 -> 10.96.0.20:6379 fragment 1 offset 0 length 24 more",
		"friend: udp 10.1.1.4:5103 -> 10.96.0.20:53 fragment 1 offset 0 length 24 more",
		"friend: udp 10.1.1.4:5104 -> 10.1.1.68:53 fragment 2 offset 0 length 24 more",
		"friend: udp 10.1.1.4:5105 -> 10.1.1.68:54 fragment 2 offset 0 length 24 more",
		"friend: udp 10.1.1.4:0 -> 10.1.1.68:0 fragment 2 offset 24 length 24",
	}},
	{"pings", []string{
		"friend: icmp 10.1.1.4 -> 10.1.1.3 echo-request id 7 fragment 1 offset 0 length 24 more",
		"friend: icmp 10.1.1.4 -> 10.1.1.3 echo-reply id 0 fragment 1 offset 24 length 24",
		"victim: icmp 10.1.1.3 -> 10.1.1.4 echo-reply id 7 fragment 2 offset 0 length 24 more",
		"victim: icmp 10.1.1.3 -> 10.1.1.4 echo-reply id 0 fragment 2 offset 24 length 24",
		"evil: icmp 10.1.1.66 -> 10.1.1.3 echo-reply id 0 fragment 3 offset 24 length 24",
		"friend: icmpv6 fd00:1::4 -> fd00:1::3 echo-request id 7 fragment 1 offset 0 length 24 more",
		"friend: icmpv6 fd00:1::4 -> fd00:1::3 type 0 code 0 fragment 1 offset 24 length 24",
		"evil: icmpv6 fd00:1::66 -> fd00:1::3 type 0 code 0 fragment 1 offset 24 length 24",
	}},
	{"pings to VPP itself: whole, reversed, one twice, one missing, four, five", []string{
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-request id 7 fragment 1 offset 0 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 1 offset 24 length 24",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 2 offset 48 length 24",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 2 offset 24 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-request id 7 fragment 2 offset 0 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-request id 7 fragment 3 offset 0 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-request id 7 fragment 3 offset 0 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 3 offset 24 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 3 offset 48 length 24",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-request id 7 fragment 4 offset 0 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 4 offset 48 length 24",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-request id 7 fragment 5 offset 0 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 5 offset 24 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 5 offset 48 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 5 offset 72 length 24",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-request id 7 fragment 6 offset 0 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 6 offset 24 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 6 offset 48 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 6 offset 72 length 24 more",
		"friend: icmp 10.1.1.4 -> 169.254.1.1 echo-reply id 0 fragment 6 offset 96 length 24",
	}},
	{"datagrams to VPP itself whose checksum VPP verifies", []string{
		"friend: icmpv6 fd00:1::4 -> fd69:254:1::1 echo-request id 7 fragment 1 offset 0 length 24 more",
		"friend: icmpv6 fd00:1::4 -> fd69:254:1::1 type 0 code 0 fragment 1 offset 24 length 24",
		"friend: udp 10.1.1.4:4000 -> 169.254.1.1:80 fragment 2 offset 0 length 24 more",
		"friend: udp 10.1.1.4:0 -> 169.254.1.1:0 fragment 2 offset 24 length 24",
	}},
	{"TCP by a Service", []string{
		"friend: tcp 10.1.1.4:5106 -> 10.96.0.20:6379 [S] fragment 1 offset 0 length 24 more",
		"friend: tcp 10.1.1.4:0 -> 10.96.0.20:0 [-] fragment 1 offset 24 length 24",
		"victim: tcp 10.1.1.3:6379 -> 10.1.1.4:5106 [SA] fragment 2 offset 0 length 24 more",
		"victim: tcp 10.1.1.3:0 -> 10.1.1.4:0 [-] fragment 2 offset 24 length 24",
	}},
	{"SCTP", []string{
		"friend: sctp 10.1.1.4:0 -> 10.1.1.3:0 fragment 1 offset 24 length 24",
		"friend: sctp 10.1.1.4:5107 -> 10.1.1.3:53 [INIT] fragment 1 offset 0 length 24 more",
		"friend: sctp [fd00:1::4]:5107 -> [fd00:1::3]:53 [INIT] fragment 1 offset 0 length 24 more",
		"friend: sctp [fd00:1::4]:0 -> [fd00:1::3]:0 fragment 1 offset 24 length 24",
	}},
	{"to an address outside", []string{
		"friend: udp 10.1.1.4:5108 -> 198.51.100.7:53 fragment 1 offset 0 length 24 more",
		"friend: udp 10.1.1.4:0 -> 198.51.100.7:0 fragment 1 offset 24 length 24",
		"friend: udp 10.1.1.4:5108 -> 198.51.100.7:53 fragment 3 offset 0 length 24 more",
		"friend: udp 10.1.1.4:0 -> 198.51.100.7:0 fragment 3 offset 24 length 24",
		"friend: icmp 10.1.1.4 -> 198.51.100.7 echo-request id 9 fragment 2 offset 0 length 24 more",
		"friend: icmp 10.1.1.4 -> 198.51.100.7 echo-reply id 0 fragment 2 offset 24 length 24",
	}},
	{"from an address outside", []string{
		"uplink: udp 198.51.100.7:5109 -> 10.1.1.4:53 fragment 1 offset 0 length 24 more",
		"uplink: udp 198.51.100.7:0 -> 10.1.1.4:0 fragment 1 offset 24 length 24",
		"uplink: udp 198.51.100.7:5109 -> 10.1.1.3:53 fragment 2 offset 0 length 24 more",
		"uplink: udp 198.51.100.7:0 -> 10.1.1.3:0 fragment 2 offset 24 length 24",
		"uplink: udp 10.1.1.4:0 -> 10.1.1.3:0 fragment 3 offset 24 length 24",
	}},
}

// fragmentCases are senders and receivers, and whether the first fragment passes, and the others.
var fragmentCases = []struct {
	from, to, src, dst     string
	first, others, service bool
}{
	{"friend", "victim", "10.1.1.4", "10.1.1.3:53", true, true, false},
	{"friend", "victim", "fd00:1::4", "[fd00:1::3]:53", true, true, false},
	{"evil", "victim", "10.1.1.66", "10.1.1.3:53", false, false, false},
	{"evil", "victim", "fd00:1::66", "[fd00:1::3]:53", false, false, false},
	{"friend", "sealed", "10.1.1.4", "10.1.1.68:53", true, true, false},
	{"friend", "sealed", "fd00:1::4", "[fd00:1::68]:53", true, true, false},
	{"friend", "sealed", "10.1.1.4", "10.1.1.68:54", false, true, false},
	{"friend", "sealed", "fd00:1::4", "[fd00:1::68]:54", false, true, false},
	{"evil", "sealed", "10.1.1.66", "10.1.1.68:53", false, false, false},
	{"evil", "sealed", "fd00:1::66", "[fd00:1::68]:53", false, false, false},
	{"friend", "victim", "10.1.1.4", "10.96.0.20:6379", true, true, true},
	{"evil", "victim", "10.1.1.66", "10.96.0.20:6379", false, false, true},
}

// reportsMany reports whether a packet makes VPP report several packets of a vector at once. It reports the first one between two addresses, but of
// others it reports as many as four bits of a hash let it (ip_null_dpo.c).
func (w *twin) reportsMany(in string, p *packet.Packet) bool {
	mark := w.sim.Snapshot()
	defer w.sim.Release()
	fate := w.sim.Send(in, *p)
	w.sim.Restore(mark)
	n := 0
	for _, h := range fate.Hops {
		if h.Node == "ip4-icmp-error" {
			n++
		}
	}
	return n > 1
}

// fragmentOdds: one of so many moves has a datagram in fragments behind it.
const fragmentOdds = 4

// sendFragments sends the opening of a flow in fragments, now and then: in order or not, without one, with a second first one.
func (c *sequenceCase) sendFragments() error {
	list := slices.Concat(c.tried, c.dials, c.flows)
	if c.beside.IntN(fragmentOdds) > 0 || len(list) == 0 {
		return nil
	}
	o := list[c.beside.IntN(len(list))]
	if o.first.IsICMPError() {
		return nil
	}
	c.id++
	parts := packet.Split(&o.first, 2+c.beside.IntN(2), c.id)
	switch c.beside.IntN(6) {
	case 0:
		slices.Reverse(parts)
	case 1:
		parts = parts[1:]
	case 2:
		if second := parts[0]; second.HasPorts() {
			second.SrcPort, second.DstPort = second.SrcPort^1, second.DstPort^1
			parts = slices.Insert(parts, 1, second)
		}
	}
	before := c.sent
	defer func() {
		c.counts.moves["fragments"] += c.sent - before
		c.counts.packets += c.sent - before
	}()
	for _, p := range parts {
		if c.reportsMany(o.in, &p) {
			c.counts.excused["not sent: a first fragment behind which VPP would report several that waited, between different addresses"]++
			return nil
		}
		if _, err := c.transmit(o.in, same(p)); err != nil {
			return err
		}
	}
	return nil
}
