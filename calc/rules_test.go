package calc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// active returns what the data plane gets for one policy that applies to one local workload.
func active(t *testing.T, p *model.Policy) (*felix.Policy, []model.Note, *mirror.Mirror) {
	t.Helper()
	g := calc.New(calc.Config{Node: self})
	g.SetWorkload(model.WorkloadID{Node: self, Workload: "w"}, &model.WorkloadEndpoint{
		Labels: map[string]string{"projectcalico.org/namespace": "prod"},
	})
	g.SetPolicy(p.ID, p)
	g.InSync()
	m := mirror.New()
	m.Apply(g.Flush(), true)
	m.Check(t, "flush")
	for _, v := range m.Things {
		if u, ok := v.(*felix.ActivePolicyUpdate); ok {
			return u.Policy, g.Notes(), m
		}
	}
	return nil, g.Notes(), m
}

func gnp(rules ...model.Rule) *model.Policy {
	id := model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: "p"}
	return &model.Policy{ID: id, Tier: "default", Selector: "all()", InboundRules: rules}
}

// A rule that cannot be understood allows nothing of what it would have allowed, and still denies what it would have
// denied.
func TestInvalidRulesFailClosed(t *testing.T) {
	bad := model.Peer{Selector: "a ==", NotPorts: []model.PortMatch{{First: 1, Last: 2}}}
	badNot := model.Peer{Selector: "all()", NotSelector: "&&"}
	for _, c := range []struct {
		rule model.Rule
		want string // action and sets
	}{
		{model.Rule{Action: model.ActionAllow, Source: bad}, ""},
		{model.Rule{Source: bad}, ""},
		{model.Rule{Action: model.ActionLog, Source: bad}, ""},
		{model.Rule{Action: "allwo", Source: bad}, ""},
		{model.Rule{Action: model.ActionDeny, Source: bad}, "deny 0"},
		{model.Rule{Action: "Deny", Destination: bad}, "deny 0"},
		{model.Rule{Action: model.ActionPass, Source: bad}, "deny 0"},
		{model.Rule{Action: "Pass", Destination: badNot}, "deny 1"},
		{model.Rule{Action: model.ActionAllow, Source: badNot}, ""},
		{model.Rule{Action: model.ActionPass, Source: model.Peer{Selector: "all()"}}, "next-tier 1"},
	} {
		p, notes, _ := active(t, gnp(c.rule))
		got := ""
		for _, r := range p.InboundRules {
			got = fmt.Sprintf("%s %d", r.Action, len(r.SrcIpSetIds)+len(r.DstIpSetIds))
			if c.rule.Source.NotPorts != nil && len(r.NotSrcPorts) != 1 {
				t.Errorf("%+v: the valid part is lost: %v", c.rule, r)
			}
		}
		if got != c.want {
			t.Errorf("%s %+v: %q, want %q", c.rule.Action, c.rule.Source, got, c.want)
		}
		if sense := strings.HasPrefix(c.want, "next"); (len(notes) == 0) != sense {
			t.Errorf("%s: notes %v", c.rule.Action, notes)
		}
		for _, n := range notes {
			if n.Ref != (model.Ref{Kind: "GlobalNetworkPolicy", Name: "p"}) || !n.Refused || n.Reason == "" {
				t.Errorf("note %+v", n)
			}
		}
	}
}

// A policy with an invalid selector applies to every endpoint it may have meant, and allows nothing.
func TestPolicyWithInvalidSelectorIsolates(t *testing.T) {
	rules := []model.Rule{{Action: model.ActionAllow}, {Action: model.ActionPass}, {Action: model.ActionDeny}}
	for _, c := range []struct {
		namespace string
		applies   bool
	}{{"", true}, {"prod", true}, {"test", false}} {
		p := gnp(rules...)
		p.Selector, p.Namespace = "has(", c.namespace
		got, notes, _ := active(t, p)
		if (got != nil) != c.applies {
			t.Errorf("namespace %q: %v", c.namespace, got)
		}
		if got == nil {
			continue
		}
		for _, r := range got.InboundRules {
			if r.Action != "deny" {
				t.Errorf("namespace %q: action %s remains", c.namespace, r.Action)
			}
		}
		if len(got.InboundRules) != 2 || len(notes) == 0 {
			t.Errorf("namespace %q: %v, notes %v", c.namespace, got.InboundRules, notes)
		}
	}
}

