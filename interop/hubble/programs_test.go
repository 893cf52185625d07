package hubble

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/contiv-agent/contiv-agent/agent/flows/hubble"
	extgrpc "github.com/contiv-agent/contiv-agent/plugins/extconfig/grpc"
	"github.com/contiv-agent/contiv-agent/proto/hubble/flow"
	"github.com/contiv-agent/contiv-agent/proto/hubble/observer"
	"github.com/contiv-agent/contiv-agent/test/port"
)

const (
	webDoor    = "pod-shop/web"
	clientDoor = "pod-prod/client"
	farDoor    = "pod-prod/far"
)

// ask runs hubble against a server.
func ask(t *testing.T, server string, args ...string) string {
	t.Helper()
	out, err := run(t, "", "hubble", append([]string{"--server", server}, args...)...)
	if err != nil {
		t.Fatalf("hubble %q: %v", args, err)
	}
	return out
}

// observed returns the flows that hubble prints.
func observed(t *testing.T, server string, args ...string) (out []*flow.Flow) {
	t.Helper()
	for line := range strings.Lines(ask(t, server, append([]string{"observe", "-o", "jsonpb"}, args...)...)) {
		out = append(out, parsed(t, line))
	}
	return out
}

// parsed reads a line of hubble observe -o jsonpb; nil: it shows no flow.
func parsed(t *testing.T, line string) *flow.Flow {
	t.Helper()
	r := &observer.GetFlowsResponse{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(line), r); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return r.GetFlow()
}

// waitFor sends packets until hubble prints flows with each of these texts: drops are seen from the watcher's first period on.
func waitFor(t *testing.T, server string, send func(), texts ...string) {
	t.Helper()
	cilium(t, "hubble")
	for deadline := time.Now().Add(2 * time.Minute); ; {
		send()
		out := ask(t, server, "observe", "--last", "100", "-o", "compact")
		missing := slices.DeleteFunc(slices.Clone(texts), func(want string) bool { return strings.Contains(out, want) })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q are not in\n%s", missing, out)
		}
	}
}

// TestHubble: the hubble program shows the flows of an agent, selects them by each of its flags as Cilium's filters do, and follows.
func TestHubble(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "hubble.sock")
	v := startNode(t, hubble.Config{Listen: "unix:" + socket, Node: "node-1"})
	server := "unix://" + socket
	waitFor(t, server, func() {
		send(v, "uplink", "10.2.0.7:1000", "10.1.1.2:8080")
		send(v, clientDoor, "10.1.1.3:1002", "10.3.7.1:53")
		send(v, clientDoor, "10.1.1.3:1003", "10.96.0.10:80")
		send(v, "uplink", "192.0.2.7:1001", "10.1.1.2:8080")
	}, "10.3.7.1:53", "shop/front:80", "10.2.0.7:1000", "192.0.2.7:1001")

	t.Run("status", func(t *testing.T) {
		out := ask(t, server, "status")
		for _, want := range []string{"Healthcheck (via " + server + "): Ok", "/4,096"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
		if out := ask(t, server, "list", "nodes"); !strings.Contains(out, "node-1") || !strings.Contains(out, "Connected") {
			t.Error(out)
		}
		var spaces []struct{ Namespace string }
		if err := json.Unmarshal([]byte(ask(t, server, "list", "namespaces", "-o", "json")), &spaces); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(spaces) != "[{prod} {shop}]" {
			t.Errorf("namespaces: %v", spaces)
		}
	})

	t.Run("output", func(t *testing.T) {
		out := ask(t, server, "observe", "--from-ip", "192.0.2.7", "--print-node-name")
		for _, want := range []string{"[node-1]: 192.0.2.7:1001 (world) <> shop/web:8080 (ID:", "Policy denied DROPPED (TCP, denied: NetworkPolicy shop/web isolates shop/web for ingress"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
		denied := observed(t, server, "--to-ip", "10.3.7.1")
		if len(denied) != 1 || len(denied[0].GetEgressDeniedBy()) != 1 || denied[0].GetEgressDeniedBy()[0].GetName() != "guard" || denied[0].GetDropReasonDesc() != flow.DropReason_POLICY_DENIED {
			t.Errorf("the policy that denied: %v", denied)
		}
		if isolated := observed(t, server, "--from-ip", "192.0.2.7"); len(isolated) != 1 || len(isolated[0].GetIngressDeniedBy()) != 1 || isolated[0].GetIngressDeniedBy()[0].GetName() != "web" {
			t.Errorf("the policy that isolates: %v", isolated)
		}
		if out := ask(t, server, "observe", "--from-ip", "10.2.0.7", "--print-policy-names"); !strings.Contains(out, "INGRESS ALLOWED BY web (NetworkPolicy)") {
			t.Errorf("the policy that allowed: %s", out)
		}
	})

	t.Run("flags", func(t *testing.T) { compareFlags(t, server) })

	t.Run("refusals", func(t *testing.T) {
		for field, flags := range map[string][]string{
			"http_method": {"--http-method", "get"}, "source_fqdn": {"--from-fqdn", "x"}, "tcp_flags": {"--tcp-flags", "syn"}, "blacklist[0].node_labels": {"--not", "--node-label", "a=b"},
			"protocol": {"--protocol", "http"}, "encrypted": {"--encrypted"}, "kind": {"--workload", "Job/x"}, "experimental": {"--cel-expression", "true"},
		} {
			if _, err := run(t, "", "hubble", append([]string{"--server", server, "observe"}, flags...)...); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%q: %v, want an error that names %s", flags, err, field)
			}
		}
	})

	t.Run("follow", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := command(ctx, t, "hubble", "--server", server, "observe", "-f", "--last", "1", "-o", "jsonpb", "--verdict", "DROPPED", "--to-port", "8080", "--to-port", "9")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		next := func() *flow.Flow {
			if !lines.Scan() {
				t.Fatal("hubble ended")
			}
			return parsed(t, lines.Text())
		}
		if f := next(); f.GetIP().GetSource() != "192.0.2.7" {
			t.Errorf("the latest flow: %v", f)
		}
		send(v, "uplink", "192.0.2.8:1001", "10.1.1.2:8080")
		send(v, "uplink", "10.2.0.7:1005", "10.1.1.2:8080") // passes
		send(v, "uplink", "192.0.2.9:1001", "10.1.1.2:9")
		var got []string
		for range 2 {
			got = append(got, next().GetIP().GetSource())
		}
		slices.Sort(got) // both may be in one read
		if diff := cmp.Diff([]string{"192.0.2.8", "192.0.2.9"}, got); diff != "" {
			t.Error(diff)
		}
		cancel()
		_ = cmd.Wait() // it was killed
	})
}

