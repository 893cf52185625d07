package vppagent_test

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/feature"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// VPP does not show flags, the flow hash and whether an address is real: the next agent has them from the journal.
func TestCnatJournal(t *testing.T) {
	l := newLab(t, vppagent.Config{Journal: filepath.Join(t.TempDir(), "journal")})
	one := translation("2001:db8:96::10", 80, "2001:db8:1::2")
	one.FlowHash = []cnat.FlowHashField{cnat.FlowHashField_SRC_ADDRESS}
	l.allConfigured(l.put(one))
	l.writes()
	l.restartAgent()
	l.allConfigured(l.resync())
	l.quiet("restart")

	two := proto.Clone(one).(*cnat.Translation)
	two.FlowHash = append(two.FlowHash, cnat.FlowHashField_DST_ADDRESS)
	l.want = kv.Values{}
	l.want.Put(two)
	l.restartAgent()
	l.allConfigured(l.resync())
	if w := l.writes(); len(w) != 2 || !strings.Contains(w[0], "cnat_translation_del") || !strings.Contains(w[1], "cnat_translation_update") {
		t.Errorf("another flow hash, wanted of the next agent: %q", w)
	}
	l.restartAgent()
	l.want = kv.Values{}
	l.allConfigured(l.resync())
	if w := l.writes(); len(w) != 1 || !strings.Contains(w[0], "cnat_translation_del") {
		t.Errorf("not wanted any more: %q", w)
	}
}

// The agent does not change foreign objects.
func TestCnatForeignTranslation(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.put(translation("2001:db8:96::10", 80, "2001:db8:1::2"))
	l.restartAgent()
	l.writes()
	l.want = kv.Values{}
	l.allConfigured(l.put(translation("2001:db8:96::11", 80, "2001:db8:1::2")))
	l.allConfigured(l.resync())
	if d := l.sim.Dump(); !strings.Contains(d, "2001:db8:96::10") || !strings.Contains(d, "2001:db8:96::11") {
		t.Errorf("VPP has\n%s", d)
	}
}

