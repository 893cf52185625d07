package policy

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Every place that explains a packet's verdict shows the same line.
func TestReasons(t *testing.T) {
	p, r := newTest()
	apply(
		p, pod("web", "10.1.1.2"), pod("free", "10.1.1.3"), web(),
		web(func(p *model.Policy) { p.ID.Name, p.InboundRules, p.Egress = "deny", nil, true }),
		web(func(p *model.Policy) {
			p.ID = model.PolicyID{Kind: model.KindAdminNetworkPolicy, Name: "guard"}
			p.Tier, p.Namespace, p.Egress = model.TierAdmin, "", true
			p.InboundRules = []model.Rule{{Action: model.ActionDeny, Origin: "ingress rule 1 (no-telnet)"}}
			p.OutboundRules = []model.Rule{{Action: model.ActionAllow}}
		}),
		web(func(p *model.Policy) {
			p.ID = model.PolicyID{Kind: model.KindStagedGlobalPolicy, Name: "try"}
			p.Tier, p.Namespace, p.Selector = model.TierAdmin, "", "all()"
		}),
		web(func(p *model.Policy) {
			p.ID = model.PolicyID{Kind: model.KindCalicoNetworkPolicy, Namespace: "prod", Name: "default.extra"}
			p.Selector = "app == 'free'"
		}),
		web(func(p *model.Policy) { p.ID.Name, p.Selector = "free", "app == 'free'" }),
		&model.HostEndpoint{ID: model.HostEndpointID{Node: "node-1", Name: "up"}, Interface: "up"},
	)
	_ = p.Flush()
	web := func(c dataplane.Cause) dataplane.Cause { c.Endpoint = "prod/web"; return c }
	free := func(c dataplane.Cause) dataplane.Cause { c.Endpoint = "prod/free"; return c }
	for _, c := range []struct {
		cause dataplane.Cause
		want  Reason
	}{
		{
			web(dataplane.Cause{Kind: dataplane.CauseRule, Tier: "default", Policy: "prod/knp.default.web"}),
			Reason{
				Decides: true, Text: "allowed by NetworkPolicy prod/web ingress rule 1", Tier: "default",
				Policy: model.Ref{Kind: "NetworkPolicy", Namespace: "prod", Name: "web"}, Rule: "ingress rule 1",
			},
		},
		{
			web(dataplane.Cause{Kind: dataplane.CauseRule, Tier: model.TierAdmin, Policy: "kanp.adminnetworkpolicy.guard", Denied: true}),
			Reason{
				Denied: true, Decides: true, Text: "denied by AdminNetworkPolicy guard ingress rule 1 (no-telnet)", Tier: model.TierAdmin,
				Policy: model.Ref{Kind: "AdminNetworkPolicy", Name: "guard"}, Rule: "ingress rule 1 (no-telnet)",
			},
		},
		{
			web(dataplane.Cause{Kind: dataplane.CauseRule, Egress: true, Tier: model.TierAdmin, Policy: "kanp.adminnetworkpolicy.guard"}),
			Reason{
				Egress: true, Decides: true, Text: "allowed by AdminNetworkPolicy guard egress rule 1", Tier: model.TierAdmin,
				Policy: model.Ref{Kind: "AdminNetworkPolicy", Name: "guard"}, Rule: "egress rule 1",
			},
		},
		{
			web(dataplane.Cause{Kind: dataplane.CauseEndOfTier, Denied: true, Tier: "default"}),
			Reason{
				Denied: true, Decides: true, Tier: "default",
				Text:    "denied: NetworkPolicy prod/deny, prod/web isolate prod/web for ingress and no rule allows it",
				Trigger: model.Ref{Kind: "NetworkPolicy", Namespace: "prod", Name: "deny"},
			},
		},
		{
			web(dataplane.Cause{Kind: dataplane.CauseEndOfTier, Denied: true, Egress: true, Tier: "default"}),
			Reason{
				Denied: true, Decides: true, Egress: true, Tier: "default",
				Text:    "denied: NetworkPolicy prod/deny isolates prod/web for egress and no rule allows it",
				Trigger: model.Ref{Kind: "NetworkPolicy", Namespace: "prod", Name: "deny"},
			},
		},
		{
			web(dataplane.Cause{Kind: dataplane.CauseEndOfTier, Denied: true, Tier: model.TierAdmin}),
			Reason{
				Denied: true, Decides: true, Tier: model.TierAdmin,
				Text:    "denied: end of tier adminnetworkpolicy, ingress of prod/web is governed by AdminNetworkPolicy guard and no rule decides",
				Trigger: model.Ref{Kind: "AdminNetworkPolicy", Name: "guard"},
			},
		},
		{ // in a tier with policies of other kinds, the end of the tier decides
			free(dataplane.Cause{Kind: dataplane.CauseEndOfTier, Denied: true, Tier: "default"}),
			Reason{
				Denied: true, Decides: true, Tier: "default",
				Text:    "denied: end of tier default, ingress of prod/free is governed by CalicoNetworkPolicy prod/default.extra, NetworkPolicy prod/free and no rule decides",
				Trigger: model.Ref{Kind: "CalicoNetworkPolicy", Namespace: "prod", Name: "default.extra"},
			},
		},
		{
			free(dataplane.Cause{Kind: dataplane.CauseProfileRule, Profile: "kns.prod", Egress: true}),
			Reason{Decides: true, Egress: true, Text: "allowed: no policy selects prod/free for egress", Profile: "kns.prod"},
		},
		{
			web(dataplane.Cause{Kind: dataplane.CauseProfileRule, Profile: "kns.prod"}),
			Reason{Decides: true, Text: "allowed: no policy of prod/web decides for ingress", Profile: "kns.prod"},
		},
		{
			web(dataplane.Cause{Kind: dataplane.CauseProfileRule, Profile: "lab", Denied: true, Rule: 2}),
			Reason{Denied: true, Decides: true, Text: "denied: Profile lab ingress rule 3", Profile: "lab"},
		},
		{
			dataplane.Cause{Kind: dataplane.CauseNoMatch, Endpoint: "up", Host: true, Denied: true, Egress: true},
			Reason{Denied: true, Decides: true, Egress: true, Text: "denied: neither policy nor profile of up allows it for egress"},
		},
		{
			dataplane.Cause{Kind: dataplane.CauseIsolated, Denied: true, Endpoint: "prod/new"},
			Reason{Denied: true, Text: "denied: prod/new is isolated until its policies are known"},
		},
		{
			dataplane.Cause{Kind: dataplane.CauseStatic, Text: "addresses of the node itself"},
			Reason{Text: "allowed: addresses of the node itself"},
		},
		{
			web(dataplane.Cause{Kind: dataplane.CauseDown, Denied: true}),
			Reason{Denied: true, Decides: true, Text: "denied: prod/web is administratively down"},
		},
		{
			web(dataplane.Cause{Kind: dataplane.CauseRule, Tier: "default", Policy: "prod/knp.default.gone", Rule: 4}),
			Reason{
				Decides: true, Text: "allowed by Policy default/prod/knp.default.gone ingress rule 5", Tier: "default",
				Policy: model.Ref{Kind: "Policy", Name: "default/prod/knp.default.gone"}, Rule: "ingress rule 5",
			},
		},
	} {
		r.cause = func(string, bool, int, int) (dataplane.Cause, bool) { return c.cause, true }
		got, ok := p.Explain("tap1", true, 0, 0)
		if diff := cmp.Diff(c.want, got); diff != "" || !ok || got.String() != got.Text {
			t.Errorf("%+v: %v -want +got\n%s", c.cause, ok, diff)
		}
	}
	r.cause = nil
	if got, ok := p.Explain("tap1", true, 0, 0); ok {
		t.Errorf("a reason without a cause: %v", got)
	}
}

