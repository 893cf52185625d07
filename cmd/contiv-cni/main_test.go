package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/cni/cnitest"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// envKill makes the test binary the plugin, which is killed at a point; "never": it is not.
const envKill = "CONTIV_CNI_KILL_AT"

func TestMain(m *testing.M) {
	switch at := os.Getenv(envKill); {
	case filepath.Base(os.Args[0]) == fakeIPAM:
		os.Exit(runFakeIPAM())
	case at != "":
		p := newPlugin(protocol.DefaultSocket, protocol.DefaultSpool)
		p.patience = 0
		if wait, err := time.ParseDuration(os.Getenv("CONTIV_CNI_PATIENCE")); err == nil {
			p.patience = wait
		}
		p.step = func(point string) {
			if point == at {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		mainOf(p)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fakeIPAM is the name under which the test binary is an IPAM plugin by the CNI convention: one file per address.
const fakeIPAM = "fake-ipam"

func runFakeIPAM() int {
	var conf struct {
		types.PluginConf
		IPAM struct {
			Dir string `json:"dir"`
		} `json:"ipam"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&conf); err != nil {
		return 1
	}
	owner := os.Getenv("CNI_CONTAINERID") + "/" + os.Getenv("CNI_IFNAME")
	fail := func(code uint, text string) int {
		_ = (&types.Error{Code: code, Msg: text}).Print()
		return 1
	}
	files, _ := filepath.Glob(conf.IPAM.Dir + "/*")
	switch os.Getenv("CNI_COMMAND") {
	case "ADD":
		for i := 2; i < 250; i++ {
			f, err := os.OpenFile(fmt.Sprintf("%s/10.9.0.%d", conf.IPAM.Dir, i), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if errors.Is(err, os.ErrExist) {
				continue
			} else if err != nil {
				return fail(5, err.Error())
			}
			_, _ = f.WriteString(owner)
			res := &types100.Result{CNIVersion: "1.0.0", IPs: []*types100.IPConfig{{
				Address: net.IPNet{IP: net.IPv4(10, 9, 0, byte(i)), Mask: net.CIDRMask(24, 32)}, Gateway: net.IPv4(10, 9, 0, 1),
			}}, Routes: []*types.Route{{Dst: net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}}}, DNS: types.DNS{Nameservers: []string{"10.9.0.53"}}}
			_ = types.PrintResult(res, conf.CNIVersion)
			return 0
		}
		return fail(111, "no address is free")
	case "DEL", "GC":
		for _, f := range files {
			text, _ := os.ReadFile(f)
			valid := slices.ContainsFunc(conf.ValidAttachments, func(a types.GCAttachment) bool { return a.ContainerID+"/"+a.IfName == string(text) })
			if os.Getenv("CNI_COMMAND") == "DEL" && string(text) == owner || os.Getenv("CNI_COMMAND") == "GC" && !valid {
				_ = os.Remove(f)
			}
		}
	case "CHECK":
		if len(files) == 0 {
			return fail(112, "the address is lost")
		}
	}
	return 0
}

// host is a node with agents that live and die, and a runtime that calls the plugin.
type host struct {
	*cnitest.World
	dir, socket, spool string
	ipam               string // the ipam section of the network configuration; "": none
	kill               func() // ends the agent
	life               int
	plugin             atomic.Pointer[os.Process] // that runs
}

func newHost(t *testing.T, delegated bool) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{
		World: cnitest.NewWorld(filepath.Join(dir, "ipam.db"), netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("fd00:1::/64")),
		dir:   dir, socket: filepath.Join(dir, "agent.sock"), spool: filepath.Join(dir, "spool"),
	}
	self, err := os.Executable()
	if err := errors.Join(err, os.Mkdir(filepath.Join(dir, "addresses"), 0o700), os.Symlink(self, filepath.Join(dir, fakeIPAM))); err != nil {
		t.Fatal(err)
	}
	if delegated {
		h.ipam = fmt.Sprintf(`, "ipam": {"type": %q, "dir": %q}`, fakeIPAM, filepath.Join(dir, "addresses"))
	}
	t.Cleanup(func() { h.killAgent(); h.Kill() })
	return h
}

// startAgent starts an agent as the real one starts: first it listens, then it carries out recorded DELs. Each life has a separate name for
// the spool, which ends with it: what a dead agent writes is lost.
func (h *host) startAgent(t *testing.T) {
	t.Helper()
	network, err := h.Start(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	h.life++
	link := filepath.Join(h.dir, fmt.Sprint("life-", h.life))
	_ = os.Remove(h.socket)
	l, err := net.Listen("unix", h.socket)
	if err := errors.Join(err, os.MkdirAll(h.spool, 0o700), os.Symlink(h.spool, link)); err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(h.life%2 == 0)
	s := cni.New(cni.Config{Network: network, Spool: link})
	ctx, cancel := context.WithCancel(context.Background())
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	var jobs sync.WaitGroup
	jobs.Go(func() { _ = server.Serve(l) })
	jobs.Go(func() { s.Run(ctx) })
	h.kill = sync.OnceFunc(func() {
		h.Kill()
		_ = os.Remove(link)
		cancel()
		_ = server.Close()
	})
}

// killAgent ends the agent, at any point of a call, as SIGKILL would.
func (h *host) killAgent() {
	if h.kill != nil {
		h.kill()
	}
}

// call is a call of a runtime.
type call struct {
	verb, id, netns string
	version         string // "": 1.1.0
	more            string // of the configuration
	args            string
	killAt          string
	patience        time.Duration
}

// configuration returns the network configuration of a call.
func (h *host) configuration(c call) string {
	if c.version == "" {
		c.version = "1.1.0"
	}
	return fmt.Sprintf(`{"cniVersion": %q, "name": "contiv", "type": "contiv-cni", "socket": %q, "spool": %q%s%s}`, c.version, h.socket, h.spool, h.ipam, c.more)
}

// run calls the plugin. The error is a *types.Error if the plugin printed one.
func (h *host) run(t *testing.T, c call) ([]byte, error) {
	t.Helper()
	if c.killAt == "" {
		c.killAt = "never"
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(self)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(h.configuration(c)), &stdout, &stderr
	cmd.Env = []string{
		envKill + "=" + c.killAt, "CONTIV_CNI_PATIENCE=" + c.patience.String(), "CNI_COMMAND=" + c.verb, "CNI_CONTAINERID=" + c.id,
		"CNI_IFNAME=eth0", "CNI_NETNS=" + c.netns, "CNI_PATH=" + h.dir, "CNI_ARGS=" + c.args,
		"GORACE=atexit_sleep_ms=0", // else each process with the race detector sleeps for a second before it ends
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.plugin.Store(cmd.Process)
	err = cmd.Wait()
	h.plugin.Store(nil)
	if err == nil {
		return stdout.Bytes(), nil
	}
	e := &types.Error{}
	if json.Unmarshal(stdout.Bytes(), e) == nil && e.Code != 0 {
		return nil, e
	}
	return nil, fmt.Errorf("%w: %s%s", err, &stdout, &stderr)
}

// add makes a sandbox and connects it.
func (h *host) add(t *testing.T, c call) (*types100.Result, error) {
	t.Helper()
	c.verb, c.netns = "ADD", "/run/netns/"+c.id
	h.AddSandbox(c.netns)
	out, err := h.run(t, c)
	if err != nil {
		return nil, err
	}
	res, err := types100.NewResult(out)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return res.(*types100.Result), nil
}

func attachment(id string) protocol.Attachment {
	return protocol.Attachment{ContainerID: id, IfName: "eth0"}
}

// wants checks the code of an error and a part of its text.
func wants(t *testing.T, err error, code uint, text string) {
	t.Helper()
	var e *types.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Error(), text) {
		t.Errorf("got %v, want code %d and %q", err, code, text)
	}
}

// settled waits until no DEL is recorded.
func (h *host) settled(t *testing.T) {
	t.Helper()
	for begin := time.Now(); ; {
		files, _ := filepath.Glob(h.spool + "/*.json")
		if len(files) == 0 {
			return
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("recorded DELs stay: %v", files)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func cmdArgs(id, args string) *skel.CmdArgs {
	return &skel.CmdArgs{ContainerID: id, IfName: "eth0", Netns: "/run/netns/" + id, Args: args}
}
