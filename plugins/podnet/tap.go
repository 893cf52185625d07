package podnet

import (
	"fmt"
	"os"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	linuxinterfaces "github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
)

// kinds are the interfaces that a pod may ask for; "": it does not.
var kinds = []string{"", protocol.InterfaceVeth, protocol.InterfaceTap, protocol.InterfaceMemif}

// TapDevices are the devices that VPP opens for each tap (tap_create_if of VPP 24.06 to 26.06: without /dev/vhost-net it refuses, retval -11).
var TapDevices = []string{"/dev/net/tun", "/dev/vhost-net"}

// PreferTaps returns tap if this process can open the devices, and otherwise veth with the reason. The kernel loads the module of a device that is
// opened.
func PreferTaps(devices []string) (kind string, why error) {
	for _, path := range devices {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return protocol.InterfaceVeth, fmt.Errorf("taps: %w", err)
		}
	}
	return protocol.InterfaceTap, nil
}

// tap connects a pod's namespace by a tap. VPP makes its link in the node's namespace, under the name of a veth's far end, from which the kernel takes
// no packets; then it moves to the pod, and gets its name, addresses and routes there.
func (b *builder) tap(name string, p *Attachment) {
	near := b.inPod(p)
	near.Type, near.Enabled, near.Mtu = linuxinterfaces.Interface_TAP_TO_VPP, true, uint32(p.MTU)
	near.Link = &linuxinterfaces.Interface_Tap{Tap: &linuxinterfaces.TapLink{VppTapIfName: name}}
	far := &interfaces.Interface{
		Name: name, Type: interfaces.Interface_TAP, Enabled: true, PhysAddress: vppMAC, Mtu: uint32(p.MTU),
		Link: &interfaces.Interface_Tap{Tap: &interfaces.TapLink{Version: 2, HostIfName: p.peer()}},
	}
	unnumbered(far)
	b.put(far, near)
}
