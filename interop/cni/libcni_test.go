package interopcni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// runtime is a container runtime by libcni.
type runtime struct {
	*libcni.CNIConfig
	list *libcni.NetworkConfigList
}

// newRuntime loads a list. Another version than "" replaces those of the list.
func (h *host) newRuntime(t *testing.T, path, version string) *runtime {
	t.Helper()
	if version != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var list map[string]any
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		delete(list, "cniVersions")
		list["cniVersion"] = version
		text, _ = json.Marshal(list)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := libcni.ConfListFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return &runtime{libcni.NewCNIConfigWithCacheDir([]string{programs}, h.dir+"/cache", nil), list}
}

func conf(id, netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: id, NetNS: netns, IfName: "eth0",
		Args: [][2]string{{"K8S_POD_NAME", "web"}, {"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "prod"}, {"K8S_POD_INFRA_CONTAINER_ID", id}},
		CapabilityArgs: map[string]any{
			"bandwidth":                         map[string]int{"ingressRate": 1000, "ingressBurst": 2000},
			"io.kubernetes.cri.pod-annotations": map[string]string{"a": "b"},
		},
	}
}

func wants(t *testing.T, err error, code uint, text string) {
	t.Helper()
	var e *types.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Error(), text) {
		t.Errorf("got %v, want code %d and %q", err, code, text)
	}
}

// Every verb of every version that the plugin knows, called by libcni from the list that the agent writes.
func TestVerbs(t *testing.T) {
	for _, version := range []string{"", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run("version "+version, func(t *testing.T) {
			h := newHost(t)
			r := h.newRuntime(t, h.publish(t, cni.ListConfig{}), version)
			latest := version == "" || version == "1.1.0"
			if version == "" && r.list.CNIVersion != "1.1.0" {
				t.Errorf("libcni chose %s", r.list.CNIVersion)
			}
			ctx := t.Context()
			if _, err := r.ValidateNetworkList(ctx, r.list); err != nil {
				t.Error(err)
			}
			h.AddSandbox("/run/netns/c1")
			c := conf("c1", "/run/netns/c1")
			out, err := r.AddNetworkList(ctx, r.list, c)
			if err != nil {
				t.Fatal(err)
			}
			res, err := types100.GetResult(out)
			if err != nil || len(res.IPs) != 2 || res.Interfaces[*res.IPs[0].Interface].Name != "eth0" || out.Version() != r.list.CNIVersion {
				t.Errorf("%+v, %v", res, err)
			}
			if err := r.CheckNetworkList(ctx, r.list, c); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			if err := r.GetStatusNetworkList(ctx, r.list); err != nil {
				t.Errorf("STATUS: %v", err)
			}
			h.SetUnready(errSome)
			if err := r.GetStatusNetworkList(ctx, r.list); latest {
				wants(t, err, protocol.CodeNotAvailable, errSome.Error())
			} else if err != nil {
				t.Errorf("STATUS: %v", err)
			}
			h.SetUnready(nil)
			if err := r.DelNetworkList(ctx, r.list, c); err != nil {
				t.Errorf("DEL: %v", err)
			}
			for range 2 { // the repeated DELs of containerd
				if err := r.DelNetworkList(ctx, r.list, conf("c1", "")); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
			if left := h.Left(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			wants(t, r.CheckNetworkList(ctx, r.list, c), protocol.CodeInvalidConfig, "prevResult")
		})
	}
}

// A lost DEL is healed by libcni's GC: it deletes the attachments that it still knows, also with host-local, which has no GC of its
// addresses itself. The agent removes those that libcni does not know any more.
func TestGC(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		h := newHost(t)
		c := cni.ListConfig{IPAM: hostLocal(h)}
		if forgotten {
			c.IPAM = nil
		}
		r := h.newRuntime(t, h.publish(t, c), "")
		for i := range 4 {
			id := fmt.Sprint("c", i)
			h.AddSandbox("/run/netns/" + id)
			if _, err := r.AddNetworkList(t.Context(), r.list, conf(id, "/run/netns/"+id)); err != nil {
				t.Fatal(err)
			}
		}
		if forgotten {
			if err := os.RemoveAll(h.dir + "/cache"); err != nil {
				t.Fatal(err)
			}
		}
		args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "c2", IfName: "eth0"}}}
		if err := r.GCNetworkList(t.Context(), r.list, args); err != nil {
			t.Fatal(err)
		}
		if left := h.Left(); len(left) != 1 || !h.Complete(attachment("c2")) || !forgotten && len(addresses(h)) != 1 {
			t.Errorf("left: %q, %q", left, addresses(h))
		}
	}
}

// hostLocal is the section of the real host-local.
func hostLocal(h *host) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.9.0.0/29"}], [{"subnet": "fd00:9::/125"}]], "routes": [{"dst": "0.0.0.0/0"}]}`, h.dir+"/host-local"))
}

// addresses returns those that host-local has given.
func addresses(h *host) []string {
	v4, _ := filepath.Glob(h.dir + "/host-local/contiv/10.*")
	return v4
}