// TestOriginFollowsMessagesToObjects follows messages back to the objects they come from.
func TestOriginFollowsMessagesToObjects(t *testing.T) {
	g := calc.New(calc.Config{Node: self})
	p := gnp(model.Rule{Source: model.Peer{Selector: "a =="}}, model.Rule{}, model.Rule{Origin: "ingress rule 7"})
	p.Everywhere = true
	g.SetPolicy(p.ID, p)
	if _, ok := g.Origin("default", "p"); ok {
		t.Error("known before it was sent")
	}
	g.InSync()
	m := mirror.New()
	m.Apply(g.Flush(), true)
	got, _ := g.Origin("default", "p")
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("origin:\n%s", diff)
	}
	var ids []string
	for _, v := range m.Things {
		if u, ok := v.(*felix.ActivePolicyUpdate); ok {
			for _, r := range u.Policy.InboundRules {
				ids = append(ids, r.RuleId)
			}
		}
	}
	if diff := cmp.Diff([]string{"rule 2", "ingress rule 7"}, ids); diff != "" {
		t.Error(diff)
	}
	g.SetPolicy(p.ID, nil)
	if _, ok := g.Origin("default", "p"); ok {
		t.Error("known after it was taken away")
	}
}

func TestNoteIsRemovedWithItsCause(t *testing.T) {
	g := calc.New(calc.Config{Node: self})
	p := gnp(model.Rule{Source: model.Peer{Selector: "a =="}})
	p.Everywhere = true
	g.SetPolicy(p.ID, p)
	g.SetWorkload(model.WorkloadID{Node: self}, &model.WorkloadEndpoint{Profiles: []string{"prof"}})
	g.SetProfile("prof", &model.Profile{Rules: &model.ProfileRules{Inbound: p.InboundRules}})
	g.InSync()
	g.Flush()
	if n := g.Notes(); len(n) != 2 || n[0].Ref.Kind != "GlobalNetworkPolicy" || n[1].Ref.Kind != "Profile" {
		t.Errorf("notes %v", n)
	}
	g.SetPolicy(p.ID, nil)
	g.SetProfile("prof", nil)
	g.Flush()
	if n := g.Notes(); len(n) != 0 {
		t.Errorf("notes stay: %v", n)
	}
}

