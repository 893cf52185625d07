package realvpp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	binapicnat "go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/cleanup"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// tidy is a cluster for which an agent puts everything into VPP that it may.
const tidy = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24, "fd00:1:1::/64"]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}, {type: InternalIP, address: "fd00:16::1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}, {ip: "fd00:1:1::2"}], phase: Running}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: NodePort, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:96::10"], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: PreferDualStack, sessionAffinity: ClientIP, ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: default}
spec: {clusterIP: 10.96.0.11, clusterIPs: [10.96.0.11], ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080, name: "", protocol: TCP}]
endpoints: [{addresses: [10.1.1.2], nodeName: node-1}, {addresses: [10.1.2.2], nodeName: node-2}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-6, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{port: 8080, name: "", protocol: TCP}]
endpoints: [{addresses: ["fd00:1:1::2"], nodeName: node-1}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: some, namespace: default}
spec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 8080}]}]}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16, "fd00:96::/112"]}
`

// ground is a VPP on which agents come and go.
type ground struct {
	cni.VPP
	reach func(*agent.Config)
	clean cleanup.Config
	do    func(...api.Message) ([]vpp.Reply, error)
	shown func(*testing.T) string // what is configured
	// numbers reports that it has numbers of access lists in it, which depend on earlier lists.
	numbers bool
}

const noInterface = ^interface_types.InterfaceIndex(0)

// configureForeign configures foreign objects of every kind in VPP; NAT44 is on.
func (g *ground) configureForeign(t *testing.T) {
	t.Helper()
	theirs := interface_types.InterfaceIndex(g.AddInterface(sim.Interface{Name: "loop7"}))
	any4 := ip_types.Prefix{Address: ip_types.Address{Af: ip_types.ADDRESS_IP4}}
	addr := func(a string) ip_types.Address {
		p, err := ip_types.ParseAddress(a)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	endpoint := func(a string) binapicnat.CnatEndpoint {
		return binapicnat.CnatEndpoint{Addr: addr(a), SwIfIndex: noInterface, Port: 80}
	}
	_, err := g.do(
		&nat44_ed.Nat44EdPluginEnableDisable{Enable: true, Sessions: nat44.DefaultSessions}, // another size is a field the agent cannot change
		&nat44_ed.Nat44AddDelStaticMappingV2{
			IsAdd: true, Protocol: 6, ExternalSwIfIndex: noInterface, ExternalIPAddress: [4]byte{10, 96, 9, 9}, ExternalPort: 80,
			LocalIPAddress: [4]byte{10, 1, 1, 2}, LocalPort: 80, Tag: "theirs",
		},
		&nat44_ed.Nat44AddDelAddressRange{FirstIPAddress: [4]byte{192, 0, 2, 9}, LastIPAddress: [4]byte{192, 0, 2, 9}, VrfID: ^uint32(0), IsAdd: true},
		&acl.ACLAddReplace{ACLIndex: ^uint32(0), Tag: "theirs", Count: 1, R: []acl_types.ACLRule{{
			IsPermit: 1, SrcPrefix: any4, DstPrefix: any4, SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535,
		}}},
		&acl.ACLInterfaceSetACLList{SwIfIndex: theirs, Count: 1, NInput: 1, Acls: []uint32{0}},
		&ip.IPRouteAddDel{IsAdd: true, Route: ip.IPRoute{
			Prefix: ip_types.Prefix{Address: addr("10.99.0.0"), Len: 16}, NPaths: 1,
			Paths: []fib_types.FibPath{{SwIfIndex: ^uint32(0), Weight: 1, Type: fib_types.FIB_API_PATH_TYPE_DROP}},
		}},
		&binapicnat.CnatTranslationUpdate{Translation: binapicnat.CnatTranslation{
			Vip: endpoint("10.96.9.10"), IPProto: 6, NPaths: 1,
			Paths: []binapicnat.CnatEndpointTuple{{DstEp: endpoint("10.1.1.2"), SrcEp: binapicnat.CnatEndpoint{SwIfIndex: noInterface}}},
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
}

// live runs an agent until it has put everything into VPP, and calls during; then it ends.
func (g *ground) live(t *testing.T, dir string, serves agent.ServiceRenderer, during func()) {
	t.Helper()
	cfg := agent.Config{
		NodeName: "node-1", Override: cni.Located(), Services: config.ServedBy(serves), VPPAgent: vppagent.Config{Journal: g.clean.Journal}, Listen: config.Listeners{Status: g.clean.StatusSocket},
		Sources: map[string]agent.Source{manifest.Name: manifest.New(manifest.Config{Paths: []string{dir}, Watch: true})},
	}
	g.reach(&cfg)
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the agent ended with %v", err)
		}
	}()
	var st *status.Status
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		st, err = a.Status(ctx)
		if err == nil && st.InSync && st.Ifs != nil && st.Ifs.Pods["10.1.1.2"] != "" && len(st.Policies) == 1 && st.Policies[0].State == "CONFIGURED" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the agent is not done: %v\n%+v", err, st)
		}
	}
	if len(st.Unwell) > 0 || st.Mappings == 0 {
		t.Errorf("%d mappings, unwell: %+v", st.Mappings, st.Unwell)
	}
	during()
}

// plumbTidy writes the objects of tidy into a folder and attaches their pods to VPP. It returns the folder.
func plumbTidy(t *testing.T, v cni.VPP) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(tidy), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := manifest.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := cni.New(v, "node-1").Apply(changes); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tidied lets agents come and go, and clean up: VPP is as before the first one.
func (g *ground) tidied(t *testing.T, serves agent.ServiceRenderer) {
	t.Helper()
	dir := plumbTidy(t, g)
	g.configureForeign(t)
	before := g.shown(t)
	g.live(t, dir, serves, func() {
		for _, socket := range []string{g.clean.StatusSocket, ""} { // VPP knows of a running agent, too
			running := g.clean
			running.StatusSocket = socket
			if c, err := cleanup.New(t.Context(), running); !errors.Is(err, cleanup.ErrInUse) {
				t.Errorf("beside an agent: %v, %v", c, err)
			}
		}
	})
	during := g.shown(t)
	plan := cleaner(t, g.clean, func(c *cleanup.Cleaner) (*cleanup.Plan, error) { return c.Plan(t.Context()) })
	planned := 0
	for _, level := range plan.Levels {
		for _, step := range level {
			if planned++; step.Action != vppagent.Delete {
				t.Errorf("planned: %s %s", step.Action, step.Key)
			}
		}
	}
	if diff := cmp.Diff(during, g.shown(t)); diff != "" || planned < 8 || len(plan.Pending)+len(plan.Invalid) > 0 {
		t.Errorf("the plan:\n%s\nchanged\n%s", plan, diff)
	}
	all := func(c *cleanup.Cleaner) (*cleanup.Report, error) { return c.Clean(t.Context()) }
	r := cleaner(t, g.clean, all)
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(g.shown(t), "\n")); diff != "" {
		t.Errorf("%+v\n-before the agent +after the cleanup\n%s", r, diff)
	}
	if r.Removed != planned || len(r.Left) > 0 || r.NoJournal || len(r.Foreign) == 0 {
		t.Errorf("%d were planned: %+v", planned, r)
	}
	if _, err := os.Stat(g.clean.Journal); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal is still there: %v", err)
	}
	if r := cleaner(t, g.clean, all); r.Removed+r.Writes+len(r.Left) != 0 || !r.NoJournal {
		t.Errorf("a second time: %+v", r)
	}
	g.live(t, dir, serves, func() {})
	if diff := cmp.Diff(strings.Split(during, "\n"), strings.Split(g.shown(t), "\n")); diff != "" && !g.numbers {
		t.Errorf("the next agent: -before the cleanup +after it\n%s", diff)
	}
}

func cleaner[R any](t *testing.T, cfg cleanup.Config, f func(*cleanup.Cleaner) (R, error)) R {
	t.Helper()
	c, err := cleanup.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := f(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var renderers = []agent.ServiceRenderer{agent.RendererAuto, agent.RendererNAT44, agent.RendererCNAT} // read only

// TestCleanup: an embedded VPP is as it was before the agent ever ran, with what others made in it.
func TestCleanup(t *testing.T) {
	for _, serves := range renderers {
		t.Run(string(serves), func(t *testing.T) {
			v := sim.New(sim.Config{PuntLocal: true})
			defer v.Close()
			other := plain(vpp.Config{Dial: v.Dial})
			defer other.close()
			<-other.up
			g := &ground{
				VPP: v, reach: func(c *agent.Config) { c.VPP.Dial = v.Dial }, shown: func(*testing.T) string { return v.Dump() },
				clean: cleanup.Config{Dial: v.Dial, Journal: filepath.Join(t.TempDir(), "journal"), StatusSocket: filepath.Join(t.TempDir(), "a.sock")},
				do: func(msgs ...api.Message) ([]vpp.Reply, error) {
					l := &lab{plain: other}
					return l.do(msgs...)
				},
			}
			g.tidied(t, serves)
		})
	}
}

// TestVPPCleanup is TestCleanup on a real VPP.
func TestVPPCleanup(t *testing.T) {
	for _, serves := range renderers {
		t.Run(string(serves), func(t *testing.T) {
			l, err := openLab(theVPP(t))
			defer l.close()
			if err != nil {
				t.Fatal(err)
			}
			l.hollow = true
			g := &ground{
				VPP: l, reach: func(c *agent.Config) { c.VPP.Socket = l.socket() }, shown: l.shown, do: l.do, numbers: true,
				clean: cleanup.Config{Socket: l.socket(), Journal: filepath.Join(t.TempDir(), "journal"), StatusSocket: filepath.Join(t.TempDir(), "a.sock")},
			}
			g.tidied(t, serves)
			if l.err != nil {
				t.Error(l.err)
			}
			if err := l.alive(); err != nil {
				t.Error(err)
			}
		})
	}
}

// tidySNAT leaves what the policy says, and not how VPP keeps it: a table that has been in use is no longer uninitialized, and an
// address that was set and unset is shown as zeros.
func tidySNAT(shown string) string {
	var out []string
	for line := range strings.Lines(shown) {
		line = strings.TrimSpace(line)
		line = strings.NewReplacer("ip4: local0 (ip4);0", "ip4: 0.0.0.0;0", "ip6: local0 (ip4);0", "ip6: ::;0").Replace(line)
		if line != "" && !regexp.MustCompile(`^(\[.*|Hash table .*|empty, uninitialized|\d+ (active|free|linear) .*|heap: .*|bytes: .*)$`).MatchString(line) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// shown is what a real VPP has, but for numbers that it gives anew.
func (l *lab) shown(t *testing.T) string {
	t.Helper()
	var lines []string
	for _, m := range []api.Message{
		&interfaces.SwInterfaceDump{SwIfIndex: noInterface},
		&ip.IPRouteDump{}, &ip.IPRouteDump{Table: ip.IPTable{IsIP6: true}}, &ip.IPTableDump{},
		&nat44_ed.Nat44AddressDump{}, &nat44_ed.Nat44InterfaceDump{}, &nat44_ed.Nat44StaticMappingDump{}, &nat44_ed.Nat44LbStaticMappingDump{},
		&nat44_ed.Nat44IdentityMappingDump{}, &acl.ACLDump{ACLIndex: ^uint32(0)}, &acl.ACLInterfaceListDump{SwIfIndex: noInterface},
		&binapicnat.CnatTranslationDump{},
	} {
		details, err := l.dump(m)
		if err != nil {
			t.Fatalf("%s: %v", m.GetMessageName(), err)
		}
		var some []string
		for _, d := range details {
			switch d := d.(type) {
			case *binapicnat.CnatTranslationDetails:
				d.Translation.ID = 0
			case *ip.IPRouteDetails:
				d.Route.StatsIndex = 0
			}
			text, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			some = append(some, d.GetMessageName()+" "+string(text))
		}
		slices.Sort(some)
		lines = append(lines, some...)
	}
	replies, err := l.do(&nat44_ed.Nat44ShowRunningConfig{})
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, fmt.Sprintf("%+v", replies[0].Msg), tidySNAT(l.cli("show cnat snat-policy")))
	for name := range l.index {
		lines = append(lines, name+" "+l.cli("show interface features "+name))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
