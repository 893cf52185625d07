package podnet

import (
	"flag"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nodeports"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// twoNodes is a cluster of both families.
func twoNodes() *cluster {
	return &cluster{
		nodes: map[string]*model.Node{
			"node-1": {Name: "node-1", InternalIPs: addrs("192.168.16.1", "2001:db8:16::1"), PodCIDRs: prefixes("10.1.1.0/24", "2001:db8:1:1::/64")},
			"node-2": {Name: "node-2", InternalIPs: addrs("192.168.16.2", "2001:db8:16::2"), PodCIDRs: prefixes("10.1.2.0/24", "2001:db8:1:2::/64"), ExternalIPs: addrs("203.0.113.2")},
		},
		services: map[string][]netip.Prefix{"kubernetes": prefixes("10.96.0.0/12", "2001:db8:96::/112")},
	}
}

func web() *Attachment {
	return &Attachment{
		Attachment: protocol.Attachment{ContainerID: "c0ffee", IfName: "eth0"}, Netns: "/run/netns/cni-1", MTU: 1450,
		Pod: protocol.Pod{Namespace: "default", Name: "web-0", UID: "u1"}, Addresses: addrs("10.1.1.2", "2001:db8:1:1::2"),
		Ports: []protocol.PortMapping{
			{HostPort: 80, ContainerPort: 8080, Protocol: "TCP"}, {HostPort: 53, ContainerPort: 5353, Protocol: "UDP", HostIP: netip.MustParseAddr("192.168.16.1")},
		},
		Bandwidth: &protocol.Bandwidth{IngressRate: 10_000_000, IngressBurst: math.MaxInt32, EgressRate: 20_000_000},
	}
}

func text(v kv.Values) string {
	var b strings.Builder
	for _, key := range v.Keys() {
		fmt.Fprintln(&b, kv.Format(key, v[key]))
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	only4 := twoNodes()
	for _, n := range only4.nodes {
		n.InternalIPs, n.PodCIDRs = n.InternalIPs[:1], n.PodCIDRs[:1]
	}
	only4.services["kubernetes"] = only4.services["kubernetes"][:1]
	only6 := twoNodes()
	for _, n := range only6.nodes {
		n.InternalIPs, n.PodCIDRs, n.ExternalIPs = n.InternalIPs[1:], n.PodCIDRs[1:], nil
	}
	for name, c := range map[string]struct {
		cluster *cluster
		pods    []*Attachment
		set     Settings
	}{
		"two-nodes": {twoNodes(), []*Attachment{web()}, Settings{}},
		"ipv4":      {only4, nil, Settings{MTU: 9000, ServiceCIDRs: prefixes("10.96.0.0/12", "2001:db8:96::/112")}},
		"ipv6":      {only6, nil, Settings{}},
		"memif": {only4, []*Attachment{{
			Attachment: protocol.Attachment{ContainerID: "c0ffee", IfName: "eth0"}, Netns: "/run/netns/cni-1", MTU: 1450, Memif: "/var/lib/contiv-agent/memif/u1/eth0.sock",
			Pod: protocol.Pod{Namespace: "default", Name: "web-0", UID: "u1"}, Addresses: addrs("10.1.1.2"),
		}}, Settings{}},
		"tap": {only4, []*Attachment{{
			Attachment: protocol.Attachment{ContainerID: "c0ffee", IfName: "eth0"}, Netns: "/run/netns/cni-1", MTU: 1450, Tap: true,
			Pod: protocol.Pod{Namespace: "default", Name: "web-0", UID: "u1"}, Addresses: addrs("10.1.1.2"),
		}}, Settings{}},
		"no-node":       {&cluster{}, nil, Settings{}},
		"ipv6-underlay": {&cluster{nodes: map[string]*model.Node{"node-1": twoNodes().nodes["node-1"], "node-3": {Name: "node-3", InternalIPs: addrs("2001:db8:16::3"), PodCIDRs: prefixes("10.1.3.0/24")}}}, nil, Settings{}},
	} {
		c.set.NodeName = "node-1"
		got, path := text(c.cluster.values(&c.set, c.pods)), filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestValuesCompile: the agent accepts every value, and has a descriptor for it.
func TestValuesCompile(t *testing.T) {
	kinds := slices.Concat(all.All(), linux.All(), nodeports.All())
	tap := web()
	tap.ContainerID, tap.Ports, tap.Tap = "c1", nil, true
	for key, m := range twoNodes().values(&Settings{NodeName: "node-1"}, []*Attachment{web(), tap}) {
		i := slices.IndexFunc(kinds, func(d *descriptor.Descriptor) bool { return d.Has(key) })
		if i < 0 {
			t.Errorf("%s has no descriptor", key)
			continue
		}
		if _, err := kinds[i].Compile(key, m); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestBothEndsAgree: what one node expects of the other is what the other has.
func TestBothEndsAgree(t *testing.T) {
	c := twoNodes()
	one, two := text(c.values(&Settings{NodeName: "node-1"}, nil)), text(c.values(&Settings{NodeName: "node-2"}, nil))
	for _, pair := range [][2]string{{one, two}, {two, one}} {
		mac := ""
		for line := range strings.Lines(pair[0]) {
			if _, rest, ok := strings.Cut(line, "config/vpp/l2/v2/fib/overlay/mac/"); ok {
				rest, _, _ = strings.Cut(rest, " ")
				mac = strings.TrimSpace(rest)
			}
		}
		if mac == "" || !strings.Contains(pair[1], mac) {
			t.Errorf("no node has the MAC address %q that its peer sends to", mac)
		}
	}
}

func TestPodMTU(t *testing.T) {
	for mtu, want := range map[int][2]int{0: {1450, 1430}, 1500: {1450, 1430}, 9000: {8950, 8930}} {
		s := Settings{MTU: mtu}
		if got := [2]int{s.PodMTU(false), s.PodMTU(true)}; got != want {
			t.Errorf("link MTU %d: pods get %v, want %v", mtu, got, want)
		}
	}
	if err := (&Settings{NodeName: "n", MTU: 1300}).Validate(); err == nil {
		t.Error("MTU 1300 leaves no room for IPv6")
	}
}

// TestNamesFit: names of interfaces fit VPP's tags, links' names fit the kernel, and attachments of one pod differ.
func TestNamesFit(t *testing.T) {
	seen := map[string]bool{}
	for _, pod := range []string{"default/web-0", strings.Repeat("n", 63) + "/" + strings.Repeat("p", 253), "/", "a/b"} {
		for _, a := range []protocol.Attachment{{ContainerID: "a", IfName: "eth0"}, {ContainerID: "a", IfName: "net1"}, {ContainerID: strings.Repeat("b", 64), IfName: "eth0"}} {
			name := interfaceName(pod, a)
			if len(name) > 57 || seen[name] {
				t.Errorf("%q: %d bytes, seen %t", name, len(name), seen[name])
			}
			seen[name] = true
			if l, _ := link(a); len(l) > 15 {
				t.Errorf("link %q is longer than 15 bytes", l)
			}
		}
	}
}
