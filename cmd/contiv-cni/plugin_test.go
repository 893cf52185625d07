package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// podArgs are the arguments of a pod as containerd sends them, in any order.
const podArgs = "K8S_POD_UID=u-1;IgnoreUnknown=1;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_NAMESPACE=prod"

// An ADD returns what the agent made, in the version that the configuration names.
func TestAddResult(t *testing.T) {
	h := newHost(t, false)
	h.startAgent(t)
	for version, want := range map[string]string{
		"0.4.0": `{"cniVersion":"0.4.0","dns":{},"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/c1"}],"ips":[{"version":"4","interface":0,"address":"10.1.1.2/32","gateway":"10.1.1.1"},{"version":"6","interface":0,"address":"fd00:1::2/128","gateway":"fd00:1::1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.1.1"},{"dst":"::/0","gw":"fd00:1::1"}]}`,
		"1.0.0": `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","mtu":1450,"sandbox":"/run/netns/c1"}],"ips":[{"interface":0,"address":"10.1.1.2/32","gateway":"10.1.1.1"},{"interface":0,"address":"fd00:1::2/128","gateway":"fd00:1::1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.1.1"},{"dst":"::/0","gw":"fd00:1::1"}]}`,
		"1.1.0": `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","mtu":1450,"sandbox":"/run/netns/c1"}],"ips":[{"interface":0,"address":"10.1.1.2/32","gateway":"10.1.1.1"},{"interface":0,"address":"fd00:1::2/128","gateway":"fd00:1::1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.1.1"},{"dst":"::/0","gw":"fd00:1::1"}]}`,
	} {
		h.AddSandbox("/run/netns/c1")
		out, err := h.run(t, call{verb: "ADD", id: "c1", netns: "/run/netns/c1", version: version, args: podArgs})
		if err != nil {
			t.Fatal(err)
		}
		var got, wanted any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal([]byte(want), &wanted)
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s: %s", version, diff)
		}
		more := fmt.Sprintf(`, "prevResult": %s`, out)
		if _, err := h.run(t, call{verb: "CHECK", id: "c1", netns: "/run/netns/c1", version: version, more: more}); err != nil {
			t.Errorf("%s: CHECK: %v", version, err)
		}
	}
	_, err := h.run(t, call{verb: "ADD", id: "c2", netns: "/run/netns/c2", version: "0.2.0"})
	wants(t, err, protocol.CodeIncompatibleVersion, "incompatible CNI versions")
	for _, verb := range []string{"STATUS", "GC"} {
		_, err = h.run(t, call{verb: verb, version: "1.0.0"})
		wants(t, err, protocol.CodeIncompatibleVersion, "config version does not allow "+verb)
	}
	_, err = h.run(t, call{verb: "CHECK", id: "c1", netns: "/run/netns/c1"})
	wants(t, err, protocol.CodeInvalidConfig, "prevResult: missing")
}

// The agent gets the pod, the ports, the limits and the MTU, in the runtime's forms.
func TestRequest(t *testing.T) {
	h := newHost(t, false)
	h.startAgent(t)
	var got protocol.Request
	h.Before = func(context.Context, string, protocol.Attachment) error { return nil }
	c := call{id: "c1", args: podArgs, more: `, "mtu": 1400, "runtimeConfig": {
		"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 53, "containerPort": 53, "protocol": "UDP", "hostIP": "192.0.2.1"}, {"hostPort": 81, "containerPort": 81}],
		"bandwidth": {"ingressRate": 1000000, "ingressBurst": 2147483647, "egressRate": 2000000, "egressBurst": 2147483647},
		"io.kubernetes.cri.pod-annotations": {"contiv-agent.io/interface": "memif", "other": "x"}}`}
	p := newPlugin("", "")
	conf, err := p.parseConfig([]byte(h.configuration(c)))
	if err != nil {
		t.Fatal(err)
	}
	got, err = request(conf, cmdArgs("c1", podArgs))
	want := `{"containerID":"c1","ifName":"eth0","network":"contiv","netns":"/run/netns/c1","pod":{"namespace":"prod","name":"web-0","uid":"u-1"},"mtu":1400,"interface":"memif",` +
		`"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"TCP"},{"hostPort":53,"containerPort":53,"protocol":"UDP","hostIP":"192.0.2.1"},{"hostPort":81,"containerPort":81,"protocol":"TCP"}],` +
		`"bandwidth":{"ingressRate":1000000,"ingressBurst":2147483647,"egressRate":2000000,"egressBurst":2147483647}}`
	text, _ := json.Marshal(got)
	if diff := cmp.Diff(want, string(text)); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for more, code := range map[string]uint{
		`, "mtu": -1`: protocol.CodeInvalidConfig,
		`, "runtimeConfig": {"portMappings": [{"hostPort": 99999, "containerPort": 80}]}`: protocol.CodeDecoding,
		`, "runtimeConfig": {"portMappings": [{"hostPort": 0, "containerPort": 80}]}`:     protocol.CodeInvalidConfig,
		`, "ipam": {"type": "../sh"}`:     protocol.CodeInvalidConfig,
		`, "ipam": {"type": "missing"}`:   protocol.CodeInvalidConfig,
		`, "prevResult": {"ips": "many"}`: protocol.CodeDecoding,
	} {
		_, err := h.add(t, call{id: "c1", more: more})
		wants(t, err, code, "")
	}
	_, err = h.add(t, call{id: "c1", args: "K8S_POD_NAME=a;broken"})
	wants(t, err, protocol.CodeInvalidEnvironment, "CNI_ARGS")
	if left := h.Left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A plugin behind another one keeps the other's part of the result.
func TestChain(t *testing.T) {
	h := newHost(t, false)
	h.startAgent(t)
	res, err := h.add(t, call{id: "c1", more: `, "dns": {"nameservers": ["10.96.0.10"]}, "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "lo", "sandbox": "/run/netns/c1"}], "ips": [{"interface": 0, "address": "127.0.0.1/8"}]}`})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Interfaces) != 2 || res.Interfaces[0].Name != "lo" || len(res.IPs) != 3 || *res.IPs[1].Interface != 1 || res.DNS.Nameservers[0] != "10.96.0.10" {
		t.Errorf("%+v", res)
	}
}