func TestManyPoliciesAreCounted(t *testing.T) {
	var refs []model.Ref
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		refs = append(refs, model.Ref{Kind: "NetworkPolicy", Namespace: "prod", Name: name})
	}
	if got := refsText(refs); got != "NetworkPolicy prod/a, prod/b, prod/c and 2 more" {
		t.Error(got)
	}
	refs[1].Kind = "CalicoNetworkPolicy"
	if got := refsText(refs[:3]); got != "NetworkPolicy prod/a, CalicoNetworkPolicy prod/b, NetworkPolicy prod/c" {
		t.Error(got)
	}
}

func TestDescribe(t *testing.T) {
	p, _ := newTest()
	apply(p, pod("web", "10.1.1.2"), web(func(p *model.Policy) {
		lost := p.InboundRules[0] // is not in force
		lost.Source.Selector, lost.Origin = "app =", "ingress rule 0"
		p.InboundRules = append([]model.Rule{lost}, p.InboundRules[0], model.Rule{
			Action: model.ActionPass, IPVersion: 4, NotProtocol: model.RuleProtocol{Number: 17},
			Source:      model.Peer{NotSelector: "app == 'x'", Ports: []model.PortMatch{{First: 1000, Last: 2000}, {Name: "http"}}},
			Destination: model.Peer{Service: model.ServiceID{Namespace: "prod", Name: "db"}},
		}, model.Rule{ICMP: &model.ICMPMatch{Type: 8}, NotICMP: &model.ICMPMatch{Type: 3, Code: 1, HasCode: true}})
	}), web(func(p *model.Policy) {
		p.ID, p.Namespace = model.PolicyID{Kind: model.KindStagedGlobalPolicy, Name: "try"}, ""
		p.Ingress, p.Egress, p.InboundRules = false, true, nil
	}), &model.HostEndpoint{ID: model.HostEndpointID{Node: "node-1", Name: "up"}, Interface: "up"}, web(func(p *model.Policy) {
		p.ID, p.Namespace = model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: "edge"}, ""
		p.Selector, p.ApplyOnForward, p.InboundRules = "!has(app)", true, nil
	}))
	p.Located(located("10.1.1.2", "tap1"))
	_ = p.Flush()
	got, ok := p.Describe(model.PodID{Namespace: "prod", Name: "web"})
	want := &Description{
		Endpoint: "prod/web", Interfaces: []string{"tap1"}, Addresses: []string{"10.1.1.2/32"}, Profiles: []string{"kns.prod", "ksa.prod.default"},
		Ingress: []Tier{{Name: "default", End: "deny", Policies: []Policy{{
			Object: "NetworkPolicy prod/web", Selector: `app == "web"`,
			Rules: []Rule{
				{Name: "ingress rule 1", Action: "allow", Match: "tcp from {app == 'client'} to ports 80"},
				{
					Name: "ingress rule 3", Action: "pass",
					Match: "ipv4 not 17 from not {app == 'x'} ports 1000-2000,http to service prod/db",
				},
				{Name: "ingress rule 4", Action: "allow", Match: "type 8 not type 3/1"},
			},
		}}}},
		Egress: []Tier{{Name: "default", End: "pass", Policies: []Policy{{
			Object: "StagedGlobalNetworkPolicy try", Selector: `app == "web"`, Staged: true, Rules: []Rule{},
		}}}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Rule{}, "Matches")); diff != "" || !ok {
		t.Errorf("-want +got\n%s", diff)
	}
	fields, err := json.Marshal(got.Ingress[0].Policies[0].Rules[1].Matches)
	if text := `{"ipVersion":4,"notProtocol":"17","source":{"ports":["1000-2000","http"],"notSelector":"app == 'x'"},"destination":{"service":"prod/db"}}`; err != nil || string(fields) != text {
		t.Errorf("fields %s, want %s (%v)", fields, text, err)
	}
	if got, ok := p.Describe(model.PodID{Namespace: "prod", Name: "other"}); ok {
		t.Errorf("a pod that is not there: %v", got)
	}
	host, ok := p.DescribeHost("up")
	if !ok || host.Forward == nil || len(host.Forward.Ingress) != 1 || host.Forward.Ingress[0].Policies[0].Object != "GlobalNetworkPolicy edge" {
		t.Errorf("host endpoint: %+v", host)
	}
	if _, ok := p.DescribeHost("down"); ok {
		t.Error("a host endpoint that is not there")
	}
}

