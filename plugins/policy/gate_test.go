package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy/limit"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// limited returns a processor whose policies may make that many rules.
func limited(object, namespace, node int) (*Processor, *collector) {
	c := &collector{sets: map[string]map[string]bool{}}
	return New(Config{NodeName: "node-1", Limits: budget.Limits{budget.Rules: {Object: object, Namespace: namespace, Node: node}}}, c), c
}

// asking returns a policy for web that admits clients to that many ports.
func asking(name string, age, ports int) *model.Policy {
	return web(func(p *model.Policy) {
		p.ID.Name, p.Created = name, time.Unix(int64(age), 0)
		p.InboundRules[0].Destination.Ports = nil
		for i := range ports {
			p.InboundRules[0].Destination.Ports = append(p.InboundRules[0].Destination.Ports, model.PortMatch{First: uint16(2*i + 1), Last: uint16(2*i + 1)})
		}
	})
}

// closedNow returns the policies that the driver has in their closed form.
func closedNow(p *Processor) string {
	var out []string
	for name, msg := range p.sent.policies {
		if limit.IsClosed(msg) {
			out = append(out, strings.TrimPrefix(name.Name, "prod/knp.default."))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func clients(n int) (out []model.Object) {
	for i := range n {
		out = append(out, pod(fmt.Sprintf("client-%d", i), fmt.Sprintf("10.1.2.%d", i+10), func(p *model.Pod) { p.Labels["app"] = "client" }))
	}
	return out
}

// A policy is closed when its rules, or the members of its sets, become too many, and opened when they are few again. Younger
// policies close first. Policies that apply to no pod here count nothing.
func TestPoliciesOfTooManyRulesAreClosed(t *testing.T) {
	p, _ := limited(40, 60, 80)
	step := func(want string) {
		t.Helper()
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := closedNow(p); got != want {
			t.Errorf("closed %q, want %q", got, want)
		}
	}
	apply(p, pod("web", "10.1.1.2"), asking("a", 1, 10), asking("b", 2, 10), asking("big", 0, 41))
	step("big")
	apply(p, clients(2)...)
	step("big") // 20 and 20
	apply(p, clients(4)...)
	step("b big") // 40 and 40
	apply(p, asking("c", 3, 5))
	step("b big")                // and 20
	remove(p, asking("c", 3, 5)) // then closed policies alone have the set
	apply(p, clients(5)...)
	step("a b big") // 50 are too many
	remove(p, clients(5)[2:]...)
	step("big")
	if notes := p.Notes(); len(notes) != 1 || notes[0].Ref != asking("big", 0, 0).ID.Ref() || !notes[0].Refused ||
		!strings.Contains(notes[0].Reason, "--max-policy-rules): all that it applies to is denied") {
		t.Errorf("notes %v", notes)
	}
	remove(p, pod("web", "10.1.1.2"))
	step("")
	if got := p.Notes(); len(got) != 0 {
		t.Errorf("nothing is here, and %v", got)
	}
	apply(p, pod("web", "10.1.1.2"))
	step("big")
	remove(p, asking("big", 0, 41))
	step("")
	apply(p, asking("big", 0, 40))
	step("big") // two clients
}

// An object that is written again with the same rules asks for the same size.
func TestSameRulesAgainAskForTheSame(t *testing.T) {
	p, _ := limited(40, 60, 80)
	apply(p, pod("web", "10.1.1.2"), asking("older", 0, 20), asking("younger", 1, 20))
	apply(p, clients(2)...)
	for range 2 {
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := closedNow(p); got != "younger" {
			t.Errorf("closed %q, want the younger of two with 40 rules each", got)
		}
		apply(p, asking("older", 0, 20))
	}
}

// An object that is removed and written again between two flushes still follows the members of its sets.
func TestRemovedAndBackStillGrows(t *testing.T) {
	p, _ := limited(40, 60, 80)
	apply(p, pod("web", "10.1.1.2"), asking("a", 0, 18))
	apply(p, clients(2)...)
	_ = p.Flush() // it cannot fail
	remove(p, asking("a", 0, 18))
	apply(p, asking("a", 0, 18))
	apply(p, clients(3)...)
	_ = p.Flush()
	if got := closedNow(p); got != "a" {
		t.Errorf("closed %q, want a with its 54 rules", got)
	}
}

// The closed policies depend on the objects alone, not on the order of changes.
func TestClosedPoliciesDependOnObjectsAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := limited(40, 60, 80)
		final := map[model.Ref]model.Object{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			var o model.Object
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				o = asking(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "policy"), rapid.IntRange(0, 3).Draw(t, "age"), rapid.IntRange(1, 20).Draw(t, "ports"))
			case 1:
				o = clients(6)[rapid.IntRange(0, 5).Draw(t, "client")]
			default:
				o = pod("web", "10.1.1.2")
			}
			ch := event.Change{Ref: o.Ref(), Object: o}
			if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
				ch.Object = nil
				delete(final, ch.Ref)
			} else {
				final[ch.Ref] = o
			}
			p.Apply(ch)
			if rapid.Bool().Draw(t, "flush") {
				_ = p.Flush() // it cannot fail
			}
		}
		_ = p.Flush()
		once, _ := limited(40, 60, 80)
		for _, o := range final {
			apply(once, o)
		}
		_ = once.Flush()
		if a, b := closedNow(p), closedNow(once); a != b {
			t.Fatalf("closed %q, at once %q", a, b)
		}
		if !maps.EqualFunc(p.sent.policies, once.sent.policies, func(a, b *felix.Policy) bool { return proto.Equal(a, b) }) {
			t.Fatal("the driver has other policies")
		}
	})
}

