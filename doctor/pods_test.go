package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// goodNode is a node without findings, and its VPP's interfaces.
func goodNode() *facts {
	return &facts{
		cfg: Config{Pods: &Pods{Socket: "/run/agent.sock", State: "/state", List: "/etc/cni/net.d/10-contiv.conflist", Program: "/opt/cni/bin/contiv-cni", Original: "/bin/contiv-cni"}},
		replies: map[string]vpp.Reply{askInterfaces: {Details: []api.Message{
			&interfaces.SwInterfaceDetails{InterfaceName: "host-cv-1"}, &interfaces.SwInterfaceDetails{InterfaceName: "host-eth7"}, &interfaces.SwInterfaceDetails{InterfaceName: "loop0"},
		}}},
		node: &podFacts{
			forward4: "1", forward6: "1", lists: []string{"10-contiv.conflist", "20-other.conf"}, own: "net:[1]", vpp: "net:[1]",
			links: map[string]int{"cv-1": 1450, "eth0": 1500, vxlanLink: 1500}, uplink: "eth0",
		},
	}
}

// TestPods: each fault of a node is one finding, and nothing else.
func TestPods(t *testing.T) {
	all := podChecks(goodNode())
	names := map[string]bool{}
	for _, c := range all {
		stated(t, c)
		if names[c.Name] = true; c.Verdict != OK {
			t.Errorf("a good node: %+v", c)
		}
	}
	no := errors.New("no")
	for _, tc := range []struct {
		name    string
		verdict Verdict
		text    string
		change  func(*podFacts)
	}{
		{"forwarding", Wrong, "ip_forward is 0", func(n *podFacts) { n.forward4 = "0" }},
		{"forwarding IPv6", Note, "forwarding is 0", func(n *podFacts) { n.forward6 = "0" }},
		{"packet filter", Missing, "no", func(n *podFacts) { n.filter = no }},
		{"forward chains", Note, "ip filter FORWARD", func(n *podFacts) { n.drops = []string{"ip filter FORWARD"} }},
		{"tap devices", Note, "/dev/vhost-net", func(n *podFacts) { n.taps = []string{"/dev/vhost-net"} }},
		{"cni status", Wrong, "no", func(n *podFacts) { n.status = no }},
		{"state folder", Missing, "no", func(n *podFacts) { n.state = no }},
		{"configuration list", Missing, "20-other.conf", func(n *podFacts) { n.lists = n.lists[1:] }},
		{"configuration list", Missing, "no file", func(n *podFacts) { n.lists = nil }},
		{"configuration first", Wrong, "05-x.conf", func(n *podFacts) { n.lists = append([]string{"05-x.conf"}, n.lists...) }},
		{"plugin", Wrong, "no", func(n *podFacts) { n.program = no }},
		{"network namespace", Wrong, "net:[2]", func(n *podFacts) { n.vpp = "net:[2]" }},
		{"network namespace", Unknown, "no", func(n *podFacts) { n.namespaces = no }},
		{"links", Wrong, "link cv-2 without", func(n *podFacts) { n.links["cv-2"] = 1450 }},
		{"links", Wrong, "interface host-cv-1 without", func(n *podFacts) { delete(n.links, "cv-1") }},
		{"mtu", Wrong, "eth0 has 1400", func(n *podFacts) { n.links["eth0"] = 1400 }},
		{"mtu", Unknown, "no default route", func(n *podFacts) { n.uplink = "" }},
	} {
		f := goodNode()
		tc.change(f.node)
		delete(names, tc.name)
		seen := false
		for _, c := range podChecks(f) {
			stated(t, c)
			seen = seen || c.Name == tc.name
			switch {
			case c.Name != tc.name && c.Verdict != OK:
				t.Errorf("%s: %+v", tc.name, c)
			case c.Name == tc.name && (c.Verdict != tc.verdict || !strings.Contains(c.Found, tc.text) || c.Verdict == Wrong && c.Consequence == ""):
				t.Errorf("%s: %+v, want %s with %q", tc.name, c, tc.verdict, tc.text)
			}
		}
		if !seen {
			t.Errorf("no check %s", tc.name)
		}
	}
	if len(names) > 0 {
		t.Errorf("no case for the checks %v", names)
	}
	f := goodNode()
	if f.cfg.Pods = nil; podChecks(f) != nil {
		t.Error("a node without --cni has checks of pods")
	}
}

// TestPluginsOfPods: VPP needs two more plugins with --cni.
func TestPluginsOfPods(t *testing.T) {
	f := &facts{state: vpp.State{Version: "25.10-release", Missing: []string{"af_packet_create_v3_", "vxlan_add_del_tunnel_v3_"}}}
	for _, m := range f.ofPlugin("af_packet_plugin.so") {
		f.state.Missing = append(f.state.Missing, m.GetMessageName()+"_"+m.GetCrcString())
	}
	for _, m := range f.ofPlugin("vxlan_plugin.so") {
		f.state.Missing = append(f.state.Missing, m.GetMessageName()+"_"+m.GetCrcString())
	}
	for pods, want := range map[*Pods]Verdict{nil: Note, {}: Missing} {
		f.cfg.Pods = pods
		for _, file := range []string{"af_packet_plugin.so", "vxlan_plugin.so"} {
			i := slices.IndexFunc(f.plugins(), func(c Check) bool { return c.Name == file })
			if c := f.plugins()[i]; c.Verdict != want {
				t.Errorf("pods %t: %+v", pods != nil, c)
			}
		}
	}
}

// TestAskPods reads this machine: files and folders that exist, and others.
func TestAskPods(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, same, other := write("contiv-cni", "1"), write("same", "1"), write("other", "2")
	for original, good := range map[string]bool{same: true, other: false, filepath.Join(dir, "none"): true, "": true} {
		if err := samePlugin(one, original); (err == nil) != good {
			t.Errorf("%s: %v", original, err)
		}
	}
	if samePlugin(filepath.Join(dir, "none"), same) == nil {
		t.Error("a plugin that does not exist")
	}
	for _, name := range []string{"20-b.conflist", "10-a.conf", "readme.txt"} {
		write(name, "")
	}
	if got, err := listsBeside(filepath.Join(dir, "x")); err != nil || !slices.Equal(got, []string{"10-a.conf", "20-b.conflist"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got := defaultLink(write("route", "Iface\tDestination\tGateway\neth1\t0010A8C0\t0\neth0\t00000000\t6410A8C0\n")); got != "eth0" {
		t.Errorf("the link of the default route is %q", got)
	}
	r := look(t, sim.New(sim.Config{PID: 1 << 30}), Config{Pods: &Pods{Socket: filepath.Join(dir, "agent.sock"), State: filepath.Join(dir, "none"), List: filepath.Join(dir, "10-contiv.conflist"), Program: one}})
	for name, text := range map[string]string{
		"cni status": "no agent listens", "state folder": "no such file", "configuration list": "10-a.conf, 20-b.conflist", "network namespace": "no such file",
	} {
		if c := r.of(t, name); c.Verdict == OK || !strings.Contains(c.Found, text) {
			t.Errorf("%+v, want %q", c, text)
		}
	}
}
