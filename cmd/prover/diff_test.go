package prover

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/verify/intent/change"
)

// opened is what examples/intent/looser.yaml opens in the guestbook.
const opened = `opened: ns:kube-system -> guestbook/redis-follower (2 pods), guestbook/redis-leader-0: all protocols
  packet  tcp 10.1.2.5:40000 -> 10.1.2.3:80 SYN
  before  sender kube-system/coredns-1: allowed: no policy selects kube-system/coredns-1 for egress
  before  receiver guestbook/redis-follower-0: denied: no rule of NetworkPolicy guestbook/redis allows it (ingress of guestbook/redis-follower-0, tier default)
  after   sender kube-system/coredns-1: allowed: no policy selects kube-system/coredns-1 for egress
  after   receiver guestbook/redis-follower-0: allowed by NetworkPolicy guestbook/redis ingress rule 1
1 kinds of connections opened, 0 closed
`

func TestDiff(t *testing.T) {
	looser := loosened(t)
	text, code := proved(t, "--diff", guestbook, looser)
	if code != exit.Differs || text != opened {
		t.Errorf("exit code %d:\n%s\nwant\n%s", code, text, opened)
	}
	if text, code = proved(t, "--diff", looser, guestbook); code != exit.Differs || !strings.HasPrefix(text, "closed: ns:kube-system ->") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	if text, code = proved(t, "--diff", guestbook, guestbook); code != exit.OK || text != "0 kinds of connections opened, 0 closed\n" {
		t.Errorf("exit code %d:\n%s", code, text)
	}
}

// With one folder, the objects of the running agent are compared with the same objects and those of the folder. Other objects stay.
func TestDiffBesideRunningAgent(t *testing.T) {
	changes, err := manifest.Load(guestbook)
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	socket := serve(t, &control.Server{Objects: func(context.Context) (*control.Objects, error) {
		out := &control.Objects{Node: "node-1"}
		for _, ch := range changes {
			out.List = append(out.List, ch.Object)
		}
		return out, failed
	}})
	looser := "../../examples/intent/looser.yaml"
	if text, code := proved(t, "--diff", looser, "--status-socket", socket); code != exit.Differs || text != opened {
		t.Errorf("exit code %d:\n%s\nwant\n%s", code, text, opened)
	}
	if text, code := proved(t, "--diff", guestbook, "--status-socket", socket); code != exit.OK || text != "0 kinds of connections opened, 0 closed\n" {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	failed = errors.New("the agent has not received all objects")
	if text, code := proved(t, "--diff", looser, "--status-socket", socket); code != exit.Failed || !strings.Contains(text, "has not received all objects") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

func TestDiffAsJSON(t *testing.T) {
	text, code := proved(t, "--diff", guestbook, loosened(t), "-o", "json")
	var r change.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil || code != exit.Differs {
		t.Fatalf("exit code %d, %v: %s", code, err, text)
	}
	if len(r.Opened) != 1 || len(r.Closed) != 0 || r.Opened[0].To[0].Name != "guestbook/redis-follower" || len(r.Opened[0].To[0].Pods) != 2 || r.Opened[0].Ports != "all protocols" {
		t.Errorf("%+v", r)
	}
}

func TestDiffWithWrongUse(t *testing.T) {
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"--diff"}, "or two, not 0"},
		{[]string{"--diff", guestbook, guestbook, "--status-socket", "s"}, "asks no agent about two folders"},
		{[]string{"--diff", guestbook, guestbook, guestbook}, "or two, not 3"},
		{[]string{"--diff", guestbook, guestbook, "--manifests", guestbook}, "not --manifests"},
		{[]string{"--diff", guestbook, guestbook, "--never", "any -> any"}, "--diff excludes --never"},
		{[]string{"--diff", guestbook, guestbook, "--timeout", "1s"}, "--timeout is for a running VPP"},
		{[]string{"--diff", guestbook, "no-such-folder"}, "no-such-folder"},
		{[]string{guestbook}, "takes no arguments"},
	} {
		if text, code := proved(t, tc.args...); code != exit.Wrong || !strings.Contains(text, tc.says) {
			t.Errorf("%v: exit code %d, %s; want %q", tc.args, code, text, tc.says)
		}
	}
}
