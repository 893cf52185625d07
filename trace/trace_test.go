package trace

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/source/manifest"
)

func guestbook(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	changes, err := manifest.Load("../examples/guestbook")
	if err != nil {
		t.Fatal(err)
	}
	c := NewCluster(cfg)
	t.Cleanup(c.Close)
	if err := c.Apply(context.Background(), changes); err != nil {
		t.Fatal(err)
	}
	return c
}

// line returns an answer without its hops: the verdict, and backends with the source that they see.
func line(a Answer) string {
	if a.Error != "" {
		return "error: " + a.Error
	}
	var b strings.Builder
	b.WriteString(string(a.Verdict))
	for _, o := range a.Outcomes {
		fmt.Fprintf(&b, " %s=%s<-%s", o.Backend, o.Address, o.Source)
	}
	return b.String()
}

func TestGuestbook(t *testing.T) {
	c := guestbook(t, Config{})
	for _, tc := range []struct{ from, to, proto, want string }{
		{"pod:guestbook/client", "service:guestbook/redis-leader:6379", "TCP", "delivered pod:guestbook/redis-leader-0=10.1.1.3:6379<-10.1.1.4"},
		{"pod:guestbook/redis-leader-0", "service:guestbook/redis-leader:6379", "TCP", "delivered pod:guestbook/redis-leader-0=10.1.1.3:6379<-10.1.1.254"},
		{"node:node-3", "service:default/kubernetes:443", "TCP", "delivered node:node-1=192.168.16.1:6443<-192.168.16.3"},
		{"pod:guestbook/client", "service:guestbook/admin:80", "TCP", "rejected"},
		{"pod:guestbook/client", "service:guestbook/redis-leader:1", "TCP", "rejected"},
		{"pod:guestbook/client", "10.96.255.254:80", "TCP", "dropped"},
		{"pod:guestbook/client", "8.8.8.8:53", "UDP", "delivered 8.8.8.8=8.8.8.8:53<-192.168.16.1"},
		{"pod:guestbook/client", "pod:guestbook/redis-leader-0:6379", "TCP", "delivered pod:guestbook/redis-leader-0=10.1.1.3:6379<-10.1.1.4"},
		{"pod:guestbook/client", "pod:guestbook/redis-leader-0", "ICMP", "delivered pod:guestbook/redis-leader-0=10.1.1.3<-10.1.1.4"},
		{"external:198.51.100.7@node-2", "192.168.16.2:1", "ICMP", "delivered node:node-2=192.168.16.2<-198.51.100.7"},
		{"pod:guestbook/nobody", "10.96.0.1:443", "TCP", "error: unknown pod guestbook/nobody"},
		{"pod:guestbook", "10.96.0.1:443", "TCP", `error: from "pod:guestbook": want pod:<namespace>/<name>`},
		{"node:node-9", "10.96.0.1:443", "TCP", `error: from "node:node-9": unknown node "node-9"`},
		{"external:1.2.3.4", "10.96.0.1:443", "TCP", `error: from "external:1.2.3.4": want external:<ip>@<node>`},
		{"external:1.2.3.4@node-9", "10.96.0.1:443", "TCP", `error: from "external:1.2.3.4@node-9": unknown node "node-9"`},
		{"somebody", "10.96.0.1:443", "TCP", `error: from "somebody": want pod:<ns>/<name>, node:<name> or external:<ip>@<node>`},
		{"node:node-1", "service:guestbook/nothing:80", "TCP", "error: unknown service guestbook/nothing"},
		{"node:node-1", "service:guestbook/redis:80", "TCP", "error: service guestbook/redis has no cluster IP"},
		{"node:node-1", "10.96.0.1", "TCP", `error: to "10.96.0.1": want <ip>:<port>, pod:<ns>/<name>:<port> or service:<ns>/<name>:<port>`},
		{"node:node-1", "10.96.0.1:99999", "TCP", `error: to "10.96.0.1:99999": want <ip>:<port>, pod:<ns>/<name>:<port> or service:<ns>/<name>:<port>`},
		{"node:node-1", "10.96.0.1:0", "TCP", `error: to "10.96.0.1:0": port 0`},
		{"node:node-1", "pod:guestbook/client:http", "TCP", `error: port "http": must be 1 to 65535`},
		{"node:node-1", "10.96.0.1:443", "tcp", `error: protocol "tcp": must be TCP, UDP, SCTP or ICMP`},
		{"node:node-1", "[fd00::1]:443", "TCP", `error: from "node:node-1": node node-1: has no IPv6 address`},
	} {
		t.Run(tc.from+" "+tc.to+" "+tc.proto, func(t *testing.T) {
			if got := line(c.Answer(Question{tc.from, tc.to, tc.proto})); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// A packet to an unassigned address of the node's pod range does not leave the node, and the answer has the reason.
func TestPodRangeWithoutPod(t *testing.T) {
	c := guestbook(t, Config{})
	a := c.Answer(Question{From: "pod:guestbook/client", To: "10.1.1.77:53", Protocol: "UDP"})
	if want := "node-1: ip4-lookup: drop: 10.1.1.0/24 drop preference 255 (no pod of node-1 has 10.1.1.77)"; a.Verdict != Dropped || a.Reason != want {
		t.Errorf("%s: %q, want %q", a.Verdict, a.Reason, want)
	}
}

func TestEveryBackendIsAnOutcome(t *testing.T) {
	c := guestbook(t, Config{})
	a := c.Answer(Question{"pod:guestbook/client", "service:guestbook/frontend:80", "TCP"})
	if len(a.Outcomes) != 3 || a.Verdict != Delivered {
		t.Fatalf("%s, want three backends", line(a))
	}
	if want := "Service guestbook/frontend: 3 of 3 backends answer"; a.Reason != want {
		t.Errorf("reason %q, want %q", a.Reason, want)
	}
}

func TestAnswersDoNotDependOnTheirOrder(t *testing.T) {
	c := guestbook(t, Config{})
	questions := []Question{
		{"pod:guestbook/client", "service:guestbook/frontend:80", "TCP"},
		{"external:198.51.100.7@node-1", "192.168.16.1:30080", "TCP"},
		{"pod:guestbook/frontend-0", "service:guestbook/frontend:80", "TCP"},
		{"node:node-2", "service:guestbook/redis-follower:6379", "TCP"},
	}
	first := map[Question]Answer{}
	for _, q := range questions {
		first[q] = c.Answer(q)
	}
	for i := len(questions) - 1; i >= 0; i-- {
		for range 3 {
			if diff := cmp.Diff(first[questions[i]], c.Answer(questions[i])); diff != "" {
				t.Errorf("%v asked again (-first +again):\n%s", questions[i], diff)
			}
		}
	}
	for _, name := range c.Nodes() {
		if n := len(c.Sim(name).Sessions()); n != 0 {
			t.Errorf("%s: %d sessions left behind", name, n)
		}
	}
}

func TestReplyHops(t *testing.T) {
	q := Question{"pod:guestbook/client", "service:guestbook/redis-leader:6379", "TCP"}
	there := guestbook(t, Config{}).Answer(q).Outcomes[0].Hops
	back := guestbook(t, Config{ToReply: true}).Answer(q).Outcomes[0].Hops
	if len(back) <= len(there) || !strings.HasPrefix(strings.Join(back, "\n"), strings.Join(there, "\n")) {
		t.Errorf("with the reply:\n%s\nwithout:\n%s", strings.Join(back, "\n"), strings.Join(there, "\n"))
	}
	if last := back[len(back)-1]; !strings.Contains(last, "10.96.") || !strings.Contains(last, "node-1: pod-guestbook/client-tx") {
		t.Errorf("last hop %q: the reply should reach the client from the cluster IP", last)
	}
}

func TestJSON(t *testing.T) {
	for _, tc := range []struct {
		answer Answer
		want   string
	}{
		{
			Answer{From: "f", To: "t", Protocol: "TCP", Verdict: Rejected, Reason: "r"},
			`{"from":"f","to":"t","protocol":"TCP","verdict":"rejected","reason":"r","outcomes":[]}`,
		},
		{
			Answer{From: "f", To: "t", Protocol: "TCP", Verdict: Delivered, Reason: "r", Outcomes: []Outcome{{Backend: "b", Address: "a", Source: "s", Verdict: Delivered, Reason: "ok"}}},
			`{"from":"f","to":"t","protocol":"TCP","verdict":"delivered","reason":"r","outcomes":[{"backend":"b","address":"a","source":"s","verdict":"delivered","reason":"ok","hops":[],"path":[]}]}`,
		},
		{Answer{From: "f", To: "t", Protocol: "x", Error: "e"}, `{"from":"f","to":"t","protocol":"x","error":"e"}`},
	} {
		got, err := json.Marshal(tc.answer)
		if err != nil || string(got) != tc.want {
			t.Errorf("got  %s, %v\nwant %s", got, err, tc.want)
		}
	}
}

func TestSuggestShowsSomething(t *testing.T) {
	c := guestbook(t, Config{})
	qs := c.Suggest()
	if len(qs) != 4 {
		t.Fatalf("%d suggestions: %v, want 4", len(qs), qs)
	}
	if a := c.Answer(qs[3]); a.Verdict != Dropped || !strings.Contains(a.Reason, "NetworkPolicy guestbook/redis") {
		t.Errorf("%v: %s, %s; want one that a policy denies", qs[3], a.Verdict, a.Reason)
	}
	for _, q := range qs {
		if a := c.Answer(q); a.Error != "" {
			t.Errorf("%v: %s", q, a.Error)
		}
	}
}

func FuzzQuestion(f *testing.F) {
	c := guestbook(f, Config{})
	f.Add("pod:guestbook/client", "service:guestbook/frontend:80", "TCP")
	f.Add("external:198.51.100.7@node-1", "[::1]:1", "ICMP")
	f.Add("node:node-1", "pod:guestbook/client", "SCTP")
	f.Fuzz(func(t *testing.T, from, to, proto string) {
		a := c.Answer(Question{from, to, proto})
		if (a.Error == "") != (a.Verdict != "") {
			t.Errorf("verdict %q with error %q", a.Verdict, a.Error)
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	c := guestbook(b, Config{})
	q := Question{"pod:guestbook/client", "service:guestbook/frontend:80", "TCP"}
	b.ReportAllocs()
	for b.Loop() {
		if a := c.Answer(q); a.Verdict != Delivered {
			b.Fatal(a.Reason)
		}
	}
}
