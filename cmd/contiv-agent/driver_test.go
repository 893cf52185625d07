package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/driver"
	"github.com/contiv-agent/contiv-agent/cmd/embedded"
	"github.com/contiv-agent/contiv-agent/model"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// morePolicies are in addition to those of examples/guestbook: egress by pods and ports, a deny of Calico's, isolation in
// both directions.
const morePolicies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: client, namespace: guestbook}
spec:
  podSelector: {matchLabels: {app: client}}
  policyTypes: [Egress]
  egress:
  - to: [{podSelector: {matchLabels: {app: guestbook}}}]
    ports: [{port: 80}]
  - to: [{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.128/25]}}]
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: default.no-dns}
spec:
  selector: app == 'redis'
  order: 10
  types: [Egress]
  egress:
  - {action: Deny, protocol: UDP, destination: {ports: [53]}}
  - {action: Allow}
`

// node is an agent with its VPP.
type node struct {
	*agent.Agent
	vpp *sim.VPP
	cfg agent.Config
}

// startNode runs node-1 of the manifests; with driven, this program enforces policies as a dataplane driver.
func startNode(t *testing.T, driven bool, manifests ...string) *node {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	n := &node{vpp: sim.New(sim.Config{Seed: 1, PuntLocal: true}), cfg: agent.Config{NodeName: "node-1", VPP: vpp.Config{Socket: "unused"}, Process: config.Process{Logger: log}}}
	n.cfg.Sources = map[string]agent.Source{manifest.Name: manifest.New(manifest.Config{Paths: manifests, Logger: log})}
	embedded.Plumb(&n.cfg, n.vpp)
	stop := func() {}
	if driven {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(t.TempDir(), driver.Program)
		if err := os.Symlink(self, program); err != nil {
			t.Fatal(err)
		}
		var socket string
		if socket, stop, err = embedded.Serve(t.Context(), n.vpp); err != nil {
			t.Fatal(err)
		}
		if n.cfg.Policies.Driver, err = driver.New(program, socket, &n.cfg); err != nil {
			t.Fatal(err)
		}
	}
	a, err := agent.New(n.cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Agent = a
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		stop()
		n.vpp.Close()
	})
	return n
}

// settle waits until every policy that applies to a pod here is enforced.
func (n *node) settle(t *testing.T, policies int) *status.Status {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		st, err := n.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		open := func(p status.Policy) bool { return p.State != "CONFIGURED" && p.State != "IDLE" }
		if st.InSync && len(st.Policies) == policies && !slices.ContainsFunc(st.Policies, open) {
			return st
		}
		if time.Now().After(deadline) {
			t.Fatalf("policies are not in force: %+v, driver %+v", st.Policies, st.Driver)
		}
	}
}

// sendAll sends packets from pods of the node, and from outside, to pods and Services, and returns the fate of each.
func (n *node) sendAll(t *testing.T, manifests ...string) (out []string) {
	t.Helper()
	changes, err := manifest.Load(manifests...)
	if err != nil {
		t.Fatal(err)
	}
	var targets []netip.Addr
	sources := map[string]netip.Addr{cni.Uplink: netip.MustParseAddr("203.0.113.9"), cni.Overlay: netip.MustParseAddr("10.1.2.2")}
	for _, ch := range changes {
		switch o := ch.Object.(type) {
		case *model.Pod:
			targets = append(targets, o.IPs...)
			if o.NodeName == "node-1" && !o.HostNetwork {
				sources[cni.PodInterface(o.ID)] = o.IPs[0]
			}
		case *model.Service:
			targets = append(targets, o.ClusterIPs...)
		}
	}
	targets = append(targets, netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("203.0.113.200"))
	port := uint16(20_000)
	for _, in := range slices.Sorted(maps.Keys(sources)) {
		src := sources[in]
		for _, dst := range targets {
			for _, to := range []struct {
				proto model.Protocol
				port  uint16
			}{{model.TCP, 80}, {model.TCP, 6379}, {model.UDP, 53}, {model.TCP, 443}} {
				port++
				fate := n.vpp.Send(in, packet.Packet{Src: src, Dst: dst, Proto: to.proto, SrcPort: port, DstPort: to.port, TCPFlags: packet.SYN})
				verdict := "dropped"
				for _, o := range fate.Out {
					switch {
					case o.Origin != sim.Forwarded:
					case o.Interface == in && o.Packet.Dst == src && dst != src:
						verdict = "comes back" // to itself, through a Service
					default:
						verdict = "passes to " + o.Interface
					}
				}
				out = append(out, fmt.Sprintf("%s %s → %s %s:%d %s", in, src, dst, to.proto, to.port, verdict))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestCalcSendsToDriver runs calc with this program as the driver, which reports the state of the endpoint.
func TestCalcSendsToDriver(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"contiv-agent", driver.Program} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "contiv-agent"), "calc", "--hostname", "node-1", "--driver", filepath.Join(dir, driver.Program))
	cmd.Env = append(os.Environ(), driver.EnvSim+"=1", driver.EnvJournal+"="+driver.None, driver.EnvListen+"="+driver.None, driver.EnvStatus+"="+driver.None)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(in, `{"status":"in-sync"}
{"key":"/calico/v1/host/node-1/workload/k8s/prod%2fweb-0/endpoint/eth0","value":{"state":"active","name":"cali1","ipv4_nets":["10.65.0.1/32"]}}
{"flush":true}
`)
	if err != nil {
		t.Fatal(err)
	}
	said := func(m *pb.FromDataplane) bool {
		u := m.GetWorkloadEndpointStatusUpdate()
		return u.GetId().GetWorkloadId() == "prod/web-0" && u.GetStatus().GetStatus() == "up"
	}
	found := false
	for scan := bufio.NewScanner(out); scan.Scan(); {
		m := &pb.FromDataplane{}
		if protojson.Unmarshal(scan.Bytes(), m) == nil && said(m) && !found {
			found = true
			if err := in.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !found {
		t.Errorf("the endpoint is up: %t; calc ended with %v", found, err)
	}
}

// TestDriverEnforcesAsTheAgent enforces the policies of a node by the agent, and by this program as an external dataplane
// driver, and compares the fate of packets. Then it kills the driver, and then VPP.
func TestDriverEnforcesAsTheAgent(t *testing.T) {
	more := filepath.Join(t.TempDir(), "more.yaml")
	if err := os.WriteFile(more, []byte(morePolicies), 0o600); err != nil {
		t.Fatal(err)
	}
	manifests := []string{filepath.Join("..", "..", "examples", "guestbook"), more}
	built, driven := startNode(t, false, manifests...), startNode(t, true, manifests...)
	built.settle(t, 3)
	st := driven.settle(t, 3)
	if st.Driver == nil || !st.Driver.InSync || len(st.Driver.Endpoints) == 0 || st.Driver.Alive == "" {
		t.Errorf("driver %+v", st.Driver)
	}
	want := built.sendAll(t, manifests...)
	passing := 0
	for _, line := range want {
		if strings.Contains(line, "passes") {
			passing++
		}
	}
	if passing < 20 || len(want)-passing < 20 {
		t.Fatalf("%d packets of %d pass: the policies have no effect", passing, len(want))
	}
	got := driven.sendAll(t, manifests...)
	for i := range min(len(want), len(got)) {
		// An external driver does not know the NAT loopback as the pod's own address, and may drop these packets.
		if request, back := strings.CutSuffix(want[i], "comes back"); back && got[i] == request+"dropped" {
			got[i] = want[i]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-agent +driver):\n%s", diff)
	}
	if dump := driven.vpp.Dump(); !strings.Contains(dump, "acl") {
		t.Errorf("no access list in VPP:\n%s", dump)
	}
	before, writes, pid := driven.vpp.Dump(), driven.vpp.Writes(), st.Driver.PID
	process, err := os.FindProcess(pid)
	if err != nil || process.Kill() != nil {
		t.Fatal(err)
	}
	for st = driven.settle(t, 3); st.Driver.PID == pid || st.Driver.Starts < 2; {
		st = driven.settle(t, 3)
	}
	if diff := cmp.Diff(before, driven.vpp.Dump()); diff != "" || driven.vpp.Writes() != writes {
		t.Errorf("a new driver of the same VPP writes %d times:\n%s", driven.vpp.Writes()-writes, diff)
	}
	driven.vpp.Restart()
	for deadline := time.Now().Add(30 * time.Second); driven.vpp.Dump() != before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after a restart of VPP (-before +after):\n%s", cmp.Diff(before, driven.vpp.Dump()))
		}
	}
}
