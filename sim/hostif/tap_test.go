package hostif_test

import (
	"fmt"
	"net"
	"os"
	"testing"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/tapv2"
)

// openTaps is a VPP whose hosts have taps that VPP made in their namespaces, with addresses and MTU.
func openTaps(t *testing.T, flags tapv2.TapFlags) *world {
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		t.Skipf("needs the kernel's tun driver: %v", err)
	} else if err := f.Close(); err != nil {
		t.Error(err)
	}
	w := enter(t)
	for _, h := range []*namespace{w.a, w.b} {
		h.do(func() {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0); err != nil { // VPP does not ask the kernel to skip that
				t.Error(err)
			}
		})
	}
	w.start(t)
	w.makeTaps(t, flags)
	return w
}

func (w *world) makeTaps(t *testing.T, flags tapv2.TapFlags) {
	for i, h := range []*namespace{w.a, w.b} {
		n := i + 1
		m := &tapv2.TapCreateV3{
			ID: ^uint32(0), UseRandomMac: true, NumRxQueues: 1, NumTxQueues: 1, HostIfNameSet: true, HostIfName: "eth0", HostNamespaceSet: true, HostNamespace: h.path,
			HostMacAddrSet: true, HostMacAddr: [6]byte{2, 0, 0, 0, 0, byte(n)}, HostMtuSet: true, HostMtuSize: 1400, TapFlags: flags,
		}
		if flags&tapv2.TAP_API_FLAG_ATTACH == 0 {
			m.HostIP4PrefixSet, m.HostIP4Prefix = true, ip_types.IP4AddressWithPrefix{Address: [4]byte{10, byte(n), 0, 2}, Len: 24}
			m.HostIP6PrefixSet, m.HostIP6Prefix = true, ip_types.IP6AddressWithPrefix{Address: [16]byte{0: 0xfd, 3: byte(n), 15: 2}, Len: 64}
		}
		index := w.do(m)[0].Msg.(*tapv2.TapCreateV3Reply).SwIfIndex
		w.do(up(index, true), &ip.SwInterfaceIP6EnableDisable{SwIfIndex: index, Enable: true},
			address(index, fmt.Sprintf("10.%d.0.1/24", n)), address(index, fmt.Sprintf("fd00:%d::1/64", n)))
		if flags&tapv2.TAP_API_FLAG_ATTACH == 0 {
			h.ip(t, fmt.Sprintf("link set lo up\nroute add default via 10.%d.0.1\nroute add default via fd00:%d::1\n", n, n))
		}
	}
}

// link is eth0 of a host; nil: it has none.
func (n *namespace) link() (found *net.Interface) {
	n.do(func() { found, _ = net.InterfaceByName("eth0") })
	return found
}

// talks fails unless the hosts exchange bytes in both families, by a port that is new.
func (w *world) talks(t *testing.T, port string) {
	t.Helper()
	for _, host := range []string{"10.2.0.2", "fd00:2::2"} {
		at := net.JoinHostPort(host, port)
		w.serve(t, "tcp", at)
		w.serve(t, "udp", at)
		for network, n := range map[string]int{"tcp": 1 << 20, "udp": 1200} {
			c, err := w.dial(t, network, at)
			if err == nil && network == "udp" {
				err = retried(c, n)
			} else if err == nil {
				err = echo(c, n)
			}
			if err != nil {
				t.Errorf("%s %s: %v", network, at, err)
			}
		}
	}
}

// TestTaps: VPP makes a link in the namespace of a request, with address, MAC and MTU; programs talk by it. It is gone with its deletion, and with VPP.
func TestTaps(t *testing.T) {
	w := openTaps(t, 0)
	if l := w.a.link(); l == nil || l.MTU != 1400 || l.HardwareAddr.String() != "02:00:00:00:00:01" || l.Flags&net.FlagUp == 0 {
		t.Fatalf("eth0 is %+v", l)
	}
	w.talks(t, "7")
	w.do(&tapv2.TapDeleteV2{SwIfIndex: 2})
	if w.b.link() != nil || w.a.link() == nil {
		t.Errorf("after the deletion of one: %v, %v", w.b.link(), w.a.link())
	}
	w.stop()
	if w.a.link() != nil {
		t.Error("the link outlives VPP")
	}
}

// TestTapMoved: a tap keeps its VPP when its link moves to another namespace, under another name. When the kernel removes the link with the
// namespace, VPP keeps the interface until it is asked to delete it.
func TestTapMoved(t *testing.T) {
	w := openTaps(t, 0)
	w.do(&tapv2.TapDeleteV2{SwIfIndex: 2})
	index := w.do(&tapv2.TapCreateV3{ID: ^uint32(0), UseRandomMac: true, HostIfNameSet: true, HostIfName: "moves"})[0].Msg.(*tapv2.TapCreateV3Reply).SwIfIndex
	w.do(up(index, true), address(index, "10.2.0.1/24"), address(index, "fd00:2::1/64"))
	w.vpp.ip(t, fmt.Sprintf("link set moves netns %s name eth0\n", w.b.path))
	w.b.ip(t, "link set eth0 up\naddr add 10.2.0.2/24 dev eth0\naddr add fd00:2::2/64 dev eth0 nodad\nroute add default via 10.2.0.1\nroute add default via fd00:2::1\n")
	w.talks(t, "8")
	w.b.ip(t, "link del eth0\n")
	w.do(up(index, false), up(index, true), &tapv2.TapDeleteV2{SwIfIndex: index})
}

// TestTapOutlivesVPP: with the flag PERSIST a link stays when VPP ends, with its addresses and routes, and ATTACH gives it to the next VPP. Deletion
// removes it nevertheless.
func TestTapOutlivesVPP(t *testing.T) {
	w := openTaps(t, tapv2.TAP_API_FLAG_PERSIST)
	w.talks(t, "9")
	before := w.a.link()
	w.stop()
	if l := w.a.link(); l == nil || l.Index != before.Index {
		t.Fatalf("the link was %v, and is %v without VPP", before, l)
	}
	w.start(t)
	w.makeTaps(t, tapv2.TAP_API_FLAG_PERSIST|tapv2.TAP_API_FLAG_ATTACH)
	if l := w.a.link(); l == nil || l.Index != before.Index {
		t.Fatalf("the link was %v, and the next VPP has %v", before, l)
	}
	w.talks(t, "10")
	w.do(&tapv2.TapDeleteV2{SwIfIndex: interface_types.InterfaceIndex(1)})
	if l := w.a.link(); l != nil {
		t.Errorf("after the deletion there is %v", l)
	}
}
