package realvpp

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// portWorld lets friend in at one UDP port of the pod sealed.
const portWorld = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: sealed-port, namespace: shop}
spec:
  podSelector: {matchLabels: {app: sealed}}
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{protocol: UDP, port: 53}]}]
`

// fragmented are the two fragments of a UDP datagram with 24 bytes after the header: the second begins at byte 16 of the datagram.
func fragmented(src, dst netip.AddrPort, id uint16) (first, second []byte) {
	datagram := make([]byte, 32)
	binary.BigEndian.PutUint16(datagram, src.Port())
	binary.BigEndian.PutUint16(datagram[2:], dst.Port())
	binary.BigEndian.PutUint16(datagram[4:], uint16(len(datagram)))
	if src.Addr().Is6() { // the checksum of IPv6's UDP is required; nothing here reads it
		binary.BigEndian.PutUint16(datagram[6:], 0xffff)
	}
	piece := func(from, to int, more bool) []byte {
		if src.Addr().Is4() {
			b := make([]byte, 20, 52)
			b[0], b[8], b[9] = 0x45, 64, 17
			binary.BigEndian.PutUint16(b[2:], uint16(20+to-from))
			binary.BigEndian.PutUint16(b[4:], id)
			word := uint16(from / 8)
			if more {
				word |= 0x2000
			}
			binary.BigEndian.PutUint16(b[6:], word)
			copy(b[12:], src.Addr().AsSlice())
			copy(b[16:], dst.Addr().AsSlice())
			sum(b[:20], 10)
			return append(b, datagram[from:to]...)
		}
		b := make([]byte, 48, 80)
		b[0], b[6], b[7], b[40] = 0x60, 44, 64, 17
		binary.BigEndian.PutUint16(b[4:], uint16(8+to-from))
		copy(b[8:], src.Addr().AsSlice())
		copy(b[24:], dst.Addr().AsSlice())
		word := uint16(from)
		if more {
			word |= 1
		}
		binary.BigEndian.PutUint16(b[42:], word)
		binary.BigEndian.PutUint32(b[44:], uint32(id))
		return append(b, datagram[from:to]...)
	}
	return piece(0, 16, true), piece(16, 32, false)
}

// TestVPPFragments: which fragments of UDP datagrams reach a pod. A first fragment meets policies like a whole datagram. The others have no ports, so VPP
// matches rules by addresses and protocol alone: those of a datagram to a denied port pass if a rule allows another port, and no host makes a datagram
// of them. No fragment passes from a sender that no rule allows. NAT44 holds them until the first one comes; cnat does not translate them.
func TestVPPFragments(t *testing.T) {
	path := theVPP(t)
	for name, cfg := range identities {
		t.Run(name, func(t *testing.T) {
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
			for i, c := range fragmentCases {
				src, dst := netip.MustParseAddr(c.src), netip.MustParseAddrPort(c.dst)
				held := name == "nat44" && src.Is4()
				want := [3]bool{c.first, c.others, c.others && !held}
				if c.service && name == "cnat" {
					want[1], want[2] = false, false
				}
				first, second := fragmented(netip.AddrPortFrom(src, 5000+uint16(i)), dst, uint16(2*i+1))
				_, alone := fragmented(netip.AddrPortFrom(src, 5000+uint16(i)), dst, uint16(2*i+2))
				var got [3]bool
				for k, b := range [][]byte{first, second, alone} {
					got[k] = w.arrives(t, "pod-shop/"+c.from, "pod-shop/"+c.to, b)
				}
				if got != want {
					t.Errorf("%s -> %s: first, second, second alone: %v, not %v", c.src, c.dst, got, want)
				}
			}
		})
	}
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

// arrives reports whether VPP sends something of that size to an interface.
func (w *twin) arrives(t *testing.T, from, to string, b []byte) bool {
	t.Helper()
	got, err := w.lab.frames.exchangeBytes(w.lab.pairs[from], b)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range got {
		if w.lab.at(c.pair) == to && len(c.raw) == len(b) {
			return true
		}
	}
	return false
}
