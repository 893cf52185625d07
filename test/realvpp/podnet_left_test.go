package realvpp

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// left is what a node has in VPP, in its kernel and in the agent's process: one line for each object, sorted, without numbers that are given
// anew.
func (n *podNode) left(t *testing.T) string {
	t.Helper()
	c := plain(vpp.Config{Socket: n.socket()})
	defer c.close()
	if err := c.wait(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	names := map[interface_types.InterfaceIndex]string{}
	each := func(m api.Message, line func(api.Message) string) {
		t.Helper()
		r := c.conn.Do(t.Context(), vpp.Call{Dump: true, Msg: m})[0]
		if r.Err != nil {
			t.Fatalf("%s: %v", m.GetMessageName(), r.Err)
		}
		for _, d := range r.Details {
			if text := line(d); text != "" {
				lines = append(lines, text)
			}
		}
	}
	each(&interfaces.SwInterfaceDump{SwIfIndex: noInterface}, func(m api.Message) string {
		d := m.(*interfaces.SwInterfaceDetails)
		names[d.SwIfIndex] = d.InterfaceName
		if strings.HasPrefix(d.InterfaceName, "tap") { // VPP numbers them in the order in which they were made
			names[d.SwIfIndex] = "tap " + d.Tag
			return "VPP interface tap " + d.Tag
		}
		if strings.HasPrefix(d.InterfaceName, "vxlan_tunnel") {
			return "VPP interface vxlan_tunnel" // VPP numbers them in the order in which they were made
		}
		return "VPP interface " + d.InterfaceName
	})
	learned := map[string]bool{} // neighbours
	for _, af := range []ip_neighbor.IPNeighborDump{{SwIfIndex: noInterface, Af: 0}, {SwIfIndex: noInterface, Af: 1}} {
		each(&af, func(m api.Message) string {
			d := m.(*ip_neighbor.IPNeighborDetails)
			if d.Neighbor.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC == 0 {
				learned[d.Neighbor.IPAddress.String()] = true
				return ""
			}
			return fmt.Sprintf("VPP neighbour %s on %s", d.Neighbor.IPAddress, names[d.Neighbor.SwIfIndex])
		})
	}
	for _, six := range []bool{false, true} {
		for _, table := range []uint32{0, 4789} {
			each(&ip.IPRouteDump{Table: ip.IPTable{TableID: table, IsIP6: six}}, func(m api.Message) string {
				d := m.(*ip.IPRouteDetails)
				if p := d.Route.Prefix.ToIPNet(); learned[p.IP.String()] && table == 0 {
					return "" // VPP makes one for each neighbour
				}
				text := fmt.Sprintf("VPP route %s table %d", d.Route.Prefix, table)
				for _, p := range d.Route.Paths {
					text += fmt.Sprintf(" via %s %s", p.Type, names[interface_types.InterfaceIndex(p.SwIfIndex)])
				}
				return text
			})
		}
	}
	each(&acl.ACLDump{ACLIndex: ^uint32(0)}, func(m api.Message) string { return "VPP access list " + m.(*acl.ACLDetails).Tag })
	lines = append(lines, n.leftInKernel(t)...)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// settled is left, once the node has its routes to the pods of all other nodes, and nothing changes.
func (c *podCluster) settled(n *podNode) (left string) {
	c.t.Helper()
	c.until(n.name+" has routes to the other nodes", func() error {
		before := left
		left = n.left(c.t)
		for _, other := range c.nodes {
			if route := fmt.Sprintf("kernel route 2001:db8:1:%d::/64 ", other.number); other != n && !strings.Contains(left, route) {
				return fmt.Errorf("no %s", route)
			}
		}
		return differ(before, left)
	})
	return left
}

// leftInKernel are the links, routes and neighbours of the node's namespace, and the namespaces that the agent holds.
func (n *podNode) leftInKernel(t *testing.T) (lines []string) {
	t.Helper()
	run := func(prefix string, args ...string) {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			t.Errorf("ip %v: %v: %s", args, err, out)
		}
		for line := range strings.Lines(string(out)) {
			lines = append(lines, prefix+strings.TrimSpace(line))
		}
	}
	n.ns.do(func() {
		all, err := net.Interfaces()
		if err != nil {
			t.Error(err)
		}
		for _, i := range all {
			lines = append(lines, fmt.Sprintf("kernel link %s mtu %d %s", i.Name, i.MTU, i.HardwareAddr))
		}
		run("kernel route ", "route")
		run("kernel route ", "-6", "route")
		run("kernel neighbour ", "neigh", "show", "nud", "permanent")
		run("kernel neighbour ", "-6", "neigh", "show", "nud", "permanent")
	})
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", n.agent.Process.Pid))
	if err != nil || len(open) == 0 {
		t.Errorf("files of the agent: %d, %v", len(open), err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, "net:") || strings.HasPrefix(to, "/proc/") && strings.HasSuffix(to, "/ns/net") {
			lines = append(lines, "namespace held by the agent")
		}
	}
	return lines
}
