package vppagent_test

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// detailed counts the requests and the details of their answers.
type detailed struct {
	*vpp.Conn
	requests, details int
}

func (d *detailed) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	out := d.Conn.Do(ctx, calls...)
	d.requests += len(calls)
	for _, r := range out {
		d.details += len(r.Details)
	}
	return out
}

// A later round of an unchanged VPP asks as much as the first one and decodes nothing. After a transaction of the agent a round compares everything again.
func TestUnchangedVPPIsNotDecoded(t *testing.T) {
	c := newClocked(t)
	counts := &detailed{Conn: c.conn}
	c.cfg.Caller = counts
	c.agent = vppagent.New(c.cfg)
	pods(c.lab)
	c.allConfigured(c.put(world()...))
	round := func() (requests, details int) {
		counts.requests, counts.details = 0, 0
		if found := c.round(); len(found) > 0 {
			t.Fatal(found)
		}
		return counts.requests, counts.details
	}
	_, compared := round()
	asked, _ := round() // the first 30 s had nine turns of ten
	if again, details := round(); again != asked || details != 0 || compared == 0 {
		t.Errorf("%d requests, %d details; before %d requests; first %d details", again, details, asked, compared)
	}
	c.put(dnat("default/d", "10.96.0.4", 80, "10.1.1.2:8080"))
	if _, details := round(); details <= compared {
		t.Errorf("after a transaction: %d details, before it %d", details, compared)
	}
}

// Another program undoes the agent's last change, so that VPP answers as in an earlier round: this is a drift.
func TestRecheckFindsThatAChangeWasUndone(t *testing.T) {
	c := newClocked(t)
	pods(c.lab)
	before, after := lists("tap1", []string{"web", "rest"}, []string{"rest"}), lists("tap1", []string{"rest", "web"}, []string{"rest"})
	c.allConfigured(c.put(world()...))
	c.round()
	dump := c.sim.Dump()
	c.put(after)
	c.other(t, map[string]proto.Message{kv.InterfaceACLsKey("tap1"): before})
	if c.sim.Dump() != dump {
		t.Fatalf("VPP is not as before:\n%s\nwant\n%s", c.sim.Dump(), dump)
	}
	if got, want := lines(c.round()), []string{kv.InterfaceACLsKey("tap1") + " changed true"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
