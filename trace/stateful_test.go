package trace

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// steps parses lines as the command does.
func steps(t *testing.T, lines ...string) []Step {
	t.Helper()
	out := make([]Step, len(lines))
	for i, line := range lines {
		var err error
		if out[i], err = ParseStep([]byte(line)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return out
}

// short returns the sender, the verdict and where the packet arrived.
func short(a Answer) string {
	text := a.Sender + " " + string(a.Verdict) + a.Error
	for _, o := range a.Outcomes {
		text += " " + o.Backend + "<-" + o.Source
	}
	return text
}

func TestStepsLeaveTheirState(t *testing.T) {
	c := guestbook(t, Config{})
	isolate := filepath.Join(t.TempDir(), "isolate.yaml")
	text := `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"all","namespace":"guestbook"},
	"spec":{"podSelector":{"matchLabels":{"app":"redis"}},"policyTypes":["Ingress"]}}`
	if err := os.WriteFile(isolate, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dial := `{"from":"pod:guestbook/client","to":"service:guestbook/redis-leader:6379","protocol":"TCP","sourcePort":4000`
	for i, tc := range []struct{ line, want string }{
		{dial + `,"flags":"PA"}`, "pod:guestbook/client dropped"},
		{dial + `}`, "pod:guestbook/client delivered pod:guestbook/redis-leader-0<-10.1.1.4"},
		{dial + `,"flags":"PA","after":"30s"}`, "pod:guestbook/client delivered pod:guestbook/redis-leader-0<-10.1.1.4"},
		{dial + `,"flags":"PA","restart":"agent:node-1"}`, "pod:guestbook/client delivered pod:guestbook/redis-leader-0<-10.1.1.4"},
		{dial + `,"flags":"PA","restart":"vpp:node-1"}`, "pod:guestbook/client dropped"},
		{dial + `,"delete":["NetworkPolicy guestbook/redis"],"apply":["` + isolate + `"]}`, "pod:guestbook/client dropped pod:guestbook/redis-leader-0<-10.1.1.4"},
		{dial + `,"delete":["NetworkPolicy guestbook/all"]}`, "pod:guestbook/client delivered pod:guestbook/redis-leader-0<-10.1.1.4"},
	} {
		if got := short(c.Send(context.Background(), steps(t, tc.line)[0])); got != tc.want {
			t.Errorf("step %d: %s\ngot  %s\nwant %s", i+1, tc.line, got, tc.want)
		}
	}
	if len(c.Sim("node-1").Sessions()) == 0 {
		t.Error("no NAT session was left behind")
	}
}

func TestOneWayPacketsAreNotAnswered(t *testing.T) {
	for name, line := range map[string]string{
		"one way": `{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP","oneWay":true}`,
		"forged":  `{"from":"node:node-1","to":"service:guestbook/frontend:80","protocol":"TCP","sourceAddress":"10.1.1.77"}`,
		"reset":   `{"from":"pod:guestbook/client","to":"pod:guestbook/frontend-0:80","protocol":"TCP","flags":"R"}`,
		"answer":  `{"from":"pod:guestbook/client","to":"pod:guestbook/frontend-0:80","protocol":"TCP","flags":"SA"}`,
		"chunk":   `{"from":"pod:guestbook/client","to":"pod:guestbook/frontend-0:80","protocol":"SCTP","flags":"INIT-ACK"}`,
		"echo":    `{"from":"pod:guestbook/client","to":"pod:guestbook/frontend-0","protocol":"ICMP","flags":"echo-reply","sourcePort":7}`,
	} {
		c := guestbook(t, Config{ToReply: true})
		a := c.Send(context.Background(), steps(t, line)[0])
		if a.Verdict != Delivered || len(a.Outcomes) != 1 {
			t.Errorf("%s: %s: %s", name, short(a), a.Reason)
			continue
		}
		from := 0
		for _, hop := range a.Outcomes[0].Hops {
			if strings.Contains(hop, "input: from pod-") || strings.Contains(hop, "input: from host") {
				from++
			}
		}
		if from != 1 {
			t.Errorf("%s: %d packets were sent:\n%s", name, from, strings.Join(a.Outcomes[0].Hops, "\n"))
		}
	}
}

func TestStepsWithoutStateAreQuestions(t *testing.T) {
	c := guestbook(t, Config{})
	q := Question{"pod:guestbook/client", "service:guestbook/frontend:80", "TCP"}
	if diff := cmp.Diff(c.Answer(q), c.AnswerStep(Step{Question: q})); diff != "" {
		t.Errorf("a step with no more than a question (-question +step):\n%s", diff)
	}
	a := c.AnswerStep(Step{Question: q, SourcePort: 7, DestinationPort: 81, Flags: "S"})
	if a.Verdict != Rejected || !strings.Contains(a.Reason, "has no port 81/TCP") {
		t.Errorf("another port: %s %s", short(a), a.Reason)
	}
	for _, name := range c.Nodes() {
		if n := len(c.Sim(name).Sessions()); n != 0 {
			t.Errorf("%s: %d sessions left behind", name, n)
		}
	}
}

func TestWrongStepsNameTheirField(t *testing.T) {
	c := guestbook(t, Config{})
	good := `{"from":"pod:guestbook/client","to":"pod:guestbook/frontend-0:80","protocol":"TCP"`
	ping := `{"from":"pod:guestbook/client","to":"pod:guestbook/frontend-0","protocol":"ICMP"`
	for line, want := range map[string]string{
		good + `,"sourceAddress":"10.1.1"}`:               `sourceAddress: "10.1.1" is not an IP address`,
		good + `,"sourceAddress":"fd00::1"}`:              "sourceAddress: fd00::1 and the destination 10.1.1.2 must be of one family",
		good + `,"fragments":1}`:                          "fragments: 1: must be 2 to 16",
		good + `,"fragments":17}`:                         "fragments: 17: must be 2 to 16",
		good + `,"only":"later"}`:                         `only: "later": needs fragments`,
		good + `,"identification":7}`:                     "identification: 7: needs fragments",
		good + `,"fragments":2,"only":"last"}`:            `only: "last": must be first, later or reversed`,
		good + `,"flags":"X"}`:                            "flags: flag 'X': must be one of FSRPAUEC",
		ping + `,"flags":"S"}`:                            `flags: type "S": must be echo-request or echo-reply`,
		ping + `,"destinationPort":1}`:                    "destinationPort: ICMP has no ports",
		good + `,"after":"soon"}`:                         `after: "soon" is not a positive duration: want one like 90s or 5m`,
		good + `,"after":"-1s"}`:                          `after: "-1s" is not a positive duration: want one like 90s or 5m`,
		good + `,"restart":"node-1"}`:                     `restart: "node-1": want vpp:<node> or agent:<node>`,
		good + `,"restart":"vpp:node-9"}`:                 `restart: "vpp:node-9": unknown node "node-9"`,
		good + `,"delete":["redis"]}`:                     `delete: "redis": want <kind> <namespace>/<name> or <kind> <name>`,
		good + `,"apply":["no/such/file.yaml"]}`:          "apply: ",
		`{"from":"x","to":"10.1.1.1:1","protocol":"TCP"}`: `from "x"`,
	} {
		a := c.Send(context.Background(), steps(t, line)[0])
		if !strings.HasPrefix(a.Error, want) || a.Verdict != "" {
			t.Errorf("%s: %q, want %q", line, a.Error, want)
		}
	}
	for field, s := range map[string]Step{
		"after": {After: "1s"}, "restart": {Restart: "vpp:node-1"}, "apply": {Apply: []string{"x"}}, "delete": {Delete: []string{"Node x"}},
	} {
		if a := c.AnswerStep(s); !strings.HasPrefix(a.Error, field+": needs --stateful") {
			t.Errorf("%s without state: %q", field, a.Error)
		}
	}
	for line, want := range map[string]string{
		`{"sourcePort":70000}`: "sourcePort: number 70000: must be a number from 1 to 65535", `{"sourceport":true}`: "sourcePort", `{"src":1}`: `unknown field "src"`,
		`{"flags":3}`: "Question.flags", `{} {}`: "more text", `{`: "unexpected EOF",
	} {
		if _, err := ParseStep([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

func FuzzStep(f *testing.F) {
	c := guestbook(f, Config{})
	f.Add([]byte(`{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP","sourcePort":1,"destinationPort":2,"flags":"SA"}`))
	f.Add([]byte(`{"from":"node:node-1","to":"[::1]:1","protocol":"SCTP","sourceAddress":"::1","flags":"INIT","oneWay":true}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := ParseStep(line)
		if err != nil {
			return
		}
		if a := c.AnswerStep(s); (a.Error == "") != (a.Verdict != "") {
			t.Errorf("verdict %q with error %q", a.Verdict, a.Error)
		}
	})
}
