package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/trace"
)

const closedWorld = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
spec: {podCIDR: 10.1.2.0/24, podCIDRs: [10.1.2.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.2}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: tenant, labels: {kubernetes.io/metadata.name: tenant}}
---
apiVersion: v1
kind: Namespace
metadata: {name: monitoring, labels: {kubernetes.io/metadata.name: monitoring}}
---
apiVersion: v1
kind: Pod
metadata: {name: evil, namespace: tenant}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}], phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: tenant}
spec: {nodeName: node-2, containers: [{name: c, image: i}]}
status: {podIP: 10.1.2.2, podIPs: [{ip: 10.1.2.2}], phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: prometheus, namespace: monitoring}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}], phase: Running}
`

// With deploy/closed no pod of a tenant reaches the listeners of agents and fan-out servers, on any node; the fate of all
// other packets does not change.
func TestClosedKeepsPodsFromListeners(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "world.yaml"), []byte(closedWorld), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join("..", "..", "deploy", "closed", "policy.yaml")
	if docs := documents(t, policy); len(docs) != 1 {
		t.Fatalf("%d documents in %s", len(docs), policy)
	}
	for _, c := range []struct {
		from, to string
		held     bool
	}{
		{"tenant/evil", "192.168.16.1:5473", true},
		{"tenant/evil", "192.168.16.2:5473", true},
		{"tenant/evil", "192.168.16.2:9191", true},
		{"tenant/evil", "192.168.16.2:9192", true},
		{"tenant/evil", "192.168.16.2:10256", true},
		{"tenant/evil", "192.168.16.2:9193", false},
		{"tenant/evil", "192.168.16.2:443", false},
		{"tenant/evil", "pod:tenant/web:5473", false},
		{"monitoring/prometheus", "192.168.16.2:9191", false},
	} {
		for _, closed := range []bool{true, false} {
			args := []string{"trace", "-o", "json", "--manifests", dir}
			if closed {
				args = append(args, "--manifests", policy)
			}
			a := traceAnswer(t, args, `{"from":"pod:`+c.from+`","to":"`+c.to+`","protocol":"TCP","oneWay":true}`)
			if dropped := a.Verdict == trace.Dropped; a.Error != "" || dropped != (c.held && closed) {
				t.Errorf("%s to %s, closed %t: %s %s %s", c.from, c.to, closed, a.Verdict, a.Reason, a.Error)
			} else if dropped && !strings.Contains(a.Reason, "contiv-listeners") {
				t.Errorf("%s to %s: dropped, but %s", c.from, c.to, a.Reason)
			}
		}
	}
}

// traceAnswer returns the answer to one question of contiv-agent trace.
func traceAnswer(t *testing.T, args []string, question string) (a trace.Answer) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(question))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	var code *exit.Error // means that a packet was dropped
	if err := root.Execute(); err != nil && !errors.As(err, &code) {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
		t.Fatalf("%v\n%s", err, &stdout)
	}
	return a
}
