package interopcni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/cni/cnitest"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// programs is the folder with the built programs.
var programs string

func TestMain(m *testing.M) {
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// build builds the programs and runs the tests.
func build(m *testing.M) (int, error) {
	var err error
	if programs, err = os.MkdirTemp("", "interop-cni"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(programs)
	const plugins = "github.com/containernetworking/plugins/plugins/"
	for _, pkg := range []string{
		"github.com/contiv-agent/contiv-agent/cmd/contiv-cni", "github.com/containernetworking/cni/cnitool",
		plugins + "ipam/host-local", plugins + "meta/portmap", plugins + "meta/tuning",
	} {
		cmd := exec.Command("go", "build", "-mod=mod", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", programs+"/", pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("%s: %w\n%s", pkg, err, out)
		}
	}
	return m.Run(), nil
}

// host is a modelled node with an agent's socket.
type host struct {
	*cnitest.World
	dir, socket string
	stop        func()
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{dir: t.TempDir()}
	fresh(t, h)
	t.Cleanup(func() { h.stop(); h.Kill() })
	return h
}

// fresh gives a host a node and an agent.
func fresh(t testing.TB, h *host) {
	h.World = cnitest.NewWorld(filepath.Join(h.dir, "ipam.db"), netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("fd00:1::/64"))
	h.socket = filepath.Join(h.dir, "agent.sock")
	h.AddSandbox("/run/netns/c1")
	h.startAgent(t)
}

// startAgent replaces the agent.
func (h *host) startAgent(t testing.TB) {
	t.Helper()
	if h.stop != nil {
		h.stop()
	}
	network, err := h.Start(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	s := cni.New(cni.Config{Network: network, Spool: h.dir + "/spool"})
	ctx, cancel := context.WithCancel(context.Background())
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	var jobs sync.WaitGroup
	jobs.Go(func() { _ = server.Serve(l) })
	jobs.Go(func() { s.Run(ctx) })
	h.stop = sync.OnceFunc(func() { cancel(); _ = server.Close(); jobs.Wait() })
}

// netns makes a real network namespace, by the name's file as containerd does. Tests without root are skipped.
func (h *host) netns(t *testing.T, name string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	name = fmt.Sprint("interop-cni-", os.Getpid(), "-", name)
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("network namespaces: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	// The modelled agent makes no interface; some plugins of a chain look for it.
	if out, err := exec.Command("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "peer0").CombinedOutput(); err != nil {
		t.Skipf("veth: %v: %s", err, out)
	}
	path := "/var/run/netns/" + name
	h.AddSandbox(path)
	return path
}

// publish writes the list as the agent does, and returns its path.
func (h *host) publish(t *testing.T, c cni.ListConfig) string {
	t.Helper()
	c.Socket, c.Spool = h.socket, h.dir+"/spool"
	content, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p := cni.Publisher{Path: h.dir + "/net.d/10-contiv.conflist", Content: content}
	if _, err := p.Update(time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	return p.Path
}

func attachment(id string) protocol.Attachment {
	return protocol.Attachment{ContainerID: id, IfName: "eth0"}
}

var errSome = errors.New("VPP does not answer at /run/vpp/api.sock")
