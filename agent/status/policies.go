package status

import (
	"fmt"
	"slices"
	"strings"

	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"

	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
)

// Named replaces the renderer's name of a policy, from Felix's messages, by the object.
func (r *Reader) Named(notes []model.Note) []model.Note {
	if r.Policies == nil {
		return notes
	}
	out := slices.Clone(notes)
	for i := range out {
		switch ref := &out[i].Ref; ref.Kind {
		case acl.KindPolicy:
			tier, name, _ := strings.Cut(ref.Name, "|")
			*ref = r.Policies.PolicyRef(tier, name)
		case acl.KindProfile:
			*ref = policy.ProfileRef(ref.Name)
		case acl.KindWorkload:
			ns, name, _ := strings.Cut(ref.Name, "/")
			*ref = model.Ref{Kind: model.KindPod, Namespace: ns, Name: name}
		}
	}
	return out
}

// failsClosed is the prefix of reasons about unknown parts of a policy.
const failsClosed = "what was not understood fails closed: "

// policyStatuses joins the reports of the processor, the renderer and VPP about each policy; notes are the renderer's by
// object. It returns the objects that are policies.
func (p *Picture) policyStatuses(out *Status, st *controller.Status, notes map[model.Ref][]model.Note) map[model.Ref]bool {
	known := map[model.Ref]bool{}
	refused, unwellKeys := map[model.Ref]event.Change{}, map[string]event.ValueStatus{}
	for _, ch := range st.Refused {
		refused[ch.Ref] = ch
	}
	for _, v := range st.Unwell {
		unwellKeys[v.Key] = v
	}
	for _, s := range p.policyList {
		ref := s.Policy.Ref()
		known[ref] = true
		status := policyStatus(s, unwellKeys, notes)
		if out.driver != nil {
			status = drivenStatus(s, out.driver)
		}
		for _, n := range slices.Concat(s.Notes, notes[ref]) {
			if status.because(n.Reason, remarkOf(n)); n.Refused {
				status.State = worse(status.State, Partial)
			}
		}
		if s.Refused != "" {
			status.State = worse(status.State, Refused)
			status.because(s.Refused, Cause{Of: ofRefusal})
		}
		if ch, is := refused[ref]; is {
			status.State = worse(status.State, Partial)
			status.Reasons, status.Causes = slices.Insert(status.Reasons, 0, failsClosed+ch.Err.Error()), slices.Insert(status.Causes, 0, Cause{Of: ofRefusal, Refused: true})
		}
		status.Kind, status.Namespace, status.Name = string(ref.Kind), ref.Namespace, ref.Name
		for _, at := range s.Endpoints {
			status.Endpoints = append(status.Endpoints, at.Endpoint)
		}
		out.Policies = append(out.Policies, status)
	}
	for _, ch := range st.Refused {
		if p.Policies != nil && policy.IsPolicy(ch.Ref.Kind) && !known[ch.Ref] {
			known[ch.Ref] = true
			status := Policy{Object: ch.Ref.String(), State: Refused, Kind: string(ch.Ref.Kind), Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}
			status.because(ch.Err.Error(), Cause{Of: ofRefusal})
			out.Policies = append(out.Policies, status)
		}
	}
	slices.SortFunc(out.Policies, func(a, b Policy) int { return strings.Compare(a.Object, b.Object) })
	return known
}

