package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
)

const otherPods = `
apiVersion: v1
kind: Pod
metadata: {name: far, namespace: default}
spec: {nodeName: node-2, containers: [{name: c, image: i}]}
status: {podIP: 10.1.2.2, podIPs: [{ip: 10.1.2.2}], phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: default}
spec: {nodeName: node-1, hostNetwork: true, containers: [{name: c, image: i}]}
status: {podIP: 192.168.16.1, podIPs: [{ip: 192.168.16.1}], phase: Running}
`

var fewPackets = capture.Limits{Packets: 2, Bytes: 100, Time: time.Minute}

// captured starts a capture over the agent's socket, and returns when VPP captures.
func (w *watched) captured(ctx context.Context, pod string, l capture.Limits, stop <-chan struct{}) (result func() ([]byte, error)) {
	w.t.Helper()
	var file []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		file, err = control.FetchCapture(ctx, w.agent.cfg.Listen.Status, model.PodID{Namespace: "default", Name: pod}, l, stop)
	}()
	for end := time.Now().Add(30 * time.Second); !w.capturing(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-done:
			w.t.Fatal(err)
		default:
		}
		if time.Now().After(end) {
			w.t.Fatal("the capture does not begin")
		}
	}
	return func() ([]byte, error) { <-done; return file, err }
}

// capturing reports whether VPP captures at the interface of a pod.
func (w *watched) capturing() bool {
	r := w.agent.conn.Do(w.t.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: "pcap trace status"}})[0]
	m, ok := r.Msg.(*vlib.CliInbandReply)
	if !ok || r.Err != nil {
		w.t.Fatal(r.Err)
	}
	return strings.Contains(m.Reply, "/contiv-capture-")
}

// lent reports whether dropped packets are not captured because a capture of a pod needs VPP's only one. That capture may not have begun.
func (w *watched) lent() bool {
	w.look()
	answer, err := w.watcher.Ask(w.t.Context(), 0, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.Sources[0].Problem == capture.ErrLent.Error()
}

// A capture has what the pod sends, also what a policy denies, and what it gets; flows of dropped packets continue afterwards.
func TestCapturePod(t *testing.T) {
	w := watchFlows(t, "capture", otherPods)
	result := w.captured(t.Context(), "web", fewPackets, nil)
	w.send("uplink", tcp("10.2.9.7:1002", "10.1.1.2:80")) // denied, so the pod does not get it
	w.send(webDoor, tcp("10.1.1.2:1003", "10.3.7.1:53"))  // denied
	w.send(clientDoor, tcp("10.1.1.3:1004", "10.3.0.1:53"))
	w.send("uplink", tcp("10.2.0.7:1005", "10.1.1.2:80"))
	file, err := result()
	packets, errFile := capture.Parse(file)
	if err != nil || errFile != nil || len(packets) != 2 || packets[0].SrcPort != 1003 || packets[1].SrcPort != 1005 {
		t.Fatalf("%+v, %v, %v", packets, err, errFile)
	}
	for end := time.Now().Add(30 * time.Second); w.lent(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("flows have no dropped packets after the capture")
		}
	}
	w.send(webDoor, tcp("10.1.1.2:1006", "10.3.7.1:53"))
	w.look()
	if got := strings.Join(w.lines(nil), "\n"); !strings.Contains(got, "default/web:1006 -> 10.3.7.1:53") {
		t.Errorf("flows after the capture:\n%s", got)
	}
}

// A client that stops gets the packets so far. One that disconnects, and the end of the agent, end the capture.
func TestCaptureEnds(t *testing.T) {
	w := watchFlows(t, "captureends")
	stop := make(chan struct{})
	result := w.captured(t.Context(), "web", fewPackets, stop)
	_, err := control.FetchCapture(t.Context(), w.agent.cfg.Listen.Status, model.PodID{Namespace: "default", Name: "web"}, fewPackets, nil)
	if err == nil || !strings.Contains(err.Error(), capture.ErrBusy.Error()) {
		t.Errorf("a second capture: %v", err)
	}
	w.send(webDoor, tcp("10.1.1.2:1003", "10.3.7.1:53"))
	close(stop)
	file, err := result()
	if n, errFile := capture.Count(file); n != 1 || err != nil || errFile != nil {
		t.Errorf("stopped: %d packets, %v, %v", n, err, errFile)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result = w.captured(ctx, "web", fewPackets, nil)
	cancel()
	if _, err := result(); !errors.Is(err, context.Canceled) {
		t.Errorf("abandoned: %v", err)
	}
	for end := time.Now().Add(30 * time.Second); w.lent(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an abandoned capture continues")
		}
	}
	result = w.captured(t.Context(), "web", fewPackets, nil)
	if err := w.stop(); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("the agent ends with %v", err)
	}
	if _, err := result(); err == nil {
		t.Error("a capture survives its agent")
	}
}

// A pod without interface here, and wrong limits, are errors that say so.
func TestCaptureOfOtherPods(t *testing.T) {
	w := watchFlows(t, "captureother", otherPods)
	for name, want := range map[string]string{"none": "does not know it", "far": `on node "node-2"`, "host": "host's network"} {
		_, err := control.FetchCapture(t.Context(), w.agent.cfg.Listen.Status, model.PodID{Namespace: "default", Name: name}, fewPackets, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprintf("default/%s", name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := control.FetchCapture(t.Context(), w.agent.cfg.Listen.Status, model.PodID{Namespace: "default", Name: "web"}, capture.Limits{Packets: 1}, nil)
	if err == nil || !strings.Contains(err.Error(), "bytes of a packet") {
		t.Errorf("no limits: %v", err)
	}
	other := start(t, nil)
	other.wait("first sync", firstSync)
	_, err = control.FetchCapture(t.Context(), other.agent.cfg.Listen.Status, model.PodID{Namespace: "default", Name: "web"}, fewPackets, nil)
	if err == nil || !strings.Contains(err.Error(), "does not capture") {
		t.Errorf("an agent without captures: %v", err)
	}
}