// An ADD without an agent fails soon with the code 11 and leaves nothing. One during the restart of an agent succeeds.
func TestAddWithoutAgent(t *testing.T) {
	for _, delegated := range []bool{false, true} {
		h := newHost(t, delegated)
		_, err := h.add(t, call{id: "c1", patience: 200 * time.Millisecond})
		wants(t, err, protocol.CodeTryAgainLater, "no agent listens at "+h.socket)
		if files, _ := filepath.Glob(h.dir + "/addresses/*"); len(files) > 0 {
			t.Errorf("left: %v", files)
		}
		if _, err := os.Stat(h.spool); err == nil {
			t.Error("a refused ADD left a record")
		}
		_, err = h.run(t, call{verb: "STATUS"})
		wants(t, err, protocol.CodeNotAvailable, "no agent listens at "+h.socket)
		var start sync.WaitGroup
		start.Go(func() {
			<-time.After(150 * time.Millisecond)
			h.startAgent(t)
		})
		_, err = h.add(t, call{id: "c1", patience: 20 * time.Second})
		start.Wait()
		if err != nil {
			t.Error(err)
		}
	}
}

// A DEL without an agent succeeds, and the next agent carries it out before it serves an ADD.
func TestDeleteWithoutAgent(t *testing.T) {
	for _, delegated := range []bool{false, true} {
		h := newHost(t, delegated)
		h.startAgent(t)
		for _, id := range []string{"c1", "c2"} {
			if _, err := h.add(t, call{id: id}); err != nil {
				t.Fatal(err)
			}
		}
		h.killAgent()
		for range 3 {
			if _, err := h.run(t, call{verb: "DEL", id: "c1"}); err != nil {
				t.Fatal(err)
			}
		}
		if files, _ := filepath.Glob(h.dir + "/addresses/*"); delegated && len(files) != 1 {
			t.Errorf("addresses of the IPAM plugin: %v", files)
		}
		h.startAgent(t)
		if _, err := h.add(t, call{id: "c3"}); err != nil {
			t.Fatal(err)
		}
		h.settled(t)
		if h.Complete(attachment("c1")) || !h.Complete(attachment("c2")) || len(h.Left()) != 2 {
			t.Errorf("left: %q", h.Left())
		}
		// A folder that cannot be written: the DEL fails, so that the runtime repeats it.
		h.killAgent()
		if err := os.RemoveAll(h.spool); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.spool, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := h.run(t, call{verb: "DEL", id: "c2"})
		wants(t, err, protocol.CodeTryAgainLater, "record of DEL")
	}
}

// An agent that starts while the plugin writes its record has read the folder already: the plugin finds it and leaves no record.
func TestAgentStartsBehindTheRecord(t *testing.T) {
	for _, point := range []string{"record", "recorded"} {
		h := newHost(t, false)
		h.startAgent(t)
		if _, err := h.add(t, call{id: "c1"}); err != nil {
			t.Fatal(err)
		}
		h.killAgent()
		p := newPlugin("", "")
		p.step = func(at string) {
			if at == point {
				h.startAgent(t)
				if _, err := h.add(t, call{id: "c2"}); err != nil { // its start has ended
					t.Error(err)
				}
			}
		}
		args := cmdArgs("c1", podArgs)
		args.StdinData = []byte(h.configuration(call{}))
		if err := p.del(args); err != nil {
			t.Error(err)
		}
		if files, _ := filepath.Glob(h.spool + "/*"); len(files) > 0 || h.Complete(attachment("c1")) {
			t.Errorf("%s: records %v, left %q", point, files, h.Left())
		}
	}
}

