package vppagent_test

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestVPPLaws checks the laws of the sim on a real VPP: a fresh agent finds what was created, updated and deleted, and nothing is
// written twice.
func TestVPPLaws(t *testing.T) {
	w := &witness{conn: realVPP(t, 0, "punt { socket "+filepath.Join(t.TempDir(), "punt.sock")+" }")}
	for _, law := range laws() {
		if !law.real {
			continue
		}
		t.Run(law.kind, func(t *testing.T) {
			law.needPlugin(t, w.conn)
			agent := vppagent.New(vppagent.Config{Caller: w})
			commit := func(what string, values map[string]proto.Message, kind event.ResyncKind, writes bool) {
				t.Helper()
				w.seen = nil
				c := agent.Commit(t.Context(), &event.Txn{Resync: kind, Values: values})
				if c.Err != nil {
					t.Fatalf("%s: %v", what, c.Err)
				}
				for _, s := range c.Statuses {
					if s.State != event.Configured && s.State != event.Removed {
						t.Fatalf("%s: not configured:\n%s\nafter\n%s", what, statuses(c), w.story())
					}
				}
				if writes != (c.Writes > 0) {
					t.Fatalf("%s: %d writes:\n%s", what, c.Writes, w.story())
				}
			}
			want := kv.Values{}
			for _, m := range law.needs {
				want.Put(m)
			}
			commit("needs", want, event.Full, len(want) > 0)
			for _, step := range []struct {
				what string
				m    proto.Message
			}{{"create", law.one}, {"update", law.two}, {"update back", law.one}} {
				want.Put(step.m)
				commit(step.what, map[string]proto.Message{kv.Key(step.m): step.m}, event.NoResync, true)
				commit(step.what+", resync", want, event.Full, false)
				agent = vppagent.New(vppagent.Config{Caller: w})
				commit(step.what+", restart of the agent", want, event.Full, false)
			}
			delete(want, kv.Key(law.one))
			commit("delete", map[string]proto.Message{kv.Key(law.one): nil}, event.NoResync, true)
			commit("delete, resync", want, event.Full, false)
			commit("all gone", kv.Values{}, event.Full, len(want) > 0)
		})
	}
}

// needPlugin skips the law of policers on a VPP without them: from 26.06 on they are a plugin, which a build may lack.
func (law *law) needPlugin(t *testing.T, conn *vpp.Conn) {
	t.Helper()
	lacks := func(name string) bool { return strings.HasPrefix(name, "policer_add_del_") }
	if law.kind == "policer" && slices.ContainsFunc(conn.State().Missing, lacks) {
		t.Skip("this VPP has no policer_plugin.so")
	}
}

// TestVPPTablesOutliveTheirPolicy: interfaces stay in the tables of cnat when the policy changes, ends and begins again. VPP 26.06 has tables only with a policy.
func TestVPPTablesOutliveTheirPolicy(t *testing.T) {
	w := &witness{conn: realVPP(t, 0, "")}
	agent := vppagent.New(vppagent.Config{Caller: w})
	commit := func(kind event.ResyncKind, values map[string]proto.Message) *event.Committed {
		t.Helper()
		c := agent.Commit(t.Context(), &event.Txn{Resync: kind, Values: values})
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		return c
	}
	policy := func(kind cnat.SnatPolicy_Kind, v4, v6 string) proto.Message {
		return &cnat.SnatPolicy{Kind: kind, Ipv4Address: v4, Ipv6Address: v6, ExcludedPrefixes: []string{"10.1.0.0/16"}}
	}
	want := kv.Values{}
	for _, name := range []string{"one", "two"} {
		want.Put(&interfaces.Interface{Name: name, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true})
	}
	want.Put(&cnat.Interface{Name: "one", Ipv4: true, Ipv6: true, IncludeIpv4: true, IncludeIpv6: true, Pod: true})
	want.Put(&cnat.Interface{Name: "two", Ipv6: true, Host: true})
	commit(event.Full, want)
	first, other := policy(cnat.SnatPolicy_KUBERNETES, "", "2001:db8::1"), policy(cnat.SnatPolicy_KUBERNETES, "192.0.2.1", "2001:db8::1")
	for _, tc := range []struct {
		name    string
		changes []proto.Message
	}{
		{"after the interfaces", []proto.Message{first}},
		{"another kind", []proto.Message{policy(cnat.SnatPolicy_PREFIXES, "", "2001:db8::1"), first}},
		{"another family", []proto.Message{policy(cnat.SnatPolicy_KUBERNETES, "192.0.2.1", "")}},
		{"one family less", []proto.Message{other, first}},
		{"gone for a moment", []proto.Message{nil, other}},
	} {
		for _, m := range tc.changes {
			commit(event.NoResync, map[string]proto.Message{kv.SnatPolicyKey: m})
			if m != nil {
				want.Put(m)
			}
		}
		agent = vppagent.New(vppagent.Config{Caller: w})
		if c := commit(event.Full, want); c.Writes > 0 {
			t.Errorf("%s: an agent that starts writes %d times:\n%s", tc.name, c.Writes, statuses(c))
		}
	}
}

// TestVPPRejectUnderTranslation: an address that cnat translates gets its reject route also when the translation is older. VPP then has paths to the address, which are those
// of the route that covers it. Another client's route to it stays.
func TestVPPRejectUnderTranslation(t *testing.T) {
	w := &witness{conn: realVPP(t, 0, "")}
	agent := vppagent.New(vppagent.Config{Caller: w})
	want := kv.Values{}
	want.Put(&interfaces.Interface{Name: "one", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, IpAddresses: []string{"10.9.0.1/24", "fd00:9::1/64"}})
	for dst, via := range map[string]string{"0.0.0.0/0": "10.9.0.2", "::/0": "fd00:9::2", "10.96.1.0/24": "", "fd00:10:96:1::/64": "", "10.96.0.9/32": "10.9.0.3", "fd00:10:96::9/128": "fd00:9::3"} {
		want.Put(&l3.Route{DstNetwork: dst, NextHopAddr: via, OutgoingInterface: "one"})
	}
	translated := []string{"10.96.0.5", "fd00:10:96::5", "10.96.1.5", "fd00:10:96:1::5", "10.96.0.9", "fd00:10:96::9"}
	for _, a := range translated {
		want.Put(translation(a, 80, a[:len(a)-1]+"8"))
	}
	commit := func(values kv.Values, kind event.ResyncKind) string {
		t.Helper()
		c := agent.Commit(t.Context(), &event.Txn{Resync: kind, Values: values})
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		return statuses(c)
	}
	if text := commit(want, event.Full); strings.Contains(text, "RETRYING") {
		t.Fatal(text)
	}
	rejects := kv.Values{}
	for _, a := range translated {
		rejects.Put(&contivl3.RejectRoute{DstNetwork: netip.PrefixFrom(netip.MustParseAddr(a), netip.MustParseAddr(a).BitLen()).String()})
	}
	text := commit(rejects, event.NoResync)
	for line := range strings.Lines(text) {
		if foreign := strings.Contains(line, "::9/128") || strings.Contains(line, ".9/32"); strings.Contains(line, "reject-route") && strings.Contains(line, "CONFIGURED") == foreign {
			t.Error(line)
		}
	}
}
