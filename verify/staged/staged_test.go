package staged

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
)

var web = model.PodID{Namespace: "prod", Name: "web"} // read only

// policy is one of ingress for all pods; text is its kind, name, order, action if it is staged, and rules: "+80" allows, "-80" denies, ">80" passes.
func policy(text string) *model.Policy {
	f := strings.Fields(text)
	p := &model.Policy{ID: model.PolicyID{Kind: model.PolicyKind(f[0]), Name: f[1]}, Staged: model.StagedAction(f[3]), Tier: model.TierDefault, Selector: "all()", Ingress: true}
	var order float64
	if _, err := fmt.Sscan(f[2], &order); err != nil {
		panic(err)
	}
	if p.Order = model.OrderOf(order); f[3] == "enforced" {
		p.Staged = ""
	}
	for _, rule := range f[4:] {
		r := model.Rule{Action: map[byte]model.Action{'+': model.ActionAllow, '-': model.ActionDeny, '>': model.ActionPass}[rule[0]], Protocol: model.RuleProtocol{Name: "tcp"}}
		var port uint16
		if _, err := fmt.Sscan(rule[1:], &port); err != nil {
			panic(err)
		}
		r.Destination.Ports = []model.PortMatch{{First: port, Last: port}}
		p.InboundRules = append(p.InboundRules, r)
	}
	return p
}

func objects(policies ...string) []model.Object {
	list := []model.Object{&model.Pod{ID: web, NodeName: "node-1", IPs: []netip.Addr{netip.MustParseAddr("10.1.1.2")}}}
	for _, text := range policies {
		list = append(list, policy(text))
	}
	return list
}

func TestPreview(t *testing.T) {
	for _, c := range []struct {
		name     string
		policies []string
		now      string
		then     string
		by       string // "": no difference
	}{
		{
			"a new policy denies",
			[]string{"GlobalNetworkPolicy a 5 enforced +80", "StagedGlobalNetworkPolicy b 1 Set -80"},
			"allowed by GlobalNetworkPolicy a ingress rule 1", "denied by GlobalNetworkPolicy b ingress rule 1", "StagedGlobalNetworkPolicy b",
		},
		{
			"a new policy comes later",
			[]string{"GlobalNetworkPolicy a 5 enforced +80", "StagedGlobalNetworkPolicy b 9 Set -80"},
			"allowed by GlobalNetworkPolicy a ingress rule 1", "allowed by GlobalNetworkPolicy a ingress rule 1", "",
		},
		{
			"the only policy is deleted",
			[]string{"GlobalNetworkPolicy a 5 enforced +81", "StagedGlobalNetworkPolicy a 5 Delete"},
			"denied: no rule of GlobalNetworkPolicy a allows it", "allowed: no policy selects", "StagedGlobalNetworkPolicy a",
		},
		{
			"a policy is replaced, and another one decides then",
			[]string{"GlobalNetworkPolicy a 5 enforced +80", "GlobalNetworkPolicy b 6 enforced -80", "StagedGlobalNetworkPolicy a 5 Learn +81"},
			"allowed by GlobalNetworkPolicy a ingress rule 1", "denied by GlobalNetworkPolicy b ingress rule 1", "StagedGlobalNetworkPolicy a",
		},
		{
			"a new policy passes a packet that the tier denies",
			[]string{"GlobalNetworkPolicy a 5 enforced -80", "GlobalNetworkPolicy b 1 Set >80"},
			"denied by GlobalNetworkPolicy a ingress rule 1", "allowed: no policy of prod/web decides", "GlobalNetworkPolicy b",
		},
		{
			"of two with the same target, the staged kind counts",
			[]string{"StagedGlobalNetworkPolicy a 5 Set -80", "GlobalNetworkPolicy a 5 Set +80"},
			"allowed: no policy selects", "denied by GlobalNetworkPolicy a ingress rule 1", "StagedGlobalNetworkPolicy a",
		},
		{
			"one to ignore, beside one without effect",
			[]string{"StagedGlobalNetworkPolicy a 5 Ignore -80", "StagedGlobalNetworkPolicy b 5 Delete"},
			"allowed: no policy selects", "allowed: no policy selects", "",
		},
	} {
		list := objects(c.policies...)
		before := fmt.Sprintf("%+v", list)
		o, known := Read(list).Decide(web, false, space.Header{Src: netip.MustParseAddr("10.1.1.3"), Dst: netip.MustParseAddr("10.1.1.2"), Protocol: space.TCP, DstPort: 80, Flags: space.SYN})
		by := ""
		if o.By != nil {
			by = o.By.ID.String()
		}
		if !known || !strings.HasPrefix(o.Now.Text, c.now) || !strings.HasPrefix(o.Then.Text, c.then) || by != c.by || o.Changes() != (by != "") {
			t.Errorf("%s: now %s; then %s; by %q", c.name, o.Now.Text, o.Then.Text, by)
		}
		if after := fmt.Sprintf("%+v", list); after != before {
			t.Errorf("%s: the objects changed:\n%s\n%s", c.name, before, after)
		}
	}
}

func TestNothingIsStaged(t *testing.T) {
	if p := Read(objects("GlobalNetworkPolicy a 5 enforced -80", "StagedGlobalNetworkPolicy a 5 Ignore -80")); p != nil {
		t.Errorf("%+v", p)
	}
	p := Read(objects("GlobalNetworkPolicy a 5 Set -80"))
	if _, known := p.Decide(model.PodID{Namespace: "prod", Name: "gone"}, false, space.Header{}); known {
		t.Error("a pod that does not exist is known")
	}
}
