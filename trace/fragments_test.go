package trace

import (
	"context"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
)

// TestFragments: a datagram in fragments is delivered when all have arrived. Later fragments alone deliver nothing, and policies
// evaluate the first one. cnat does not translate later fragments, and VPP answers that nobody has their address.
func TestFragments(t *testing.T) {
	const (
		allowed = `{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP"`
		denied  = `{"from":"pod:kube-system/coredns-1","to":"pod:guestbook/redis-leader-0:6379","protocol":"TCP"`
		ping    = `{"from":"pod:guestbook/client","to":"pod:guestbook/frontend-0","protocol":"ICMP"`
	)
	type want struct {
		line, reason string
		verdict      Verdict
		cnat         Verdict // if it is another one
	}
	for _, c := range []struct {
		name  string
		steps []want
	}{
		{"all", []want{{allowed + `,"fragments":2}`, "", Delivered, Rejected}, {ping + `,"fragments":16}`, "", Delivered, ""}}},
		{"the last one first", []want{{ping + `,"fragments":3,"only":"reversed"}`, "", Delivered, ""}}},
		{"the first one alone", []want{{ping + `,"fragments":2,"only":"first"}`, "1 fragment reaches pod:guestbook/frontend-0, which waits for the rest of the datagram", Dropped, ""}}},
		{"in two steps", []want{
			{ping + `,"fragments":2,"only":"first","identification":7}`, "waits for the rest", Dropped, ""},
			{ping + `,"fragments":2,"only":"later","identification":8}`, "", Dropped, ""},
			{ping + `,"fragments":2,"only":"later","identification":7}`, "", Delivered, ""},
		}},
		{"too late", []want{
			{ping + `,"fragments":2,"only":"first","identification":7}`, "waits for the rest", Dropped, ""},
			{ping + `,"fragments":2,"only":"later","identification":7,"after":"31s"}`, "", Dropped, ""},
		}},
		{"denied", []want{{denied + `,"fragments":2}`, "guestbook/redis", Dropped, ""}, {denied + `,"fragments":2,"only":"later"}`, "", Dropped, ""}}},
	} {
		for _, r := range []agent.ServiceRenderer{agent.RendererAuto, agent.RendererCNAT} {
			cluster := guestbook(t, Config{Agent: agent.Config{Services: config.ServedBy(r)}})
			for _, w := range c.steps {
				a := cluster.Send(context.Background(), steps(t, w.line)[0])
				verdict := w.verdict
				if r == agent.RendererCNAT && w.cnat != "" {
					verdict = w.cnat
				}
				if a.Verdict != verdict || !strings.Contains(a.Reason, w.reason) {
					t.Errorf("%s: %s: %s: %s %s, want %s %s\n%s", r, c.name, w.line, a.Verdict, a.Reason+a.Error, verdict, w.reason, linesOf(a))
				}
			}
		}
	}
}

func linesOf(a Answer) string {
	if len(a.Outcomes) == 0 {
		return ""
	}
	return strings.Join(a.Outcomes[0].Hops, "\n")
}

// TestFragmentsLeaveNoState: a question that may not change state does not deliver a part to a kernel.
func TestFragmentsLeaveNoState(t *testing.T) {
	c := guestbook(t, Config{})
	line := `{"from":"pod:guestbook/client","to":"pod:guestbook/frontend-0","protocol":"ICMP","fragments":2,"identification":7,"only":"`
	for _, only := range []string{"first", "later"} {
		if a := c.AnswerStep(steps(t, line+only+`"}`)[0]); a.Verdict != Dropped {
			t.Errorf("%s: %s %s", only, a.Verdict, a.Reason)
		}
	}
}