func TestPolicies(t *testing.T) {
	p, _ := newTest()
	apply(p, pod("web", "10.1.1.2"), pod("other", "10.1.2.2"), web(), web(func(p *model.Policy) {
		p.ID.Name, p.Selector = "idle", "app == 'other'"
	}), web(func(p *model.Policy) {
		p.ID = model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: "all"}
		p.Namespace, p.Selector, p.Egress, p.InboundRules[0].Source.Selector = "", "all()", true, "broken ="
	}), web(func(p *model.Policy) {
		p.ID = model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: "exit"}
		p.Namespace, p.Selector, p.Ingress, p.Egress, p.ApplyOnForward = "", "!has(app)", false, true, true
	}), &model.HostEndpoint{ID: model.HostEndpointID{Node: "node-1", Name: "up"}})
	p.Located(located("10.1.1.2", "tap1"))
	_ = p.Flush()
	pod, host := Applied{Endpoint: "prod/web", Interfaces: []string{"tap1"}}, Applied{Endpoint: "up", Host: true}
	exit := Applied{Endpoint: "up", Host: true, Interfaces: []string{"tap1"}}
	type line struct {
		Policy    string
		Endpoints []Applied
		Notes     int
	}
	var got []line
	for _, s := range p.Policies() {
		got = append(got, line{s.Policy.ID.String(), s.Endpoints, len(s.Notes)})
	}
	if diff := cmp.Diff([]line{
		{"GlobalNetworkPolicy all", []Applied{pod, host}, 1}, {"GlobalNetworkPolicy exit", []Applied{exit}, 0}, {"NetworkPolicy prod/idle", nil, 0}, {"NetworkPolicy prod/web", []Applied{pod}, 0},
	}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestProfilesAreObjects(t *testing.T) {
	for name, want := range map[string]string{
		"kns.prod": "Namespace prod", "ksa.prod.web.one": "ServiceAccount prod/web.one", "lab": "Profile lab",
	} {
		if got := ProfileRef(name).String(); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
