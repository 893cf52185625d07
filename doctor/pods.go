package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	interfaces "go.fd.io/govpp/binapi/interface"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
)

// Pods selects the parts of a node with run --cni. An empty field is not examined.
type Pods struct {
	Socket   string // of the agent
	State    string // folder of the Bolt files
	List     string // path of the agent's network configuration list
	Program  string // path of the installed plugin
	Original string // path of the plugin of this version
}

// podFacts is what the node itself has.
type podFacts struct {
	forward4, forward6 string // settings of the kernel
	filter             error  // of the packet filter; nil: it answers
	drops              []string
	status             error    // of the agent's STATUS
	state              error    // of the folder
	lists              []string // files beside the agent's list, sorted
	listed             error
	program            error // why the installed plugin is not the one of this version
	own, vpp           string
	namespaces         error
	taps               []string       // devices for taps that VPP lacks
	links              map[string]int // MTU by name
	uplink             string         // link of the default route; "": none
}

// Settings of the kernel.
const (
	forward4Path = "/proc/sys/net/ipv4/ip_forward"
	forward6Path = "/proc/sys/net/ipv6/conf/all/forwarding"
)

// Names of links that the agent makes: see plugins/podnet.
const (
	podLinks  = "cv-"
	vxlanLink = "contiv-vxlan"
)

// askPods reads what a node with pods has.
func askPods(ctx context.Context, p *Pods, vppPID uint32) *podFacts {
	f := &podFacts{forward4: setting(forward4Path), forward6: setting(forward6Path), links: map[string]int{}, uplink: defaultLink("/proc/net/route")}
	f.drops, f.filter = linux.ForwardDrops("")
	slices.Sort(f.drops)
	if p.Socket != "" {
		f.status = (&protocol.Client{Socket: p.Socket}).Status(ctx)
	}
	if p.State != "" {
		f.state = unix.Access(p.State, unix.W_OK)
	}
	if p.List != "" {
		f.lists, f.listed = listsBeside(p.List)
	}
	if p.Program != "" {
		f.program = samePlugin(p.Program, p.Original)
	}
	var err error
	f.own, f.namespaces = os.Readlink("/proc/self/ns/net")
	f.vpp, err = os.Readlink(fmt.Sprintf("/proc/%d/ns/net", vppPID))
	f.namespaces = errors.Join(f.namespaces, err)
	f.taps = lacksDevices(fmt.Sprintf("/proc/%d/root", vppPID), podnet.TapDevices)
	links, _ := net.Interfaces() // none: every check of links says so
	for _, l := range links {
		f.links[l.Name] = l.MTU
	}
	return f
}

// lacksDevices returns the devices that do not exist below a root; all, if the root is not visible.
func lacksDevices(root string, devices []string) (out []string) {
	for _, d := range devices {
		if _, err := os.Stat(root + d); err != nil {
			out = append(out, d)
		}
	}
	return out
}

func setting(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

// defaultLink returns the link of the default route, from the kernel's table of IPv4 routes.
func defaultLink(path string) string {
	b, _ := os.ReadFile(path) // none: no route
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) > 1 && words[1] == "00000000" {
			return words[0]
		}
	}
	return ""
}

// listsBeside returns the files that a container runtime may take for a network configuration. It takes the first.
func listsBeside(path string) (out []string, _ error) {
	files, err := os.ReadDir(filepath.Dir(path))
	for _, e := range files {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			out = append(out, e.Name())
		}
	}
	return out, err
}

func samePlugin(installed, original string) error {
	have, err := os.ReadFile(installed)
	if err != nil || original == "" {
		return err
	}
	want, err := os.ReadFile(original)
	if err != nil {
		return nil //nolint:nilerr // this program is not beside the plugin: nothing to compare with
	}
	if string(have) != string(want) {
		return fmt.Errorf("%s is another program than %s", installed, original)
	}
	return nil
}

