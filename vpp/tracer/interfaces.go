package tracer

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Interface is what a trace needs to know of an interface.
type Interface struct {
	Name, Tag string
	Kind      string // VPP's interface_dev_type: "af-packet"
	Ethernet  bool   // its packets have an Ethernet header
	// Input and Output are VPP's indexes of the access lists, in order.
	Input, Output []uint32
}

// inputs are the nodes by which packets of an interface come, by its kind (VPP 24.06 to 26.06).
var inputs = map[string]string{
	"af-packet": "af-packet-input", "virtio": "virtio-input", "tap": "virtio-input", "memif": "memif-input", "pg": "pg-input", "dpdk": "dpdk-input",
	"vhost-user": "vhost-user-input",
}

// InputNode returns the node by which packets of the interface come.
func (i *Interface) InputNode() (string, error) {
	node := inputs[i.Kind]
	switch {
	case node == "":
		return "", fmt.Errorf("interface %s is of kind %q, whose packets cannot be traced", i.Name, i.Kind)
	case !i.Ethernet:
		return "", fmt.Errorf("interface %s has no Ethernet header: VPP's filter for traces does not match its packets", i.Name)
	}
	return node, nil
}

// ReadInterfaces returns VPP's interfaces by index.
func ReadInterfaces(ctx context.Context, do Do) (map[uint32]*Interface, error) {
	all, out := ^interface_types.InterfaceIndex(0), map[uint32]*Interface{}
	entry := func(index interface_types.InterfaceIndex) *Interface {
		if out[uint32(index)] == nil {
			out[uint32(index)] = &Interface{}
		}
		return out[uint32(index)]
	}
	for _, r := range do(ctx, vpp.Call{Dump: true, Msg: &interfaces.SwInterfaceDump{SwIfIndex: all}}, vpp.Call{Dump: true, Msg: &acl.ACLInterfaceListDump{SwIfIndex: all}}) {
		if r.Err != nil {
			return nil, fmt.Errorf("interfaces of vpp: %w", r.Err)
		}
		for _, m := range r.Details {
			switch m := m.(type) {
			case *interfaces.SwInterfaceDetails:
				i, mac := entry(m.SwIfIndex), net.HardwareAddr(m.L2Address[:])
				i.Name, i.Tag, i.Kind = fixedText(m.InterfaceName), fixedText(m.Tag), fixedText(m.InterfaceDevType)
				i.Ethernet = !slices.Equal(mac, make(net.HardwareAddr, len(mac)))
			case *acl.ACLInterfaceListDetails:
				i, n := entry(m.SwIfIndex), min(int(m.NInput), len(m.Acls))
				i.Input, i.Output = slices.Clone(m.Acls[:n]), slices.Clone(m.Acls[n:])
			}
		}
	}
	return out, nil
}

// fixedText cuts a string of the binary API at its first NUL.
func fixedText(s string) string {
	text, _, _ := strings.Cut(s, "\x00")
	return text
}
