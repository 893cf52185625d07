package trace

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/model"
)

func TestParsePort(t *testing.T) {
	for _, s := range []string{"80/TCP", "53/UDP", "132/SCTP", "ICMP"} {
		if p, err := ParsePort(s); err != nil || p.String() != s {
			t.Errorf("ParsePort(%q) = %s, %v", s, p, err)
		}
	}
	if p, err := ParsePort("80/tcp"); err != nil || p != (Port{80, model.TCP}) {
		t.Errorf("ParsePort(80/tcp) = %s, %v", p, err)
	}
	for s, want := range map[string]string{
		"80": "protocol", "80/": "protocol", "TCP": "want <number>/<protocol>", "0/TCP": "must be 1 to 65535", "1/ICMP": "no ports", "70000/UDP": "must be 1 to 65535", "80/IGMP": "protocol",
	} {
		if _, err := ParsePort(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePort(%q): %v, want something about %q", s, err, want)
		}
	}
}

// TestMatrix: each cell equals the answer to its single question.
func TestMatrix(t *testing.T) {
	c := guestbook(t, Config{})
	cells, err := c.Matrix(context.Background(), Pairs{Ports: []Port{{6379, model.TCP}, {0, model.ICMP}}})
	if err != nil {
		t.Fatal(err)
	}
	pods := len(c.matrixPods())
	if want := 2 * pods * (pods - 1); len(cells) != want || pods < 4 {
		t.Fatalf("%d cells of %d pods, want %d", len(cells), pods, want)
	}
	for _, cell := range cells {
		want := Delivered
		if strings.HasPrefix(cell.From, "pod:kube-system/") && strings.HasPrefix(cell.To, "pod:guestbook/redis-") {
			want = Dropped // NetworkPolicy guestbook/redis
		}
		if cell.Verdict != want || cell.Reason == "" || cell.From == cell.To {
			t.Errorf("%+v, want %s", cell, want)
		}
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Matrix(canceled, Pairs{Ports: []Port{{80, model.TCP}}}); err == nil {
		t.Error("Matrix does not heed its context")
	}
}

// Namespaces select the clients and the servers; the progress ends with the last row.
func TestMatrixOfNamespaces(t *testing.T) {
	c := guestbook(t, Config{})
	last := [2]int{}
	cells, err := c.Matrix(context.Background(), Pairs{
		Ports: []Port{{80, model.TCP}}, Clients: []string{"kube-system"}, Servers: []string{"guestbook"}, Progress: func(done, all int) { last = [2]int{done, all} },
	})
	if err != nil || len(cells) == 0 {
		t.Fatal(len(cells), err)
	}
	for _, cell := range cells {
		if !strings.HasPrefix(cell.From, "pod:kube-system/") || !strings.HasPrefix(cell.To, "pod:guestbook/") {
			t.Errorf("%+v", cell)
		}
	}
	if last[0] != last[1] || last[0] == 0 {
		t.Errorf("progress %v", last)
	}
}

func TestCompare(t *testing.T) {
	cell := func(from, to string, v Verdict, why string) Cell {
		return Cell{From: from, To: to, Port: "80/TCP", Family: ipv4, Verdict: v, Reason: why}
	}
	before := []Cell{cell("a", "b", Delivered, "free"), cell("b", "a", Dropped, "closed"), cell("a", "old", Delivered, "free"), cell("old", "a", Dropped, "closed"), cell("a", "x", Dropped, "one"), cell("x", "a", Rejected, "one")}
	after := []Cell{cell("a", "b", Dropped, "policy p"), cell("b", "a", Delivered, "rule 1"), cell("a", "new", Delivered, "free"), cell("new", "a", Dropped, "closed"), cell("a", "x", Rejected, "other"), cell("x", "a", Dropped, "other")}
	var got bytes.Buffer
	WriteDifferences(&got, Compare(before, after))
	want := `- a -> b 80/TCP IPv4
    before: delivered: free
    after:  dropped: policy p
+ b -> a 80/TCP IPv4
    before: dropped: closed
    after:  delivered: rule 1
+ a -> new 80/TCP IPv4
    before: new does not exist, or has no IPv4 address
    after:  delivered: free
- a -> old 80/TCP IPv4
    before: delivered: free
    after:  old does not exist, or has no IPv4 address
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
	got.Reset()
	WriteDifferences(&got, Compare(before, before))
	if got.String() != "the same connections are possible\n" {
		t.Error(got.String())
	}
}

// TestPodsThatAreAlikeShareAnswers compares a matrix with single questions. Each change makes one pod, or its name, different from others of its application.
func TestPodsThatAreAlikeShareAnswers(t *testing.T) {
	const selected = "{apiVersion: v1, kind: Pod, metadata: {name: app-0-40, namespace: shop, labels: {app: app-0, one: pod}}, spec: {nodeName: node-0, containers: [{name: c, image: i}]}, status: {phase: Running, podIPs: [{ip: 10.1.0.12}]}}\n---\n"
	for name, more := range map[string]string{
		"nothing more":         "",
		"a network of a pod":   "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: net, namespace: shop}, spec: {podSelector: {matchLabels: {app: app-2}}, ingress: [{from: [{ipBlock: {cidr: 10.1.0.12/32}}]}]}}",
		"a selected pod":       selected + "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: one, namespace: shop}, spec: {podSelector: {matchLabels: {one: pod}}, policyTypes: [Egress]}}",
		"the name of a pod":    "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: app-1-2, namespace: shop}, spec: {podSelector: {matchLabels: {app: app-1}}}}",
		"an endpoint":          "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9], ipFamilies: [IPv4], selector: {x: y}, ports: [{port: 8080, protocol: TCP}]}}\n---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{port: 8080, protocol: TCP}], endpoints: [{addresses: [10.1.0.2], nodeName: node-0}]}",
		"an address of others": "{apiVersion: v1, kind: Pod, metadata: {name: twin, namespace: dev, labels: {app: app-0}}, spec: {nodeName: node-1, containers: [{name: c, image: i}]}, status: {phase: Running, podIPs: [{ip: 10.1.0.12}]}}",
		"an external address":  "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9], externalIPs: [10.1.4.2], ipFamilies: [IPv4], selector: {x: y}, ports: [{port: 8080, protocol: TCP}]}}",
	} {
		c := manyPods(t, 60, more)
		cells, err := c.Matrix(context.Background(), Pairs{Ports: []Port{{8080, model.TCP}}})
		if err != nil || len(cells) < 60*59 {
			t.Fatal(name, len(cells), err)
		}
		for i, cell := range cells {
			if i%7 != 0 && !strings.Contains(cell.From+cell.To, "app-0") { // all of the application that changes, and some others
				continue
			}
			to := c.podOf(cell.To)
			a := c.Answer(Question{From: cell.From, To: target{to.IPs[0], 8080}.String(), Protocol: "TCP"})
			if a.Verdict != cell.Verdict || a.Reason+a.Error != cell.Reason {
				t.Fatalf("%s: %s -> %s\nin the matrix: %s: %s\nalone: %s: %s", name, cell.From, cell.To, cell.Verdict, cell.Reason, a.Verdict, a.Reason+a.Error)
			}
		}
	}
}

// podOf returns the pod of a cell's From or To.
func (c *Cluster) podOf(name string) *model.Pod {
	for _, p := range c.matrixPods() {
		if "pod:"+p.ID.String() == name {
			return p
		}
	}
	return nil
}
