package flags

import (
	"fmt"
	"net"
	"strings"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
)

// direct are the flags of the path between nodes.
type direct struct{ kind, uplink string }

// directFlags need --cni.
var directFlags = []string{"node-to-node", "node-uplink"}

// ofVPP begins the name of an interface that VPP has.
const ofVPP = "vpp:"

func (f *direct) addFlags(set *pflag.FlagSet) {
	set.StringVar(&f.kind, "node-to-node", "vxlan", "path between nodes: vxlan, by tunnels over the kernel's network; direct, by --node-uplink, an interface of VPP to a link of all nodes; needs --cni")
	set.StringVar(&f.uplink, "node-uplink", "", "for --node-to-node direct: a link of the kernel without addresses, which VPP then reads by af_packet; or vpp:NAME, an interface that VPP has with its addresses from its own configuration (DPDK, AF_XDP). Annotation "+
		model.AnnotationUplink+" of the Node has the addresses, as 192.0.2.1/24,2001:db8::1/64; needs --cni")
}

// settings returns the interface; the zero value: tunnels.
func (f *direct) settings() (d podnet.Direct, err error) {
	switch {
	case f.kind != "vxlan" && f.kind != "direct":
		return d, fmt.Errorf("--node-to-node %q: must be vxlan or direct", f.kind)
	case (f.kind == "direct") != (f.uplink != ""):
		return d, fmt.Errorf("--node-to-node %s, --node-uplink %q: direct needs an uplink, and nothing else has one", f.kind, f.uplink)
	case f.kind != "direct":
		return d, nil
	}
	name, is := strings.CutPrefix(f.uplink, ofVPP)
	if is {
		return podnet.Direct{Interface: name}, nil
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return d, fmt.Errorf("--node-uplink %s: %w", name, err)
	}
	addrs, err := link.Addrs()
	if err != nil {
		return d, fmt.Errorf("--node-uplink %s: %w", name, err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() {
			return d, fmt.Errorf("--node-uplink %s: the link has the address %s: it would no longer work, because VPP gets all packets of the link", name, ip)
		}
	}
	return podnet.Direct{Link: name, MAC: link.HardwareAddr.String()}, nil
}
