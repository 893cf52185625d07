package example

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

func TestHeaderOf(t *testing.T) {
	src, dst := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3")
	for want, h := range map[string]space.Header{
		`{"protocol":"TCP","source":"10.1.1.2","sourcePort":40000,"destination":"10.1.1.3","destinationPort":80,"flags":["SYN","ACK"]}`: {Protocol: space.TCP, SrcPort: 40000, DstPort: 80, Flags: space.SYN | space.ACK},
		`{"protocol":"UDP","source":"10.1.1.2","sourcePort":40000,"destination":"10.1.1.3","destinationPort":53}`:                       {Protocol: space.UDP, SrcPort: 40000, DstPort: 53},
		`{"protocol":"SCTP","source":"10.1.1.2","sourcePort":1,"destination":"10.1.1.3","destinationPort":2}`:                           {Protocol: space.SCTP, SrcPort: 1, DstPort: 2},
		`{"protocol":"ICMP","source":"10.1.1.2","destination":"10.1.1.3","icmp":{"type":8,"code":0}}`:                                   {Protocol: space.ICMP, SrcPort: 8},
		`{"protocol":"ICMPv6","source":"10.1.1.2","destination":"10.1.1.3","icmp":{"type":0,"code":1}}`:                                 {Protocol: space.ICMPv6, DstPort: 1},
		`{"protocol":"47","source":"10.1.1.2","destination":"10.1.1.3"}`:                                                                {Protocol: 47},
	} {
		h.Src, h.Dst = src, dst
		if got, err := json.Marshal(HeaderOf(h)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", h, got, err, want)
		}
	}
}

func TestDecisionOf(t *testing.T) {
	policy := func(name string) *model.Policy {
		return &model.Policy{ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "prod", Name: name}}
	}
	for want, d := range map[string]meaning.Decision{
		`{"pod":"prod/web","direction":"egress","allowed":true,"policies":[{"kind":"NetworkPolicy","namespace":"prod","name":"a"}],"tier":"default","rule":{"direction":"egress","number":2},"text":"allowed by …"}`:             {Allowed: true, Policies: []*model.Policy{policy("a")}, Tier: "default", Rule: "egress rule 2", Text: "allowed by …"},
		`{"pod":"prod/web","direction":"egress","allowed":false,"policies":[{"kind":"NetworkPolicy","namespace":"prod","name":"a"},{"kind":"NetworkPolicy","namespace":"prod","name":"b"}],"tier":"default","text":"denied: …"}`: {Policies: []*model.Policy{policy("a"), policy("b")}, Tier: "default", Text: "denied: …"},
		`{"pod":"prod/web","direction":"egress","allowed":true,"text":"allowed: …"}`: {Allowed: true, Text: "allowed: …"},
	} {
		if got, err := json.Marshal(DecisionOf(model.PodID{Namespace: "prod", Name: "web"}, true, &d)); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
