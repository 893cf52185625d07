// Command contiv-cni is the CNI plugin of contiv-agent: it turns a call of a container runtime into a call of the agent of the node.
//
// Invariant: the plugin holds no state beside DELs that found no agent. A call that fails leaves nothing that a DEL does not remove.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

func main() { mainOf(newPlugin(protocol.DefaultSocket, protocol.DefaultSpool)) }

// mainOf carries out the call that the environment names.
func mainOf(p *plugin) {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: p.add, Del: p.del, Check: p.check, GC: p.gc, Status: p.status,
	}, version.PluginSupports("0.4.0", "1.0.0", "1.1.0"), "contiv-cni: the CNI plugin of contiv-agent; contiv-cni(8) describes its configuration")
}
