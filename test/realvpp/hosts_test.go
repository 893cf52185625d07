package realvpp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gateway4 and gateway6 are the routers of the hosts in namespaces: addresses that VPP has on loop0.
const gateway4, gateway6 = "169.254.1.1", "fd69:254:1::1"

// inhabit puts a host with a separate network stack behind an interface: it has the addresses, and its default route leads to VPP. No
// packets can be injected there any more. The namespace lasts until the lab is closed.
func (l *lab) inhabit(door string, addrs ...netip.Addr) (*netns, error) {
	pair, ok := l.pairs[door]
	if !ok {
		return nil, fmt.Errorf("vpp has no interface %s", door)
	}
	if m := l.moved[door]; m != nil {
		return m.ns, nil // it had the interface of that name before
	}
	n, err := newNetns()
	if err != nil {
		return nil, err
	}
	l.hosts = append(l.hosts, n)
	l.moved[door] = &moved{pair, n, "eth0"}
	if err := n.writeIPv6("default"); err != nil {
		return nil, err
	}
	if err := l.ns.ip(fmt.Sprintf("link set %s netns %s\n", peerName(pair), n.path)); err != nil {
		return nil, err
	}
	return n, n.settle(peerName(pair), hostMAC(pair), vppMAC(pair), addrs)
}

// writeIPv6 makes an interface, or all to come, take nothing from routers and wait for nobody.
func (n *netns) writeIPv6(name string) error {
	var err error
	n.do(func() {
		for key, value := range map[string]string{"accept_ra": "0", "accept_dad": "0", "dad_transmits": "0", "router_solicitations": "0", "disable_ipv6": "0"} {
			err = errors.Join(err, os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/"+key, []byte(value), 0))
		}
	})
	return err
}

// settle makes a link that came to the namespace eth0, with addresses and a router who need not be asked who he is.
func (n *netns) settle(link string, own, router [6]byte, addrs []netip.Addr) error {
	var b strings.Builder
	fmt.Fprintf(&b, "link set lo up\nlink set %s down\nlink set %s name eth0\nlink set eth0 address %s up\n", link, link, net.HardwareAddr(own[:]))
	ways := map[string]string{}
	for _, a := range addrs {
		if a.Is4() {
			fmt.Fprintf(&b, "addr add %s/32 dev eth0\n", a)
			ways["0.0.0.0/0"] = gateway4
		} else {
			fmt.Fprintf(&b, "addr add %s/128 dev eth0 nodad\n", a)
			ways["::/0"] = gateway6
		}
	}
	for to, gateway := range ways {
		fmt.Fprintf(&b, "neigh add %s lladdr %s dev eth0 nud permanent\nroute add %s via %s dev eth0 onlink\n", gateway, net.HardwareAddr(router[:]), to, gateway)
	}
	err := n.ip(b.String())
	n.do(func() { err = errors.Join(err, wholeChecksums("eth0")) })
	return err
}

// wholeChecksums makes the kernel finish the checksums of what it sends on an interface, as it does not for a veth pair: af_packet hands
// frames to VPP as they are.
func wholeChecksums(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := &struct{ command, data uint32 }{unix.ETHTOOL_STXCSUM, 0}
	request := struct { // struct ifreq of linux/if.h
		name  [unix.IFNAMSIZ]byte
		value unsafe.Pointer
		_     [16]byte
	}{value: unsafe.Pointer(value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); e != 0 {
		return fmt.Errorf("switch checksum offload of %s off: %w", name, e)
	}
	return nil
}
