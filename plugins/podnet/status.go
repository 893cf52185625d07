package podnet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/ipam"
)

// Status returns why no Add can be served, with the code 50, or why pods have no path out of the node, with the code 51.
func (n *Network) Status(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if why := n.unready(); why != "" {
		return protocol.Errorf(protocol.CodeNotAvailable, "%s", why)
	}
	if why := limited(n); why != "" {
		return protocol.Errorf(protocol.CodeLimited, "%s", why)
	}
	return nil
}

// unready returns why no Add can be served; "": it can. The caller holds mu.
func (n *Network) unready() string {
	own, silent := n.cluster.ownNode(&n.cfg.Settings), hung(n)
	switch {
	case n.emit == nil:
		return "the agent is starting or stopping"
	case n.vpp != nil:
		return fmt.Sprintf("VPP is away: %v", n.vpp)
	case silent != "":
		return silent
	case own == nil:
		return fmt.Sprintf("the agent knows no Node %s yet", n.cfg.NodeName)
	case len(own.PodCIDRs) == 0:
		return fmt.Sprintf("Node %s has no spec.podCIDRs", n.cfg.NodeName)
	case n.states.last != nil:
		return fmt.Sprintf("VPP does not take transactions: %v", n.states.last)
	}
	return n.states.firstMissing(essential)
}

// hung returns why VPP is taken for hung; "": it answers, or is away. The caller holds mu.
func hung(n *Network) string {
	if n.silent == nil || n.vpp != nil {
		return ""
	}
	return n.silent()
}

// essential are the keys of the values without which no pod has a network.
var essential = []string{
	"config/vpp/v2/interfaces/" + Gateway, "config/vpp/v2/interfaces/" + Host, "config/linux/interfaces/v2/interface/" + hostLink,
}

// limited returns why packets of pods do not leave the node; "": they do. The caller holds mu.
func limited(n *Network) string {
	if why := forwards(settings, n.cluster.ownNode(&n.cfg.Settings)); why != "" {
		return why
	}
	if why := n.cfg.Direct.incomplete(n.cluster.ownNode(&n.cfg.Settings)); why != "" {
		return why
	}
	for _, key := range n.base.Keys() {
		if why := n.states.missing(key); why != "" {
			return why
		}
	}
	return ""
}

// Bridges returns why VPP does not carry the frames of the node's NIC; "": it does. connected is about VPP's connection alone.
func (n *Network) Bridges(connected bool) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.vpp != nil:
		return fmt.Sprintf("VPP is away: %v", n.vpp)
	case connected:
		return ""
	case n.emit == nil:
		return "the agent is starting or stopping"
	case n.states.last != nil:
		return fmt.Sprintf("VPP does not take transactions: %v", n.states.last)
	}
	return n.states.firstMissing(nicKeys())
}

// settings is the folder of the settings of the reader's network namespace.
const settings = "/proc/sys/net"

// forwards returns why the kernel does not forward packets of a family that a node has; "": it does.
func forwards(folder string, n *model.Node) string {
	for _, f := range []struct {
		v6   bool
		file string
	}{{false, "ipv4/ip_forward"}, {true, "ipv6/conf/all/forwarding"}} {
		if !podCIDR(n, f.v6).IsValid() && !internal(n, f.v6).IsValid() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(folder, f.file))
		if err == nil && strings.TrimSpace(string(b)) == "0" {
			return fmt.Sprintf("net.%s is 0: set it to 1, so that packets between nodes and to the outside pass", strings.ReplaceAll(f.file, "/", "."))
		}
	}
	return ""
}

// Check returns an error if the attachment does not have what its Add returned.
func (n *Network) Check(_ context.Context, r protocol.Request, previous *protocol.Result) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.attached[r.Attachment]
	switch {
	case a == nil:
		return protocol.Errorf(protocol.CodeUnknownContainer, "%s is not attached", r.Attachment)
	case r.Netns != "" && r.Netns != a.Netns:
		return protocol.Errorf(protocol.CodeInvalidEnvironment, "%s is attached in %s, not in %s", r.Attachment, a.Netns, r.Netns)
	}
	if why := namespaceGone(a.Netns); why != nil {
		return protocol.Errorf(protocol.CodeInvalidEnvironment, "%v", why)
	}
	if previous != nil {
		for _, ip := range result(a).IPs {
			if !slices.ContainsFunc(previous.IPs, func(p protocol.IP) bool { return p.Address.Addr() == ip.Address.Addr() }) {
				return protocol.Errorf(protocol.CodeInvalidConfig, "address %s is missing in the previous result", ip.Address.Addr())
			}
		}
	}
	if why := n.states.firstMissing(n.cluster.podValues(&n.cfg.Settings, a).Keys()); why != "" {
		return protocol.Errorf(protocol.CodeTryAgainLater, "%s", why)
	}
	return nil
}

// released is an address that waits until nothing refers to its former pod. by is nil for one of an earlier process.
type released struct {
	ipam.Released
	by *removal
}

// forgetEvery is how often the network looks whether something still refers to released addresses.
const forgetEvery = time.Second

// forgetWhenDue lets released addresses be used again until ctx ends.
func (n *Network) forgetWhenDue(ctx context.Context) {
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.forget()
		}
	}
}

// forget releases the addresses that nothing refers to: VPP has removed the attachment, no Pod has the address, and every transaction since then
// has ended.
func (n *Network) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.states.last != nil || n.unready() != "" {
		return
	}
	used := map[addr]bool{}
	for _, k := range n.pods {
		for _, a := range k.pod.IPs {
			used[a] = used[a] || !k.pod.Finished
		}
	}
	n.released = slices.DeleteFunc(n.released, func(r released) bool {
		if used[r.Addr] || r.by != nil && len(r.by.keys) > 0 {
			return false
		}
		n.cfg.Pool.Forget(r.Released)
		return true
	})
}