// Messages of an external calculation graph pass the same gate.
func TestStreamedPoliciesAreClosed(t *testing.T) {
	p := NewStream(Config{NodeName: "node-1", Limits: budget.Limits{budget.Rules: {Object: 2400}}}, event.Located{}, &recorder{})
	step := func(want, text string) {
		t.Helper()
		p.Dataplane(said(t, text))
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := closedNow(p); got != want {
			t.Errorf("closed %q, want %q", got, want)
		}
	}
	step("", streamWeb)
	step("web", `ipset_delta_update { id: "s:a" added_members: "10.1.2.4/32" added_members: "10.1.2.5/32" added_members: "10.1.2.6/32" }`)
	for _, st := range p.Policies() {
		if (st.Refused != "") != (st.Policy.ID.Name == "web") {
			t.Errorf("%s: refused %q", st.Policy.ID, st.Refused)
		}
	}
	step("", `ipset_delta_update { id: "s:a" removed_members: "10.1.2.4/32" removed_members: "10.1.2.5/32" removed_members: "10.1.2.6/32" }`)
	if len(p.sent.policies[model.WireName{Tier: "default", Name: "prod/knp.default.web"}].GetInboundRules()) != 2 {
		t.Error("it does not have its rules again")
	}
	step("", `active_policy_remove { id { tier: "default" name: "prod/knp.default.web" } }`)
}

// VPP before 25.06 compares IPv6 prefixes by whole bytes, where a prefix of 57 bits is 128 rules. A policy that fits elsewhere is closed there, and
// opens when the agent reconnects to a later VPP; the refusal names the version.
func TestPolicySizeDependsOnVPPVersion(t *testing.T) {
	wide := web(func(p *model.Policy) {
		p.InboundRules[0].Source = model.Peer{Nets: []netip.Prefix{netip.MustParsePrefix("fd00::/57"), netip.MustParsePrefix("fd00:1::/57")}}
		p.InboundRules[0].Destination.Ports = nil
	})
	narrow := asking("narrow", 2, 10)
	stream := func() *Processor {
		return NewStream(Config{NodeName: "node-1", Limits: budget.Limits{budget.Rules: {Object: 200}}}, event.Located{}, &recorder{})
	}
	objects, _ := limited(200, 300, 400)
	apply(objects, append(clients(3), pod("web", "10.1.1.2"), wide, narrow)...)
	for name, p := range map[string]*Processor{"objects": objects, "stream": stream()} {
		if p.stream != nil {
			p.Dataplane(said(t, `
active_policy_update { id { tier: "default" name: "prod/knp.default.web" } policy { inbound_rules { action: "allow" protocol { name: "TCP" } src_net: "fd00::/57" src_net: "fd00:1::/57" } } }
active_policy_update { id { tier: "default" name: "prod/knp.default.narrow" } policy { inbound_rules { action: "allow" src_net: "fd00::/64" } } }
in_sync { }`))
		}
		for _, s := range []struct{ version, closed string }{{"24.06-release", "web"}, {"25.10-release", ""}, {"24.06-release", "web"}, {"26.06", ""}, {"25.02", "web"}} {
			p.VPP(&event.VPPStatus{Connected: true, Version: s.version})
			if err := p.Flush(); err != nil {
				t.Fatal(err)
			}
			if got := closedNow(p); got != s.closed {
				t.Errorf("%s, VPP %s: closed %q, want %q", name, s.version, got, s.closed)
			}
			want := fmt.Sprintf("it asks for 256 rules of policies, and an object may have 200 (--max-policy-rules); VPP %s compares IPv6 prefixes by whole "+
				"bytes, so it is 256 rules instead of the 2 from VPP 25.06 on: all that it applies to is denied", s.version)
			if s.closed == "" {
				want = ""
			}
			for _, st := range p.Policies() {
				if st.Policy.ID.Name == "web" && st.Refused != want {
					t.Errorf("%s: %q, want %q", name, st.Refused, want)
				}
			}
		}
	}
}
