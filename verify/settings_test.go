package verify

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/dump/translation"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

// The checks are those that the agent of the node has a reason for.
func TestSettings(t *testing.T) {
	pod := &model.Pod{ID: model.PodID{Namespace: "prod", Name: "web"}, NodeName: "node-1", IPs: []netip.Addr{podAddr}}
	for name, tc := range map[string]struct {
		cfg     Config
		verdict Verdict
		checks  []string // that are not equal
		all     int
		why     string
	}{
		"all":             {Config{}, Different, []string{"ingress", "forged sources"}, 6, ""},
		"no policies":     {Config{NoPolicies: "this agent enforces none"}, Equal, nil, 0, ""},
		"no source check": {Config{NoSourceCheck: true}, Different, []string{"ingress"}, 5, ""},
		"too large":       {Config{MostEdges: 1}, Unknown, []string{"all"}, 1, "more than 1 edges"},
		"large enough":    {Config{MostEdges: 1 << 20}, Different, []string{"ingress", "forged sources"}, 6, ""},
	} {
		s := space.New()
		tc.cfg.Node = "node-1"
		r := Compare(s, meaning.Read(s, []model.Object{pod, isolating}), stateOf([]space.Rule{rule(dump.Reflect, nil)}, []space.Rule{rule(dump.Reflect, nil)}), tc.cfg)
		var wrong []string
		for _, c := range r.Checks {
			if c.Verdict != Equal {
				wrong = append(wrong, c.Packets)
			}
			if !strings.Contains(c.Why, tc.why) {
				t.Errorf("%s: %s is not compared: %s", name, c.Packets, c.Why)
			}
		}
		if r.Verdict != tc.verdict || !slices.Equal(wrong, tc.checks) || len(r.Checks) != tc.all || (len(r.Omitted) > 0) != (tc.cfg.NoPolicies != "") {
			t.Errorf("%s: %s, %v of %d, omitted %v", name, r.Verdict, wrong, len(r.Checks), r.Omitted)
		}
	}
}

// A mapping that no Service has is of another program, if the agent has other programs' configuration.
func TestForeignMappings(t *testing.T) {
	for shared, want := range map[string]Verdict{"": Different, "grpc": Unknown} {
		c := newSite()
		c.vpp.Mappings = append(c.vpp.Mappings, translation.Mapping{
			At: serving.At{Addr: netip.MustParseAddr("203.0.113.77"), Port: 80, Protocol: model.TCP}, Engine: serving.NAT44,
			Targets: []translation.Target{{At: netip.MustParseAddrPort("10.1.1.9:80"), Share: 1}},
		})
		checks := CompareServices(space.New(), c.node, c.state, c.vpp, Config{Node: "node-1", Shared: shared})
		at := slices.IndexFunc(checks, func(k ServiceCheck) bool { return k.Of == "nat44 mapping tcp 203.0.113.77:80" })
		if at < 0 || checks[at].Verdict != want || (len(checks[at].Differences) > 0) != (want == Different) {
			t.Errorf("shared with %q: %+v", shared, checks)
		}
	}
}

// Pods that keep their addresses outside the cluster need no address of nat44, and must get none.
func TestNoSNAT(t *testing.T) {
	for _, has := range []bool{true, false} {
		c := newSite()
		if !has {
			c.vpp.Sources, c.vpp.Roles[2], c.vpp.Nodes[2] = nil, translation.Role{Inside: true, Outside: true}, both
		}
		checks := CompareServices(space.New(), c.node, c.state, c.vpp, Config{Node: "node-1", Services: serving.Config{NoSNAT: true}})
		at := slices.IndexFunc(checks, func(k ServiceCheck) bool { return k.Of == leave })
		if at < 0 || (checks[at].Verdict == Different) != has {
			t.Errorf("with an address %v: %+v", has, checks)
		}
	}
}

// Packets of a pod to a range of cluster IPs are not compared, whether an object or a flag of the agent has the range: the agent lets them pass, because NAT translates them.
func TestRangesOfFlags(t *testing.T) {
	cidr := netip.MustParsePrefix("10.96.0.0/16")
	pod := &model.Pod{ID: model.PodID{Namespace: "prod", Name: "web"}, NodeName: "node-1", IPs: []netip.Addr{podAddr}}
	silent := &model.Policy{ID: isolating.ID, Tier: isolating.Tier, Order: isolating.Order, Selector: isolating.Selector, Egress: true}
	sends := func(b *space.Box) { b.Src, b.Dst = netip.PrefixFrom(podAddr, 32), cidr }
	state := stateOf(append(errors4(), rule(dump.Reflect, sends), rule(dump.Deny, nil)), []space.Rule{rule(dump.Reflect, nil)})
	for name, tc := range map[string]struct {
		cfg    serving.Config
		object []model.Object
		want   Verdict
	}{
		"none":   {serving.Config{}, nil, Different},
		"object": {serving.Config{}, []model.Object{&model.ServiceCIDR{CIDRs: []netip.Prefix{cidr}}}, Equal},
		"flag":   {serving.Config{ServiceCIDRs: []netip.Prefix{cidr}}, nil, Equal},
	} {
		s := space.New()
		r := Compare(s, meaning.Read(s, append([]model.Object{pod, silent}, tc.object...)), state, Config{Node: "node-1", Services: tc.cfg})
		for _, c := range r.Checks {
			if c.Packets == "egress" && c.Verdict != tc.want {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
}