// The addresses of another IPAM plugin pass through the agent. They are released by the DEL, and by an ADD that the agent refuses.
func TestDelegation(t *testing.T) {
	h := newHost(t, true)
	h.startAgent(t)
	files := func() int {
		list, _ := filepath.Glob(h.dir + "/addresses/*")
		return len(list)
	}
	res, err := h.add(t, call{id: "c1"})
	if err != nil || res.IPs[0].Address.String() != "10.9.0.2/24" || res.DNS.Nameservers[0] != "10.9.0.53" || files() != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	h.Before = func(_ context.Context, step string, a protocol.Attachment) error {
		if step == "add route" && a.ContainerID == "c2" || step == "delete route" && a.ContainerID == "c1" {
			return protocol.Errorf(protocol.CodeTryAgainLater, "VPP is away")
		}
		return nil
	}
	_, err = h.add(t, call{id: "c2"})
	wants(t, err, protocol.CodeTryAgainLater, "VPP is away")
	if files() != 1 {
		t.Errorf("%d addresses after the refused ADD", files())
	}
	_, err = h.run(t, call{verb: "DEL", id: "c1"}) // while the agent refuses, the address stays: VPP still has it
	wants(t, err, protocol.CodeTryAgainLater, "VPP is away")
	if files() != 1 {
		t.Errorf("%d addresses after the refused DEL", files())
	}
	h.Before = nil
	if _, err = h.run(t, call{verb: "GC", more: `, "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]`}); err != nil || files() != 1 || len(h.Left()) != 1 {
		t.Errorf("GC: %v, %d, %q", err, files(), h.Left())
	}
	if _, err = h.run(t, call{verb: "GC"}); err != nil || files() != 0 || len(h.Left()) != 0 {
		t.Errorf("GC: %v, %d, %q", err, files(), h.Left())
	}
	for range 2 {
		if _, err = h.run(t, call{verb: "DEL", id: "c1"}); err != nil || files() != 0 {
			t.Errorf("DEL: %v, %d", err, files())
		}
	}
}

// Containerd's calls: an ADD refused with the code 11 gets a DEL at once, and later an ADD of a new sandbox; each deleted sandbox gets
// two more DELs without its namespace, mixed with the ADDs of others; STATUS is asked all the time.
func TestContainerd(t *testing.T) {
	h := newHost(t, false)
	h.startAgent(t)
	h.SetUnready(protocol.Errorf(protocol.CodeNotAvailable, "VPP does not answer at /run/vpp/api.sock"))
	h.Before = func(_ context.Context, step string, _ protocol.Attachment) error {
		if step == "add address" {
			return protocol.Errorf(protocol.CodeTryAgainLater, "VPP does not answer")
		}
		return nil
	}
	_, err := h.add(t, call{id: "s0", args: podArgs})
	wants(t, err, protocol.CodeTryAgainLater, "VPP does not answer")
	if _, err = h.run(t, call{verb: "DEL", id: "s0", netns: "/run/netns/s0", args: podArgs}); err != nil {
		t.Error(err)
	}
	_, err = h.run(t, call{verb: "STATUS"})
	wants(t, err, protocol.CodeNotAvailable, "VPP does not answer at /run/vpp/api.sock")
	h.Before = nil
	h.SetUnready(nil)
	var calls sync.WaitGroup
	for i := range 6 {
		calls.Go(func() {
			id := fmt.Sprint("s", i+1)
			if _, err := h.add(t, call{id: id, args: podArgs}); err != nil {
				t.Error(err)
			}
			if i%2 == 0 {
				return // stays
			}
			_, err := h.run(t, call{verb: "DEL", id: id, netns: "/run/netns/" + id, args: podArgs})
			h.RemoveSandbox("/run/netns/"+id, attachment(id))
			for range 2 {
				if _, again := h.run(t, call{verb: "DEL", id: id, args: podArgs}); err != nil || again != nil {
					t.Error(err, again)
				}
			}
			if _, err := h.run(t, call{verb: "STATUS"}); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	// The node crashes: a DEL without a namespace for each old sandbox, then ADDs.
	h.killAgent()
	h.startAgent(t)
	for i := range 6 {
		if i%2 == 0 != h.Complete(attachment(fmt.Sprint("s", i+1))) {
			t.Errorf("left: %q", h.Left())
		}
		if _, err := h.run(t, call{verb: "DEL", id: fmt.Sprint("s", i+1)}); err != nil {
			t.Error(err)
		}
	}
	if _, err := h.add(t, call{id: "n1"}); err != nil || len(h.Left()) != 1 {
		t.Errorf("%v, left: %q", err, h.Left())
	}
	if h.Open() > 0 {
		t.Error("a pod could be reached without its lists")
	}
}