// host-local gives the addresses: they reach the agent, and are released by each DEL, by refused ADDs, and also without an agent.
func TestHostLocal(t *testing.T) {
	for _, version := range []string{"0.4.0", "1.0.0", "1.1.0"} {
		h := newHost(t)
		r := h.newRuntime(t, h.publish(t, cni.ListConfig{IPAM: hostLocal(h)}), version)
		ctx := t.Context()
		add := func(id string) (*types100.Result, error) {
			h.AddSandbox("/run/netns/" + id)
			out, err := r.AddNetworkList(ctx, r.list, conf(id, "/run/netns/"+id))
			if err != nil {
				return nil, err
			}
			return types100.GetResult(out)
		}
		res, err := add("c1")
		if err != nil || res.IPs[0].Address.String() != "10.9.0.2/29" || res.IPs[1].Address.String() != "fd00:9::2/125" || res.IPs[0].Gateway.String() != "10.9.0.1" {
			t.Fatalf("%+v, %v", res, err)
		}
		if err := errors.Join(r.CheckNetworkList(ctx, r.list, conf("c1", "/run/netns/c1")), r.GetStatusNetworkList(ctx, r.list)); err != nil {
			t.Error(err)
		}
		h.Before = func(_ context.Context, step string, _ protocol.Attachment) error {
			if step == "add route" {
				return protocol.Errorf(protocol.CodeTryAgainLater, "VPP is away")
			}
			return nil
		}
		for i := range 10 { // more than addresses exist: none leaks
			_, err = add(fmt.Sprint("refused", i))
			wants(t, err, protocol.CodeTryAgainLater, "VPP is away")
		}
		if have := addresses(h); len(have) != 1 {
			t.Errorf("%s: addresses %q", version, have)
		}
		h.Before = nil
		h.stop() // no agent
		if err := r.DelNetworkList(ctx, r.list, conf("c1", "")); err != nil {
			t.Errorf("DEL: %v", err)
		}
		if have := addresses(h); len(have) != 0 {
			t.Errorf("%s: addresses %q", version, have)
		}
		h.startAgent(t)
		if _, err := add("c2"); err != nil || len(h.Left()) != 1 {
			t.Errorf("%s: %v, left %q", version, err, h.Left())
		}
		for i := range 4 { // host-local has five
			if _, err := add(fmt.Sprint("d", i)); err != nil {
				t.Error(err)
			}
		}
		_, err = add("d9")
		wants(t, err, protocol.CodeInternal, "IPAM plugin host-local: failed to allocate")
	}
}

// Real plugins stand behind ours: portmap gets its result, and tuning works in the sandbox.
func TestChain(t *testing.T) {
	h := newHost(t)
	netns := h.netns(t, "chain")
	r := h.newRuntime(t, h.publish(t, cni.ListConfig{Chain: []json.RawMessage{
		json.RawMessage(`{"type": "portmap", "capabilities": {"portMappings": true}}`),
		json.RawMessage(`{"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}`),
	}}), "")
	c := conf("c1", netns)
	out, err := r.AddNetworkList(t.Context(), r.list, c)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := types100.GetResult(out); err != nil || len(res.IPs) != 2 || res.Interfaces[0].Sandbox != netns {
		t.Errorf("%+v, %v", res, err)
	}
	text, err := exec.Command("ip", "netns", "exec", filepath.Base(netns), "cat", "/proc/sys/net/core/somaxconn").Output()
	if strings.TrimSpace(string(text)) != "500" {
		t.Errorf("tuning did not run: %q, %v", text, err)
	}
	if err := errors.Join(r.CheckNetworkList(t.Context(), r.list, c), r.DelNetworkList(t.Context(), r.list, c)); err != nil {
		t.Error(err)
	}
	if left := h.Left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// cnitool, as a person uses it: it finds the network in the folder of lists.
func TestCnitool(t *testing.T) {
	h := newHost(t)
	netns := h.netns(t, "tool")
	list := h.publish(t, cni.ListConfig{})
	tool := func(args ...string) (string, error) {
		cmd := exec.Command(programs+"/cnitool", args...)
		cmd.Env = append(os.Environ(), "CNI_PATH="+programs, "NETCONFPATH="+filepath.Dir(list), "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=a;K8S_POD_NAMESPACE=b")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := tool("add", "contiv", netns)
	if err != nil || !strings.Contains(out, `"10.1.1.2/32"`) {
		t.Fatalf("%v: %s", err, out)
	}
	for _, verb := range []string{"check", "status", "del", "del"} {
		args := []string{verb, "contiv", netns}
		if out, err := tool(args...); err != nil {
			t.Errorf("%s: %v: %s", verb, err, out)
		}
	}
	if left := h.Left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	h.stop()
	if out, err := tool("status", "contiv", netns); err == nil || !strings.Contains(out, "no agent listens") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := tool("add", "contiv", netns); err == nil || !strings.Contains(out, "no agent listens") {
		t.Errorf("%v: %s", err, out)
	}
}

// The program is static and small.
func TestSize(t *testing.T) {
	info, err := os.Stat(programs + "/contiv-cni")
	if err != nil || info.Size() >= 15<<20 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	t.Logf("%.1f MB", float64(info.Size())/1e6)
}

// BenchmarkCall is an ADD and a DEL of the built plugin, without VPP.
func BenchmarkCall(b *testing.B) {
	h := &host{dir: b.TempDir()}
	fresh(b, h)
	defer func() { h.stop(); h.Kill() }()
	config := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "contiv", "type": "contiv-cni", "socket": %q, "spool": %q}`, h.socket, h.dir+"/spool")
	run := func(verb string) {
		cmd := exec.Command(programs + "/contiv-cni")
		cmd.Stdin = strings.NewReader(config)
		cmd.Env = []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/c1", "CNI_PATH=" + programs}
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	var add, del, status time.Duration
	n := 0
	for b.Loop() {
		begin := time.Now()
		run("ADD")
		added := time.Now()
		run("DEL")
		deleted := time.Now()
		run("STATUS")
		add, del, status, n = add+added.Sub(begin), del+deleted.Sub(added), status+time.Since(deleted), n+1
	}
	for name, total := range map[string]time.Duration{"ms/ADD": add, "ms/DEL": del, "ms/STATUS": status} {
		b.ReportMetric(float64(total.Microseconds())/1000/float64(n), name)
	}
}
