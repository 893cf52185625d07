package prover

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/verify/intent/change"
)

func TestDiff(t *testing.T) {
	looser := loosened(t)
	text, code := proved(t, "--diff", guestbook, looser)
	want := `opened: ns:kube-system -> guestbook/redis-follower (2 pods), guestbook/redis-leader-0: all protocols
  packet  tcp 10.1.2.5:40000 -> 10.1.2.3:80 SYN
  before  sender kube-system/coredns-1: allowed: no policy selects kube-system/coredns-1 for egress
  before  receiver guestbook/redis-follower-0: denied: no rule of NetworkPolicy guestbook/redis allows it (ingress of guestbook/redis-follower-0, tier default)
  after   sender kube-system/coredns-1: allowed: no policy selects kube-system/coredns-1 for egress
  after   receiver guestbook/redis-follower-0: allowed by NetworkPolicy guestbook/redis ingress rule 1
1 kinds of connections opened, 0 closed
`
	if code != exit.Differs || text != want {
		t.Errorf("exit code %d:\n%s\nwant\n%s", code, text, want)
	}
	if text, code = proved(t, "--diff", looser, guestbook); code != exit.Differs || !strings.HasPrefix(text, "closed: ns:kube-system ->") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	if text, code = proved(t, "--diff", guestbook, guestbook); code != exit.OK || text != "0 kinds of connections opened, 0 closed\n" {
		t.Errorf("exit code %d:\n%s", code, text)
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
		{[]string{"--diff", guestbook}, "--diff takes two folders, not 1"},
		{[]string{"--diff", guestbook, guestbook, guestbook}, "--diff takes two folders, not 3"},
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