// podChecks checks a node with run --cni.
func podChecks(f *facts) []Check {
	if f.cfg.Pods == nil || f.node == nil {
		return nil
	}
	p, n := f.cfg.Pods, f.node
	c := make([]Check, 0, 10)
	add := func(name, found string, facts Facts, bad bool, v Verdict, consequence, command string) {
		if !bad {
			v, consequence, command = OK, "", ""
		}
		c = append(c, Check{Name: name, Verdict: v, Found: found, Facts: facts, Consequence: consequence, Command: command})
	}
	const out = "packets of pods neither leave the node nor reach other nodes"
	add("forwarding", "net.ipv4.ip_forward is "+n.forward4, Facts{"setting": "net.ipv4.ip_forward", "value": n.forward4}, n.forward4 != "1", Wrong, out, "sysctl -w net.ipv4.ip_forward=1")
	add("forwarding IPv6", "net.ipv6.conf.all.forwarding is "+n.forward6, Facts{"setting": "net.ipv6.conf.all.forwarding", "value": n.forward6}, n.forward6 != "1", Note, "in IPv6 "+out, "sysctl -w net.ipv6.conf.all.forwarding=1")
	add("packet filter", textOf(n.filter, "nftables answers"), answerOf(n.filter), n.filter != nil, Missing, "no tunnels between nodes, no masquerade, no host ports", "modprobe nf_tables, and run as root")
	add("forward chains", listOf(n.drops, "no foreign chain drops by default"), Facts{"chains": namesIn(n.drops)}, len(n.drops) > 0, Note,
		"packets of pods and of tunnels pass only if a rule there accepts them", "let contiv-host and contiv-vxlan pass in these chains")
	add("tap devices", listOf(n.taps, "VPP has "+strings.Join(podnet.TapDevices, ", ")), Facts{"devices": podnet.TapDevices, "missing": namesIn(n.taps)}, len(n.taps) > 0, Note,
		"VPP lacks these devices: pods have veths. With --pod-interface tap, or a pod's annotation for it, pods do not start", "modprobe -a tun vhost_net, and give VPP's container the devices")
	if p.Socket != "" {
		add("cni status", textOf(n.status, "the agent serves pods"), answerOf(n.status), n.status != nil, Wrong, "no pod starts, or pods have no path out of the node", "")
	}
	if p.State != "" {
		add("state folder", textOf(n.state, p.State+" is writable"), answerOf(n.state).with("path", p.State), n.state != nil, Missing, "the agent cannot keep attachments and addresses", "mkdir -p "+p.State)
	}
	if p.List != "" {
		name := filepath.Base(p.List)
		has := slices.Contains(n.lists, name)
		files := Facts{"name": name, "files": namesIn(n.lists)}
		add("configuration list", listOf(n.lists, "no file"), files, !has, Missing, "container runtimes start no pods with contiv-cni", "see cni status for the reason")
		add("configuration first", listOf(n.lists, "no file"), files, has && n.lists[0] != name, Wrong,
			"container runtimes take "+firstOf(n.lists)+", which is before "+name, "rm "+filepath.Join(filepath.Dir(p.List), firstOf(n.lists)))
	}
	if p.Program != "" {
		add("plugin", textOf(n.program, p.Program+" is the one of this version"), answerOf(n.program).with("path", p.Program), n.program != nil, Wrong, "pods start with another version of the plugin, or not at all",
			"restart the agent, which installs its plugin")
	}
	return append(c, linkChecks(f)...)
}

// linkChecks checks what VPP and the kernel share.
func linkChecks(f *facts) []Check {
	n := f.node
	ns := Check{Name: "network namespace", Verdict: OK, Found: n.vpp, Facts: Facts{"vpp": n.vpp, "agent": n.own}}
	switch {
	case n.namespaces != nil:
		ns = unknown(ns.Name, n.namespaces.Error())
	case n.own != n.vpp:
		ns.Verdict, ns.Found = Wrong, "VPP is in "+n.vpp+", the agent in "+n.own
		ns.Consequence = "VPP does not find the links that the agent makes: no pod gets an interface"
	}
	inVPP := map[string]bool{}
	for _, d := range f.replies[askInterfaces].Details {
		if i, ok := d.(*interfaces.SwInterfaceDetails); ok {
			inVPP[i.InterfaceName] = true
		}
	}
	var loose, links, hosts []string
	for name := range n.links {
		if strings.HasPrefix(name, podLinks) && !inVPP["host-"+name] {
			loose, links = append(loose, "link "+name+" without an interface in VPP"), append(links, name)
		}
	}
	for name := range inVPP {
		link, host := strings.CutPrefix(name, "host-"+podLinks)
		if _, has := n.links[podLinks+link]; host && !has && ns.Verdict == OK {
			loose, hosts = append(loose, "interface "+name+" without a link"), append(hosts, name)
		}
	}
	for _, list := range [][]string{loose, links, hosts} {
		slices.Sort(list)
	}
	both := Check{Name: "links", Verdict: OK, Found: listOf(loose, "each link of a pod has its interface in VPP"), Facts: Facts{"linksAlone": namesIn(links), "interfacesAlone": namesIn(hosts)}}
	if len(loose) > 0 {
		both.Verdict, both.Consequence = Wrong, "these pods have no network, or something is left of them"
		both.Command = "contiv-agent status, for what the agent cannot make"
	}
	mtu := Check{Name: "mtu", Verdict: OK, Found: fmt.Sprintf("%s has %d, %s has %d", vxlanLink, n.links[vxlanLink], n.uplink, n.links[n.uplink])}
	mtu.Facts = Facts{"tunnel": vxlanLink, "tunnelMTU": n.links[vxlanLink], "uplink": n.uplink, "uplinkMTU": n.links[n.uplink]}
	switch most := n.links[n.uplink]; {
	case n.links[vxlanLink] == 0 || most == 0:
		mtu = unknown(mtu.Name, "no link "+vxlanLink+", or no default route")
	case n.links[vxlanLink] > most:
		mtu.Verdict, mtu.Consequence = Wrong, "the node's NIC does not carry the largest packets between pods of different nodes"
		mtu.Command = fmt.Sprintf("contiv-agent run --cni --link-mtu %d", most)
	}
	return []Check{ns, both, mtu}
}

func textOf(err error, good string) string {
	if err != nil {
		return err.Error()
	}
	return good
}

// answerOf is what an examination of the node found: good, or an error.
func answerOf(err error) Facts {
	if err != nil {
		return Facts{"good": false, "error": err.Error()}
	}
	return Facts{"good": true}
}

// with adds a fact.
func (f Facts) with(name string, value any) Facts {
	f[name] = value
	return f
}

// namesIn returns a list that JSON shows as a list, also if it is empty.
func namesIn(list []string) []string { return append([]string{}, list...) }

func listOf(list []string, none string) string {
	if len(list) == 0 {
		return none
	}
	return strings.Join(list, ", ")
}

func firstOf(list []string) string { return listOf(list[:min(len(list), 1)], "none") }