// No packet gets another source before VPP knows the exclusions.
func TestCnatSnatOrder(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	policy := &cnat.SnatPolicy{Kind: cnat.SnatPolicy_KUBERNETES, Ipv6Address: "2001:db8::1", ExcludedPrefixes: []string{"2001:db8:1::/48"}}
	order := func(want ...string) {
		t.Helper()
		var got []string
		for _, w := range l.writes() {
			got = append(got, strings.TrimPrefix(strings.Fields(w)[0], "cnat_"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	l.allConfigured(l.put(policy))
	order("snat_policy_add_del_exclude_pfx", "set_snat_policy", "set_snat_addresses")
	next := proto.Clone(policy).(*cnat.SnatPolicy)
	next.ExcludedPrefixes = []string{"2001:db8:2::/48"}
	l.allConfigured(l.put(next))
	order("snat_policy_add_del_exclude_pfx", "snat_policy_add_del_exclude_pfx")
	l.allConfigured(l.del(kv.SnatPolicyKey))
	order("set_snat_addresses", "snat_policy_add_del_exclude_pfx", "set_snat_policy")
}

// TestCnatInterfaceWaitsWhileThePolicyGoes: VPP refuses a part of the policy and of an interface's cnat, and the policy is removed before the retry. The interface
// does not need the policy, and stays until its retry makes it whole.
func TestCnatInterfaceWaitsWhileThePolicyGoes(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := newLab(t, vppagent.Config{Now: func() time.Time { return now }})
	addPod(l, "tap1", "10.1.1.2")
	i := &cnat.Interface{Name: "tap1", Ipv6: true, Pod: true}
	l.sim.Fail(func(name string) (int32, bool) {
		if strings.HasPrefix(name, "cnat_snat_policy_add_del") {
			return -1, false
		}
		return 0, false
	})
	l.put(&cnat.SnatPolicy{Kind: cnat.SnatPolicy_KUBERNETES, Ipv6Address: "2001:db8::1", ExcludedPrefixes: []string{"2001:db8:1::/48"}}, i)
	l.wantState(kv.Key(i), event.Retrying)
	l.sim.Fail(nil)
	l.del(kv.SnatPolicyKey)
	now = now.Add(2 * time.Minute)
	l.step()
	l.wantState(kv.Key(i), event.Configured)
	if got, want := canonical(l.sim.Dump()), canonical(fresh1(t, l.want)); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// VPP keeps an index in a table when the interface is deleted; the next interface inherits the index.
func TestCnatTablesOfAnInterfaceThatWent(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	l.allConfigured(l.put(&cnat.Interface{Name: "tap1", Ipv6: true, Pod: true, IncludeIpv6: true}))
	l.sim.RemoveInterface("tap1")
	l.agent.InterfaceGone(1)
	if d := l.sim.Dump(); !strings.Contains(d, "cnat snat-policy pod") {
		t.Fatalf("VPP has\n%s", d)
	}
	l.sim.AddInterface(sim.Interface{Name: "tap2"})
	delete(l.want, kv.Key(&cnat.Interface{Name: "tap1"}))
	l.allConfigured(l.resync()) // it is known now
	l.allConfigured(l.put(&cnat.Interface{Name: "tap2", Ipv6: true, Host: true}))
	if d := l.sim.Dump(); strings.Contains(d, "pod tap2") || strings.Contains(d, "include-v6 tap2") || !strings.Contains(d, "host tap2") || strings.Contains(d, "2 times") {
		t.Errorf("VPP has\n%s", d)
	}
}

// A node that is on an interface twice translates twice: the agent removes one.
func TestCnatFeatureTwice(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	i := &cnat.Interface{Name: "tap1", Ipv6: true}
	addPod(l, "tap1", "10.1.1.2")
	l.allConfigured(l.put(i))
	once := l.sim.Dump()
	up := make(chan vpp.State, 10)
	raw := vpp.New(vpp.Config{Dial: l.sim.Dial, OnState: func(s vpp.State) { up <- s }}) // its guard knows nothing of the first one
	ctx := t.Context()
	go func() { _ = raw.Run(ctx) }()
	<-up
	if r := raw.Do(ctx, vpp.Call{Msg: &feature.FeatureEnableDisable{SwIfIndex: 1, Enable: true, ArcName: "ip6-unicast", FeatureName: "cnat-input-ip6"}})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	if l.sim.Dump() == once {
		t.Fatal("it is not there twice")
	}
	l.allConfigured(l.resync())
	if got := l.sim.Dump(); got != once {
		t.Errorf("VPP has\n%s\nwant\n%s", got, once)
	}
}

// The reply that makes a translation has VPP's number of it: no dump is needed.
func TestCnatDeleteAtOnce(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.resync() // everything that a dump shows
	one := translation("2001:db8:96::10", 80, "2001:db8:1::2")
	l.allConfigured(l.put(one))
	l.allConfigured(l.put(translation("2001:db8:96::10", 80, "2001:db8:1::3")))
	l.writes()
	l.allConfigured(l.del(kv.Key(one)))
	if w := l.writes(); len(w) != 1 || !strings.Contains(w[0], "cnat_translation_del") {
		t.Errorf("%q", w)
	}
	if d := l.sim.Dump(); strings.Contains(d, "cnat") {
		t.Errorf("VPP has\n%s", d)
	}
}

// A translation waits for the route that rejects the address: made before, it would show a shorter prefix's path as the address's
// own, and the reject route would never be added.
func TestCnatWaitsForTheRefusal(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	if err := l.sim.AddRoute(sim.Route{Prefix: netip.MustParsePrefix("::/0"), Paths: []sim.Path{{Interface: "tap1"}}}); err != nil {
		t.Fatal(err)
	}
	refusal := &l3.RejectRoute{DstNetwork: "2001:db8:96::10/128"}
	one := translation("2001:db8:96::10", 80, "2001:db8:1::2")
	l.sim.Fail(func(name string) (int32, bool) {
		if name == "ip_route_add_del" {
			return -1, false
		}
		return 0, false
	})
	l.put(refusal, one)
	if d := l.sim.Dump(); strings.Contains(d, "2001:db8:96::10") {
		t.Errorf("while VPP refuses the route it has\n%s", d)
	}
	if text := l.wantState(kv.Key(one), event.Retrying); !strings.Contains(text, "waits for "+kv.Key(refusal)) {
		t.Errorf("says %q", text)
	}
	l.sim.Fail(nil)
	l.allConfigured(l.resync())

	l.del(kv.Key(refusal), kv.Key(one))
	if err := l.sim.AddRoute(sim.Route{Prefix: netip.MustParsePrefix(refusal.DstNetwork), Paths: []sim.Path{{Interface: "tap1", Via: netip.MustParseAddr("2001:db8:1::9")}}}); err != nil {
		t.Fatal(err)
	}
	l.put(refusal, one)
	l.wantState(kv.Key(refusal), event.Retrying)
	l.wantState(kv.Key(one), event.Configured) // a foreign route serves the other packets to the address
}

// TestCnatOnInterfaceThatCannotBeNamed: VPP's command line, which alone shows cnat's features, takes a name that ends in a dot and digits for a
// sub-interface's. Such an interface has no cnat, with a remark, and keeps no other from having it.
func TestCnatOnInterfaceThatCannotBeNamed(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	for _, name := range []string{"host-eth0.100", "host-eth1", "pod.a"} {
		l.sim.AddInterface(sim.Interface{Name: name})
	}
	check := func(c *event.Committed) {
		t.Helper()
		for name, want := range map[string]event.State{"host-eth0.100": event.Retrying, "host-eth1": event.Configured, "pod.a": event.Configured} {
			if got := status(c, kv.Key(&cnat.Interface{Name: name})); got.State != want || (want == event.Retrying) != strings.Contains(got.Err, "takes host-eth0.100 for a sub-interface") {
				t.Errorf("%s: %s %s", name, got.State, got.Err)
			}
		}
	}
	check(l.put(&cnat.Interface{Name: "host-eth0.100", Ipv4: true}, &cnat.Interface{Name: "host-eth1", Ipv4: true}, &cnat.Interface{Name: "pod.a", Ipv4: true}))
	l.writes()
	l.restartAgent()
	check(l.resync())
	l.quiet("a restart of the agent")
}
