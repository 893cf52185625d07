package tally

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/test/samples"
)

func pod(name, addr string) *model.Pod {
	return &model.Pod{ID: model.PodID{Namespace: "prod", Name: name}, NodeName: "node-1", IPs: []netip.Addr{netip.MustParseAddr(addr)}}
}

func denyAll(name string) *model.Policy {
	return &model.Policy{
		ID: model.PolicyID{Kind: model.KindStagedGlobalPolicy, Name: name}, Tier: model.TierDefault, Ingress: true, InboundRules: []model.Rule{{Action: model.ActionDeny}},
	}
}

func connectionTo(port uint16) (*flows.Flow, space.Header) {
	peer := func(name, addr string) flows.Peer {
		return flows.Peer{Kind: flows.Pod, Namespace: "prod", Name: name, Address: netip.MustParseAddr(addr)}
	}
	f := &flows.Flow{Source: peer("client", "10.1.1.3"), Destination: peer("web", "10.1.1.2"), Protocol: "TCP", Port: port, Verdict: flows.Allowed, Direction: "ingress", Counts: flows.Counts{Connections: 1}, SeenBy: "sessions"}
	return f, space.Header{Src: f.Source.Address, Dst: f.Destination.Address, Protocol: space.TCP, SrcPort: 40000, DstPort: port, Flags: space.SYN}
}

func TestRowsFollowPolicies(t *testing.T) {
	now := time.Unix(0, 0)
	c := New(func() time.Time { return now })
	registry := prometheus.NewRegistry()
	if err := c.Metrics().Register(registry); err != nil {
		t.Fatal(err)
	}
	mark := func() *flows.Staged {
		f, h := connectionTo(80)
		h.SrcPort += uint16(now.Unix())
		now = now.Add(time.Second)
		c.Mark(f, h)
		return f.Decision.Staged
	}
	if s := mark(); s != nil {
		t.Errorf("before objects are read: %+v", s)
	}
	pods := []model.Object{pod("web", "10.1.1.2"), pod("client", "10.1.1.3")}
	c.Read(1, append(pods, denyAll("a"), denyAll("b")))
	s := mark()
	if s == nil || s.Verdict != flows.Dropped || s.By != "StagedGlobalNetworkPolicy a" || s.Policy != "GlobalNetworkPolicy a" || s.Rule != "ingress rule 1" {
		t.Errorf("%+v", s)
	}
	rows, problem := c.Rows()
	if len(rows) != 2 || rows[0].WouldDrop != 1 || rows[1].WouldDrop != 0 || problem != "" {
		t.Errorf("%+v %s", rows, problem)
	}
	c.Read(2, append(pods, denyAll("b"), denyAll("a")))
	mark()
	if rows, _ = c.Rows(); len(rows) != 2 || rows[0].WouldDrop != 2 {
		t.Errorf("a row begins again: %+v", rows)
	}
	c.Read(3, append(pods, denyAll("b")))
	mark()
	if rows, _ = c.Rows(); len(rows) != 1 || rows[0].Policy != "StagedGlobalNetworkPolicy b" || rows[0].WouldDrop != 1 {
		t.Errorf("%+v", rows)
	}
	if got := samples.Read(t, registry); len(got) != 1 || got[`contiv_staged_changes_total{policy="StagedGlobalNetworkPolicy b",verdict="dropped"}`] != 1 {
		t.Errorf("%v", got)
	}
}

// What VPP did and policies do not explain is not marked, and neither is a flow whose end is no pod of the objects.
func TestUnclearFlowsAreNotMarked(t *testing.T) {
	for name, change := range map[string]func(*flows.Flow){
		"VPP dropped what policies allow": func(f *flows.Flow) { f.Verdict = flows.Dropped },
		"no pod of this node":             func(f *flows.Flow) { f.Direction = "" },
		"a Service":                       func(f *flows.Flow) { f.Destination.Kind = flows.Service },
		"an unknown pod":                  func(f *flows.Flow) { f.Destination.Name = "gone" },
		"the other direction":             func(f *flows.Flow) { f.Direction = "egress" },
	} {
		c := New(time.Now)
		c.Read(1, []model.Object{pod("web", "10.1.1.2"), pod("client", "10.1.1.3"), denyAll("a")})
		f, h := connectionTo(80)
		change(f)
		if c.Mark(f, h); f.Decision.Staged != nil {
			t.Errorf("%s: %+v", name, f.Decision.Staged)
		}
	}
}

// A connection that two sources show counts once.
func TestConnectionsCountOnce(t *testing.T) {
	c := New(time.Now)
	c.Read(1, []model.Object{pod("web", "10.1.1.2"), pod("client", "10.1.1.3"), denyAll("a")})
	for _, seenBy := range []string{"sessions", "nat44", "flowprobe", "nat44", "sessions", "sessions"} { // one, again, again; one, again; one
		f, h := connectionTo(80)
		f.SeenBy = seenBy
		c.Mark(f, h)
	}
	if rows, _ := c.Rows(); rows[0].WouldDrop != 3 {
		t.Errorf("%+v", rows)
	}
	for i := range 3 * mostRecent {
		f, h := connectionTo(80)
		h.SrcPort, h.DstPort = uint16(i), uint16(i>>16)
		c.Mark(f, h)
	}
	if len(c.recent.by) > mostRecent || len(c.recent.ring) > mostRecent {
		t.Errorf("%d connections are remembered", len(c.recent.by))
	}
}

// The pause between two readings is 20 times as long as the work since the one before, and objects that did not change are not read.
func TestReadingPauses(t *testing.T) {
	now := time.Unix(0, 0)
	c := New(func() time.Time { now = now.Add(time.Second); return now })
	if !c.Wants(0) {
		t.Error("the first objects are not wanted")
	}
	c.Read(7, []model.Object{pod("web", "10.1.1.2"), pod("client", "10.1.1.3"), denyAll("a")})
	f, h := connectionTo(80)
	c.Mark(f, h) // now 2 s of work
	end := now.Add(40 * time.Second)
	for now.Before(end.Add(-2 * time.Second)) {
		if c.Wants(8) {
			t.Fatalf("objects are wanted %s before the end of the pause", end.Sub(now))
		}
	}
	now = end
	if c.Wants(7) || !c.Wants(8) {
		t.Error("after the pause, changed objects alone are wanted")
	}
}

func TestManyPoliciesAreBounded(t *testing.T) {
	list := []model.Object{pod("web", "10.1.1.2")}
	for i := range mostPolicies + 5 {
		list = append(list, denyAll(fmt.Sprintf("p%03d", i)))
	}
	c := New(time.Now)
	c.Read(1, list)
	if rows, problem := c.Rows(); len(rows) != mostPolicies || !strings.Contains(problem, "only 200 of 205") {
		t.Errorf("%d rows; %s", len(rows), problem)
	}
}