// compareFlags compares what hubble prints with what Cilium's filters select, for the filters that hubble makes of its flags.
func compareFlags(t *testing.T, server string) {
	all := observed(t, server, "--all")
	some := 0
	for _, flags := range []string{
		"--pod shop/web", "--from-pod prod/cl", "--to-pod shop/", "--namespace prod", "--to-namespace shop", "--service shop/front", "--to-service shop/front", "--ip 10.2.0.0/16",
		"--from-ip 192.0.2.7", "--verdict FORWARDED", "--verdict DROPPED", "--protocol tcp", "--protocol udp", "--port 53", "--from-port 1003", "--to-port 80", "--label app=client",
		"--from-label tier in (front,back)", "--node-name node-*", "--node-name other", "--type drop", "--type policy-verdict", "--type trace:from-endpoint", "--not --pod prod/",
		"--not --verdict DROPPED", "--to-port 8080 --not --from-ip 192.0.2.7", "--workload client", "--identity world", "--traffic-direction egress", "--drop-reason-desc POLICY_DENIED",
		"--ipv6", "--cluster default", "--all-namespaces", "--from-all-namespaces --to-ip 10.3.7.1", "--snat-ip 10.1.1.3",
	} {
		args := split(flags)
		var raw struct{ Allowlist, Denylist []string }
		if err := yaml.Unmarshal([]byte(ask(t, server, append([]string{"observe", "--print-raw-filters"}, args...)...)), &raw); err != nil {
			t.Fatal(flags, err)
		}
		req := &observer.GetFlowsRequest{}
		for _, l := range []struct {
			texts []string
			into  *[]*flow.FlowFilter
		}{{raw.Allowlist, &req.Whitelist}, {raw.Denylist, &req.Blacklist}} {
			for _, text := range l.texts {
				f := &flow.FlowFilter{}
				if err := protojson.Unmarshal([]byte(text), f); err != nil {
					t.Fatal(flags, err)
				}
				*l.into = append(*l.into, f)
			}
		}
		if len(req.GetWhitelist())+len(req.GetBlacklist()) == 0 {
			t.Errorf("%s makes no filter", flags)
		}
		var want, got []string
		for i, verdict := range ciliumMatches(t, []*observer.GetFlowsRequest{req}, all)[0] {
			if verdict == "true" {
				want = append(want, all[i].GetUuid())
			}
		}
		for _, f := range observed(t, server, append(args, "--last", "1000")...) {
			got = append(got, f.GetUuid())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("hubble observe %s (-as Cilium selects +got):\n%s", flags, diff)
		}
		if len(got) > 0 && len(got) < len(all) {
			some++
		}
	}
	if some < 20 {
		t.Errorf("only %d sets of flags select some of the %d flows", some, len(all))
	}
}

