package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/kube"
)

// node is an agent, a process, on a sim of this test, in which a CNI of this test makes the interfaces as it hears of Pods: neither waits
// for the other.
type node struct {
	name   string
	sim    *sim.VPP
	agent  *process
	listen string        // metrics and health
	status string        // socket of the status command
	flags  []string      // of the agent
	ports  atomic.Uint32 // source ports used
	broken atomic.Pointer[error]
}

// newNode starts one, whose agent has these flags beside those it always has, and waits until it is in sync.
func newNode(t tb, c *cluster, name string, flags ...string) *node {
	t.Helper()
	dir := shortDir(t)
	ctx, stop := context.WithCancel(context.Background())
	v, socket, wait, err := sim.Start(ctx, dir, sim.Config{Seed: 1, PuntLocal: true})
	if err != nil {
		stop()
		t.Fatal(err)
	}
	n := &node{name: name, sim: v, listen: fmt.Sprintf("127.0.0.1:%d", freePort(t)), status: filepath.Join(dir, "status.sock"), flags: flags}
	failed := func(err error) { n.broken.Store(&err) }
	source := cni.New(v, name).Before(kube.New(kube.Config{Kubeconfig: c.path("admin.kubeconfig")}), failed)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := source.Run(ctx, func(event.Event) {}); !errors.Is(err, context.Canceled) {
			failed(err)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		wait()
		v.Close()
		if err := n.broken.Load(); err != nil {
			t.Errorf("CNI of %s: %v", name, *err)
		}
	})
	args := append([]string{
		"run", "--kubeconfig", c.path("agent.kubeconfig"), "--node", name,
		"--vpp-socket", socket, "--stats-socket", "", "--journal", filepath.Join(dir, "journal"), "--status-socket", n.status,
		"--health-check-addresses", "127.0.0.1", "--uplink", cni.Uplink, "--overlay", cni.Overlay, "--host-interface", cni.Host, "--host-address", cni.HostLink.String(), "--listen", n.listen,
		"--healthz-bind-address", "", // one address of this machine cannot serve several agents
	}, flags...)
	n.agent = start(t, "contiv-agent of "+name, exec.Command(built.agent, args...))
	n.inSync(t)
	return n
}

func (n *node) inSync(t tb) {
	t.Helper()
	eventually(t, "agent of "+n.name+" in sync", func() error { _, err := get("http://" + n.listen + "/readyz"); return err }, n.agent)
}

// connect sends the first packet of a new connection from a Pod of this node, and returns where it arrived. The error is why
// it did not arrive.
func (n *node) connect(from corev1.Pod, to netip.AddrPort) (netip.AddrPort, error) {
	src := netip.AddrPortFrom(netip.MustParseAddr(from.Status.PodIP), uint16(20000+n.ports.Add(1)%40000))
	in := cni.PodInterface(model.PodID{Namespace: from.Namespace, Name: from.Name})
	fate := n.sim.Send(in, packet.NewTCP(src, to))
	if len(fate.Out) == 1 && fate.Out[0].Origin == sim.Forwarded && !fate.Out[0].BadChecksum {
		p := fate.Out[0].Packet
		return netip.AddrPortFrom(p.Dst, p.DstPort), nil
	}
	var why strings.Builder
	for _, hop := range fate.Hops {
		fmt.Fprintf(&why, "\n  %v", hop)
	}
	return netip.AddrPort{}, fmt.Errorf("%s: %s → %s goes nowhere: %d packets out%s", n.name, src, to, len(fate.Out), &why)
}

// led are the endpoints behind an address of a Service in this node's VPP, sorted.
func (n *node) led(to netip.AddrPort) (out []netip.Addr) {
	found := false
	for line := range strings.Lines(n.sim.Dump()) {
		words := strings.Fields(line)
		switch {
		case !strings.HasPrefix(line, "  "):
			found = slices.Contains(words, to.String())
		case found && (words[0] == "to" || words[0] == "local") && !strings.Contains(line, "weight 0") && !strings.HasSuffix(strings.TrimSpace(line), " drained"): // that is nobody: it keeps a place
			if endpoint, err := netip.ParseAddrPort(words[1]); err == nil {
				out = append(out, endpoint.Addr())
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
