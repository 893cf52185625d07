package podnet

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	linuxinterfaces "github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
)

// kindsOf are the kinds of interfaces of the pods, in VPP and in the kernel, by pod.
func (w *world) kindsOf() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, pods := map[string]string{}, map[string]string{}
	for key, m := range w.values {
		if name, is := kv.PodInterfaceOf(key); is {
			if i, is := m.(*interfaces.Interface); is {
				pod, _, _ := strings.Cut(strings.TrimPrefix(name, "pod:"), ":")
				pods[name] = pod
				out[pod] = i.GetType().String()
			}
		}
	}
	for _, m := range w.values {
		if i, is := m.(*linuxinterfaces.Interface); is && i.GetType() == linuxinterfaces.Interface_TAP_TO_VPP {
			out[pods[i.GetTap().GetVppTapIfName()]] += " " + i.GetHostIfName()
		}
	}
	return out
}

// TestTap: an agent that prefers taps gives one to new pods, and pods keep what they have. A pod may ask for another kind.
func TestTap(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("old"), pod("new"), pod("asks"), pod("last"), pod("wants"))
	w.add(request("c1", "old"))
	restart := func(prefer string) {
		w.stop()
		w.prefer = prefer
		w.start()
		w.nodes()
		w.put(pod("old"), pod("new"), pod("asks"), pod("last"), pod("wants"))
	}
	is := func(pod, want string) {
		t.Helper()
		if got := w.kindsOf()["default/"+pod]; got != want {
			t.Errorf("%s has %q, want %q", pod, got, want)
		}
	}
	restart(protocol.InterfaceTap)
	got := w.add(request("c2", "new"))
	if got.Host != nil || got.Interface.Name != "eth0" || got.Interface.Sandbox != here || got.Interface.Socket != "" || len(got.IPs) != 2 {
		t.Errorf("result %+v", got)
	}
	veth := request("c3", "asks")
	veth.Interface = protocol.InterfaceVeth
	if got := w.add(veth); got.Host == nil {
		t.Errorf("result of a veth: %+v", got)
	}
	for range 2 {
		is("old", "AF_PACKET")
		is("new", "TAP eth0")
		is("asks", "AF_PACKET")
		restart(protocol.InterfaceVeth)
	}
	again, err := w.net.Add(t.Context(), request("c2", "new")) // the runtime repeats it
	if err != nil || again.Host != nil {
		t.Errorf("%+v, %v", again, err)
	}
	w.add(request("c4", "last"))
	is("last", "AF_PACKET")
	tap := request("c5", "wants")
	tap.Interface = protocol.InterfaceTap
	w.add(tap)
	is("wants", "TAP eth0")
	tap.ContainerID, tap.Interface = "c6", "tun"
	if _, err := w.net.Add(t.Context(), tap); err == nil || !strings.Contains(err.Error(), `"tun" is none of veth, tap, memif`) {
		t.Error(err)
	}
	for container, pod := range map[string]string{"c1": "old", "c2": "new", "c3": "asks", "c4": "last", "c5": "wants"} {
		if err := w.net.Delete(t.Context(), request(container, pod)); err != nil {
			t.Error(err)
		}
	}
	if left := w.podKeys(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestPreferTaps: the reason names the device that cannot be opened.
func TestPreferTaps(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "vhost-net")
	if kind, why := PreferTaps([]string{"/dev/null", missing}); kind != protocol.InterfaceVeth || why == nil || !strings.Contains(why.Error(), missing) {
		t.Errorf("%s, %v", kind, why)
	}
	if kind, why := PreferTaps([]string{"/dev/null"}); kind != protocol.InterfaceTap || why != nil {
		t.Errorf("%s, %v", kind, why)
	}
}
