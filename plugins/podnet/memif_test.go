package podnet

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

func memifRequest(container, pod, uid string) protocol.Request {
	r := request(container, pod)
	r.Interface, r.Pod.UID = protocol.InterfaceMemif, uid
	return r
}

// files are the names in the folder of memif sockets, each with its folder.
func (w *world) files() string {
	all, err := filepath.Glob(filepath.Join(w.dir, "memif", "*", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range all {
		all[i], _ = filepath.Rel(filepath.Join(w.dir, "memif"), all[i])
	}
	return strings.Join(all, " ")
}

// TestMemif: a pod that asks for a memif interface gets a socket, a description, and no link in its namespace.
func TestMemif(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"))
	got := w.add(memifRequest("c1", "web", "u1"))
	socket := filepath.Join(w.dir, "memif", "u1", "eth0.sock")
	if got.Interface.Socket != socket || got.Interface.Name != "eth0" || got.Interface.Sandbox != here || got.Host != nil || len(got.IPs) != 2 || len(got.Routes) != 2 {
		t.Errorf("result %+v", got)
	}
	for _, key := range w.podKeys() {
		if strings.HasPrefix(key, "config/linux/") {
			t.Errorf("the kernel has %s", key)
		}
	}
	body, err := os.ReadFile(filepath.Join(w.dir, "memif", "u1", "eth0.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d MemifDescription
	if err := json.Unmarshal(body, &d); err != nil {
		t.Fatal(err)
	}
	if d.Socket != "eth0.sock" || d.MAC != got.Interface.MAC || d.MTU != 1450 || d.Addresses[0] != netip.MustParsePrefix("10.1.1.2/32") || d.Neighbours["169.254.1.1"] != vppMAC || len(d.Routes) != 2 {
		t.Errorf("description %+v", d)
	}
	if err := w.net.Check(t.Context(), memifRequest("c1", "web", "u1"), got); err != nil {
		t.Error(err)
	}
}

// TestMemifFolders: each pod has its folder until its last interface is deleted, also across restarts of the agent.
func TestMemifFolders(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"), pod("db"))
	w.add(memifRequest("c1", "web", "u1"))
	second := memifRequest("c1", "web", "u1")
	second.IfName = "net1"
	w.add(second)
	w.add(memifRequest("c2", "db", "u2"))
	// A killed agent leaves the folder of no attachment, and an attachment without its folder.
	for _, err := range []error{os.Mkdir(filepath.Join(w.dir, "memif", "u3"), 0o700), os.WriteFile(filepath.Join(w.dir, "memif", "u3", "eth0.json"), nil, 0o600), os.RemoveAll(filepath.Join(w.dir, "memif", "u2"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.stop()
	w.start()
	if got := w.files(); got != "u1/eth0.json u1/net1.json u2/eth0.json" {
		t.Errorf("after a restart: %s", got)
	}
	w.delete(second)
	if got := w.files(); got != "u1/eth0.json u2/eth0.json" {
		t.Errorf("after the DEL of one interface: %s", got)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "memif", "u1", "of-the-pod"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.delete(memifRequest("c1", "web", "u1"))
	if got := w.files(); got != "u2/eth0.json" {
		t.Errorf("after the DEL of the last interface: %s", got)
	}
	if err := w.net.Collect(t.Context(), nil); err != nil || w.files() != "" {
		t.Errorf("after GC: %s, %v", w.files(), err)
	}
}

func (w *world) delete(r protocol.Request) {
	w.t.Helper()
	if err := w.net.Delete(w.t.Context(), r); err != nil {
		w.t.Fatal(err)
	}
}

// TestMemifRefused: requests for an interface that nobody can make leave nothing.
func TestMemifRefused(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"), pod("db"))
	w.add(memifRequest("c1", "web", "u1"))
	unknown := request("c2", "db")
	unknown.Interface = "vhost-user"
	for _, c := range []struct {
		r    protocol.Request
		code uint
		text string
	}{
		{unknown, protocol.CodeInvalidConfig, `annotation contiv-agent.io/interface: "vhost-user" is none of veth, tap, memif`},
		{memifRequest("c2", "db", ""), protocol.CodeInvalidEnvironment, "K8S_POD_UID"},
		{memifRequest("c2", "db", ".."), protocol.CodeInvalidEnvironment, "K8S_POD_UID"},
		{memifRequest("c2", "db", "."), protocol.CodeInvalidEnvironment, "K8S_POD_UID"},
		{memifRequest("c2", "db", "../u1"), protocol.CodeInvalidEnvironment, "K8S_POD_UID"},
		{memifRequest("c2", "db", strings.Repeat("u", 120)), protocol.CodeInvalidConfig, "at most 107"},
		{memifRequest("c2", "web", "u1"), protocol.CodeTryAgainLater, "the pod's sandbox c1 still has it"},
	} {
		if _, err := w.net.Add(t.Context(), c.r); code(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s, UID %q: %v", c.r.Attachment, c.r.Pod.UID, err)
		}
		w.delete(c.r)
	}
	if got := w.files(); got != "u1/eth0.json" {
		t.Errorf("left: %s", got)
	}
	w.net.cfg.Memifs = ""
	if _, err := w.net.Add(t.Context(), memifRequest("c2", "db", "u2")); code(err) != protocol.CodeInvalidConfig {
		t.Errorf("without a folder: %v", err)
	}
}

// TestCauseFirst: an Add names the value that VPP refuses, not one that waits for it.
func TestCauseFirst(t *testing.T) {
	s := newStates()
	for key, st := range map[string]event.ValueStatus{
		"a": {State: event.Configured}, "b": {State: event.Pending, Err: "waits"}, "c": {State: event.Retrying, Err: "refused"}, "d": {State: event.Pending},
	} {
		st.Key = key
		s.of[key] = state{st, true}
	}
	if why := s.firstMissing([]string{"a", "b", "c", "d"}); !strings.Contains(why, "refused") {
		t.Errorf("got %q", why)
	}
	if why := s.firstMissing([]string{"a", "b", "d"}); !strings.HasPrefix(why, "b") {
		t.Errorf("got %q", why)
	}
	if why := s.firstMissing([]string{"a"}); why != "" {
		t.Errorf("got %q", why)
	}
}
