package podnet

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// Logical names of the interfaces that VPP has on every node.
const (
	Gateway   = "gateway"    // loopback with the addresses that pods use as their router
	Host      = "host"       // host link: leads to the node's own network stack
	Overlay   = "overlay"    // loopback in the bridge domain of the tunnels: leads to the pods and addresses of other nodes
	Uplink    = "uplink"     // instead of overlay and underlay: leads to the other nodes directly
	nicPort   = "nic"        // the node's NIC, and the bridge domain that it is in
	nicKernel = "nic-kernel" // leads from that bridge to the node's network stack
	underlay  = "underlay"   // carries the tunnels' outer packets to the node's network stack
)

// Links of the kernel. VPP's ends begin with vppLinks, so that one rule keeps the kernel off their packets.
const (
	vppLinks   = "cv-"
	hostLink   = "contiv-host"
	vxlanLink  = "contiv-vxlan"
	NICLink    = "contiv-nic" // stands for the NIC
	nicPeer    = vppLinks + "nic"
	hostPeer   = vppLinks + "host"
	vxlanPeer  = vppLinks + "vxlan"
	maxLinkTag = 12 // hexadecimal digits of a pod's link
)

// MAC addresses. Every link has two ends only, so all links can have the same ones. The kernel's device at VPP's end has a third, so that the
// kernel takes no frame for its own.
const (
	vppMAC  = "02:ca:c0:00:00:01"
	hostMAC = "02:ca:c0:00:00:02"
	peerMAC = "02:ca:c0:00:00:03"
)

// Addresses that are the same on every node.
var (
	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fd69:254:1::1")
	// The link of the tunnels, a separate range for each family.
	tunnelHost4, tunnelVPP4 = netip.MustParsePrefix("169.254.1.5/30"), netip.MustParsePrefix("169.254.1.6/30")
	tunnelHost6, tunnelVPP6 = netip.MustParsePrefix("fd69:254:1::5/126"), netip.MustParsePrefix("fd69:254:1::6/126")
)

func gatewayOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return gateway4
	}
	return gateway6
}

// single is the prefix of one address.
func single(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

// link is the name of the kernel's link at VPP's end of an attachment, and the part of it that no other attachment has.
func link(a protocol.Attachment) (name, tag string) {
	sum := sha256.Sum256([]byte(a.String()))
	tag = fmt.Sprintf("%x", sum[:])[:maxLinkTag]
	return vppLinks + tag, tag
}

// podMAC is the MAC address of a pod's interface.
func podMAC(a protocol.Attachment) string {
	sum := sha256.Sum256([]byte("mac " + a.String()))
	return localMAC(sum[:])
}

// overlayMAC is the MAC address of a node's overlay interface. All nodes derive it from the node's name.
func overlayMAC(node string) string {
	sum := sha256.Sum256([]byte("overlay " + node))
	return localMAC(sum[:])
}

// uplinkMAC is the MAC address of VPP on a link that it shares with the node's network stack.
func uplinkMAC(node string) string {
	sum := sha256.Sum256([]byte("uplink " + node))
	return localMAC(sum[:])
}

func localMAC(sum []byte) string {
	mac := net.HardwareAddr(append([]byte(nil), sum[:6]...))
	mac[0] = mac[0]&^1 | 2 // an individual, locally administered address
	return mac.String()
}

// maxPodName is the longest name of a pod that fits the tag of its interface in VPP, with a suffix of 8 digits.
const maxPodName = 44

// interfaceName is the logical name of a pod's interface in VPP. It has the pod's name, or a hash of one that is too long for VPP.
func interfaceName(pod string, a protocol.Attachment) string {
	_, tag := link(a)
	if pod == "/" || len(pod) > maxPodName || strings.Count(pod, "/") != 1 {
		sum := sha256.Sum256([]byte(pod))
		pod = "#" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15])
	}
	return kv.PodInterface(pod, tag[:8])
}