func policyStatus(s policy.Status, unwellKeys map[string]event.ValueStatus, notes map[model.Ref][]model.Note) Policy {
	status := Policy{Object: s.Policy.ID.String(), Tier: s.Policy.Tier, State: Idle, Text: governs(s)}
	if len(s.Endpoints) == 0 {
		return status
	}
	worst, enforced := event.Configured, 0
	for _, at := range s.Endpoints {
		if at.Host {
			missing := notes[model.Ref{Kind: model.KindHostEndpoint, Name: at.Endpoint}]
			for _, n := range missing {
				status.because(n.Ref.String()+": "+n.Reason, Cause{Of: ofRemark, Object: n.Ref.String(), Refused: n.Refused, Endpoint: at.Endpoint})
			}
			nowhere := slices.ContainsFunc(missing, func(n model.Note) bool { return n.Reason == acl.HostNotEnforced })
			if !nowhere && !s.Policy.Untracked && !s.Policy.PreDNAT {
				enforced++
				worst = max(worst, status.listed(at, unwellKeys))
			}
			continue
		}
		enforced++
		worst = max(worst, status.listed(at, unwellKeys))
		if len(at.Interfaces) == 0 {
			worst = max(worst, event.Pending)
			status.because(at.Endpoint+": no interface of VPP leads to it", Cause{Of: ofNoInterface, Endpoint: at.Endpoint})
		}
	}
	if status.State = worst.String(); enforced == 0 {
		status.State = Refused
	}
	return status
}

// listed adds the problems of the access lists of an endpoint's interfaces, and returns the worst state.
func (s *Policy) listed(at policy.Applied, unwellKeys map[string]event.ValueStatus) event.State {
	worst := event.Configured
	for _, name := range at.Interfaces {
		if v, bad := unwellKeys[kv.Key(&contivacl.InterfaceACLs{Interface: name})]; bad {
			worst = max(worst, v.State)
			c := causeOf(v)
			c.Endpoint = at.Endpoint
			s.because(at.Endpoint+": "+v.Line(), c)
		}
	}
	return worst
}

// governs returns a text such as "tier default, ingress 2 rules, egress 1 rule, of prod/web-0, prod/web-1".
func governs(s policy.Status) string {
	text := "tier " + s.Policy.Tier
	both := !s.Policy.Ingress && !s.Policy.Egress
	for _, d := range []struct {
		name  string
		on    bool
		rules int
	}{
		{"ingress", s.Policy.Ingress || both, len(s.Policy.InboundRules)},
		{"egress", s.Policy.Egress || both, len(s.Policy.OutboundRules)},
	} {
		switch {
		case d.on && d.rules == 1:
			text += ", " + d.name + " 1 rule"
		case d.on:
			text += fmt.Sprintf(", %s %d rules", d.name, d.rules)
		}
	}
	var names []string
	for _, at := range s.Endpoints {
		names = append(names, at.Endpoint)
	}
	if len(names) > 0 {
		text += ", of " + strings.Join(names, ", ")
	}
	return text
}

// drivenStatus returns the state of a policy, as the driver reports it for its endpoints.
func drivenStatus(s policy.Status, driver *felix.SupervisorStatus) Policy {
	status := Policy{Object: s.Policy.ID.String(), Tier: s.Policy.Tier, State: Idle, Text: governs(s)}
	if len(s.Endpoints) == 0 {
		return status
	}
	worst := event.Configured
	if !driver.InSync || driver.Behind > 0 {
		worst = event.Pending
		status.because("the driver has not received everything", Cause{Of: ofDriver})
	}
	for _, at := range s.Endpoints {
		health := healthOf(driver, at)
		c := Cause{Of: ofDriver, Endpoint: at.Endpoint, Report: string(health)}
		switch health {
		case felix.Up:
		case felix.Error:
			worst = max(worst, event.Failed)
			status.because(at.Endpoint+": the driver reports an error", c)
		case "":
			worst = max(worst, event.Pending)
			status.because(at.Endpoint+": the driver has not reported it", c)
		default:
			worst = max(worst, event.Pending)
			status.because(fmt.Sprintf("%s: the driver reports %q", at.Endpoint, health), c)
		}
	}
	status.State = worst.String()
	return status
}

// healthOf returns the driver's report about an endpoint.
func healthOf(driver *felix.SupervisorStatus, at policy.Applied) felix.Health {
	for id, health := range driver.Endpoints {
		if id.Host() == at.Host && (id.Workload == at.Endpoint || at.Host && id.Endpoint == at.Endpoint) {
			return health
		}
	}
	return ""
}