// A rule with every field set is converted completely.
func TestRuleFields(t *testing.T) {
	nets := prefixList("10.0.0.0/8", "fd00::/8")
	peer := func(tag string) model.Peer {
		return model.Peer{
			Nets: nets, NotNets: nets[:1], Ports: []model.PortMatch{{First: 1, Last: 9}}, NotPorts: []model.PortMatch{{First: 3, Last: 3}},
			OriginalSelector: tag + "-sel", OriginalNamespaceSelector: tag + "-ns", OriginalNotSelector: tag + "-not",
			ServiceAccountNames: []string{tag}, ServiceAccountSelector: tag + "-sa",
		}
	}
	p, _, _ := active(t, gnp(model.Rule{
		Action: model.ActionAllow, IPVersion: 4, Protocol: model.RuleProtocol{Number: 1}, NotProtocol: model.RuleProtocol{Name: "udp"},
		ICMP: &model.ICMPMatch{Type: 8, Code: 0, HasCode: true}, NotICMP: &model.ICMPMatch{Type: 3},
		Source: peer("src"), Destination: peer("dst"), Annotations: map[string]string{"a": "b"},
		HTTP: &model.HTTPMatch{Methods: []string{"GET"}, Paths: []model.HTTPPath{{Exact: "/a"}, {Prefix: "/b"}}},
	}))
	want := `action:"allow" ip_version:IPV4 protocol:{number:1} src_net:"10.0.0.0/8" src_net:"fd00::/8" ` +
		`src_ports:{first:1 last:9} dst_net:"10.0.0.0/8" dst_net:"fd00::/8" dst_ports:{first:1 last:9} ` +
		`icmp_type_code:{type:8} not_protocol:{name:"udp"} not_src_net:"10.0.0.0/8" not_src_ports:{first:3 last:3} ` +
		`not_dst_net:"10.0.0.0/8" not_dst_ports:{first:3 last:3} not_icmp_type:3 original_src_selector:"src-sel" ` +
		`original_dst_selector:"dst-sel" original_src_namespace_selector:"src-ns" original_dst_namespace_selector:"dst-ns" ` +
		`original_not_src_selector:"src-not" original_not_dst_selector:"dst-not" ` +
		`src_service_account_match:{selector:"src-sa" names:"src"} dst_service_account_match:{selector:"dst-sa" names:"dst"} ` +
		`http_match:{methods:"GET" paths:{exact:"/a"} paths:{prefix:"/b"}} metadata:{annotations:{key:"a" value:"b"}} rule_id:"rule 1"`
	got := strings.Join(strings.Fields(p.InboundRules[0].String()), " ")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Endpoints with every field set are converted completely.
func TestEndpointFields(t *testing.T) {
	g := calc.New(calc.Config{Node: self})
	addrs := addrList("192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1")
	g.SetWorkload(model.WorkloadID{Node: self, Orchestrator: "k8s", Workload: "ns/pod", Endpoint: "eth0"}, &model.WorkloadEndpoint{
		State: "active", Interface: "cali1", MAC: "02:00:00:00:00:01", Nets: prefixList("10.0.0.1/32", "fd00::1/128"),
		NAT:                 []model.AddressPair{{External: addrs[0], Internal: addrs[1]}, {External: addrs[2], Internal: addrs[3]}},
		AllowSpoofedSources: prefixList("10.9.0.0/16"), Annotations: map[string]string{"a": "b"},
	})
	g.SetProfile("kns.prod", &model.Profile{Labels: map[string]string{"pcns.team": "x"}})
	g.SetProfile("ksa.prod.web.blue", &model.Profile{Labels: map[string]string{"pcsa.role": "y"}})
	g.InSync()
	m := mirror.New()
	m.Apply(g.Flush(), true)
	dump := strings.Join(strings.Fields(strings.Join(m.Dump(), "\n")), " ")
	for _, want := range []string{
		`endpoint:{state:"active" name:"cali1" mac:"02:00:00:00:00:01" ipv4_nets:"10.0.0.1/32" ipv6_nets:"fd00::1/128" ` +
			`ipv4_nat:{ext_ip:"192.0.2.1" int_ip:"10.0.0.1"} ipv6_nat:{ext_ip:"2001:db8::1" int_ip:"fd00::1"} ` +
			`allow_spoofed_source_prefixes:"10.9.0.0/16" annotations:{key:"a" value:"b"}}`,
		`id:{name:"prod"} labels:{key:"team" value:"x"}`,
		`id:{namespace:"prod" name:"web.blue"} labels:{key:"role" value:"y"}`,
	} {
		if !strings.Contains(dump, want) {
			t.Errorf("lacks %s\nin %s", want, dump)
		}
	}
}

// ICMP belongs to one family, which a rule need not state.
func TestProtocolImpliesVersion(t *testing.T) {
	for _, c := range []struct {
		rule model.Rule
		want felix.IPVersion
	}{
		{model.Rule{}, felix.IPVersion_ANY},
		{model.Rule{Protocol: model.RuleProtocol{Name: "tcp"}}, felix.IPVersion_ANY},
		{model.Rule{Protocol: model.RuleProtocol{Name: "icmp"}}, felix.IPVersion_IPV4},
		{model.Rule{Protocol: model.RuleProtocol{Name: "icmpv6"}}, felix.IPVersion_IPV6},
		{model.Rule{Protocol: model.RuleProtocol{Number: 1}}, felix.IPVersion_ANY},
		{model.Rule{Protocol: model.RuleProtocol{Name: "icmp"}, IPVersion: 6}, felix.IPVersion_IPV6},
	} {
		p, _, _ := active(t, gnp(c.rule))
		if got := p.InboundRules[0].IpVersion; got != c.want {
			t.Errorf("%+v: version %v, want %v", c.rule, got, c.want)
		}
	}
}