// split splits flags at "--"; the value of a flag may have spaces.
func split(flags string) (out []string) {
	for part := range strings.SplitSeq(strings.TrimPrefix(flags, "--"), " --") {
		name, value, has := strings.Cut(part, " ")
		if out = append(out, "--"+name); has {
			out = append(out, value)
		}
	}
	return out
}

// TestRelay: Hubble Relay finds the agents of two nodes by asking one, by TLS with certificates as Cilium makes them, and hubble reads the flows of
// both from it, or of one by TLS.
func TestRelay(t *testing.T) {
	agents, relay := port.Free(t), port.Free(t)
	nodes := []hubble.Node{{Name: "node-1", Address: netip.MustParseAddr("127.0.1.1")}, {Name: "node-2", Address: netip.MustParseAddr("127.0.1.2")}}
	files := certificates(t)
	agentTLS, err := extgrpc.LoadTLS(files+"/agent.crt", files+"/agent.key", files+"/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	first := startNode(t, hubble.Config{Listen: fmt.Sprintf("127.0.1.1:%d", agents), Node: "node-1", TLS: agentTLS}, nodes...)
	second := startNode(t, hubble.Config{Listen: fmt.Sprintf("127.0.1.2:%d", agents), Node: "node-2", TLS: agentTLS}, nodes...)
	server := fmt.Sprintf("127.0.0.1:%d", relay)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := command(ctx, t, "hubble-relay", "serve", "--peer-service", fmt.Sprintf("127.0.1.1:%d", agents), "--listen-address", server,
		"--health-listen-address", fmt.Sprintf("127.0.0.1:%d", port.Free(t)), "--disable-server-tls", "--gops=false",
		"--tls-hubble-client-cert-file", files+"/client.crt", "--tls-hubble-client-key-file", files+"/client.key", "--tls-hubble-server-ca-files", files+"/ca.crt")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	limit, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	for nodes := (&observer.GetNodesResponse{}); ; {
		err := conn.Invoke(limit, "/observer.Observer/GetNodes", &observer.GetNodesRequest{}, nodes)
		if err == nil && len(nodes.GetNodes()) == 2 && !slices.ContainsFunc(nodes.GetNodes(), func(n *observer.Node) bool { return n.GetState() != 1 }) {
			break
		}
		if limit.Err() != nil {
			t.Fatal(errors.Join(err, limit.Err()), nodes)
		}
	}
	if out := ask(t, server, "list", "nodes"); strings.Count(out, "Connected") != 2 || !strings.Contains(out, "node-2") {
		t.Errorf("nodes:\n%s", out)
	}
	for { // relay looks at its own health every five seconds
		out, err := run(t, "", "hubble", "--server", server, "status")
		if strings.Contains(out, "Connected Nodes: 2/2") {
			break
		}
		if limit.Err() != nil {
			t.Fatalf("status: %v\n%s", err, out)
		}
	}
	waitFor(t, server, func() {
		send(first, clientDoor, "10.1.1.3:1002", "10.3.7.1:53")
		send(second, farDoor, "10.1.2.2:1003", "10.3.7.2:53")
	}, "10.3.7.1:53", "10.3.7.2:53")
	secure := []string{"--tls-ca-cert-files", files + "/ca.crt", "--tls-server-name", "node-2.default.hubble-grpc.cilium.io"}
	address := fmt.Sprintf("tls://127.0.1.2:%d", agents)
	if all := observed(t, address, append(secure, "--tls-client-cert-file", files+"/client.crt", "--tls-client-key-file", files+"/client.key", "--all")...); len(all) == 0 {
		t.Error("no flows by TLS")
	}
	if out, err := run(t, "", "hubble", append([]string{"--server", address, "observe"}, secure...)...); err == nil {
		t.Errorf("flows without a certificate: %s", out)
	}
	var got []string
	for _, f := range observed(t, server, "--all", "--verdict", "DROPPED", "--port", "53") {
		if f != nil { // relay also shows the states of nodes
			got = append(got, fmt.Sprintf("%s %s/%s %s", f.GetNodeName(), f.GetSource().GetNamespace(), f.GetSource().GetPodName(), f.GetEgressDeniedBy()[0].GetName()))
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"node-1 prod/client guard", "node-2 prod/far guard"}, got); diff != "" {
		t.Error(diff)
	}
	t.Run("ui", func(t *testing.T) { hubbleUI(t, server) })
}
