package realvpp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/control"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestVPPCapture: a capture of a pod has the packets that its interface receives, denied ones as well, and those that it sends. Flows of dropped packets
// continue afterwards.
func TestVPPCapture(t *testing.T) {
	l, web, dir := labWithWeb(t, theVPP(t), flowObjects)
	name := fmt.Sprintf("lab%d", time.Now().UnixNano())
	watcher := agentflows.New(agentflows.Config{Node: "node-1", Every: 100 * time.Millisecond, Folder: "/tmp", Name: name, Logger: slog.New(slog.DiscardHandler)})
	cfg := agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Socket: l.socket(), MaxBackoff: 100 * time.Millisecond}, Override: cni.Located(),
		Sources:  map[string]agent.Source{manifest.Name: manifest.New(manifest.Config{Paths: []string{dir}})},
		VPPAgent: vppagent.Config{Recheck: time.Second}, // VPP sends no event when an interface gets a name
		Listen:   config.Listeners{Status: filepath.Join(t.TempDir(), "agent.sock")},
	}
	cfg.Process.Flows = watcher
	cfg.Process.Capture = capture.NewInterface("/tmp", name, watcher.Drops())
	runAgent(t, cfg)
	sent := seenLife(t, l, watcher, web.ID, 1000, 0) // the first sync is done

	type result struct {
		file []byte
		err  error
	}
	stop, done := make(chan struct{}), make(chan result, 1)
	go func() {
		file, err := control.FetchCapture(context.Background(), cfg.Listen.Status, web.ID, capture.Limits{Packets: 5000, Bytes: 100, Time: time.Minute}, stop)
		done <- result{file, err}
	}()
	for end := time.Now().Add(patience); !strings.Contains(l.cli("pcap trace status"), "/contiv-capture-"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no capture: %v", (<-done).err)
		}
	}
	door := cni.PodInterface(web.ID)
	for _, k := range []struct{ in, from, to string }{
		{door, "10.1.1.2:2001", "10.3.0.1:53"},
		{door, "10.1.1.2:2002", "10.3.7.1:53"}, // denied
		{door, "10.1.1.2:2003", "10.96.0.10:80"},
		{"uplink", "10.2.0.7:2004", "10.1.1.2:80"},
		{"uplink", "10.2.9.7:2005", "10.1.1.2:80"}, // denied before it reaches the pod
	} {
		if _, err := l.send(k.in, packet.NewTCP(netip.MustParseAddrPort(k.from), netip.MustParseAddrPort(k.to)).Opening()); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(300 * time.Millisecond)
	close(stop)
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	packets, err := capture.Parse(r.file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, p := range packets {
		got[fmt.Sprintf("%s:%d -> %s:%d", p.Src, p.SrcPort, p.Dst, p.DstPort)]++
	}
	for _, want := range []string{"10.1.1.2:2001 -> 10.3.0.1:53", "10.1.1.2:2002 -> 10.3.7.1:53", "10.1.1.2:2003 -> 10.96.0.10:80", "10.2.0.7:2004 -> 10.1.1.2:80"} {
		if got[want] != 1 {
			t.Errorf("%s is %d times in the capture: %v", want, got[want], got)
		}
	}
	if got["10.2.9.7:2005 -> 10.1.1.2:80"] > 0 || bytes.Contains(r.file, []byte("acl-plugin")) {
		t.Errorf("the capture has packets that the pod does not get: %v", got)
	}
	seenLife(t, l, watcher, web.ID, 3000, sent+1) // one of the client's packets was captured
}
