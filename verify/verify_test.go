package verify

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/binapi/acl_types"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

var podAddr = netip.MustParseAddr("10.1.1.2") // read only

// rule is a rule of a list over IPv4; change narrows it.
func rule(verdict uint8, change func(*space.Box)) space.Rule {
	r := space.Rule{Box: space.All4(), Verdict: verdict}
	if change != nil {
		change(&r.Box)
	}
	return r
}

func fromPod(b *space.Box)  { b.Src = netip.PrefixFrom(podAddr, 32) }
func httpPort(b *space.Box) { b.Protocols, b.DstPorts = space.One(space.TCP), space.One(80) }

// errors4 is the rules about ICMP errors that every list has.
func errors4() (rules []space.Rule) {
	for _, t := range []uint16{3, 11, 12} {
		rules = append(rules, rule(dump.Permit, func(b *space.Box) { b.Protocols, b.SrcPorts = space.One(space.ICMP), space.One(t) }))
	}
	return rules
}

// stateOf is a VPP with one pod, whose interface has these rules at its input and output; nil: no list.
func stateOf(input, output []space.Rule) *dump.State {
	s := &dump.State{
		Interfaces: map[uint32]*dump.Interface{1: {Name: "tap1"}}, Behind: map[netip.Addr]uint32{podAddr: 1},
		Lists: map[uint32]*dump.List{},
	}
	put := func(index uint32, rules []space.Rule) []uint32 {
		if rules == nil {
			return nil
		}
		s.Lists[index] = &dump.List{Index: index, Name: "list", Space: rules, Rules: make([]acl_types.ACLRule, len(rules))}
		return []uint32{index}
	}
	s.Interfaces[1].Input, s.Interfaces[1].Output = put(0, input), put(1, output)
	return s
}

// isolating allows port 80 for ingress, and nothing else.
var isolating = &model.Policy{
	ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "prod", Name: "np"}, Tier: model.TierDefault, Order: model.OrderKubernetes(),
	Selector: "all()", Ingress: true, InboundRules: []model.Rule{{
		Action: model.ActionAllow, Protocol: model.RuleProtocol{Name: "tcp"},
		Destination: model.Peer{Ports: []model.PortMatch{{First: 80, Last: 80}}},
	}},
}

func TestCompare(t *testing.T) {
	checked := []space.Rule{rule(dump.Permit, fromPod)}
	reflecting := []space.Rule{rule(dump.Reflect, fromPod)}
	right := append(errors4(), rule(dump.Reflect, httpPort), rule(dump.Deny, nil))
	hole := func(protocol uint16) []space.Rule {
		return append([]space.Rule{rule(dump.Reflect, func(b *space.Box) { b.Protocols = space.One(protocol) })}, right...)
	}
	service := &model.Service{ID: model.ServiceID{Namespace: "prod", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("203.0.113.9")}}
	ranges := rule(dump.Deny, func(b *space.Box) { b.Dst = netip.MustParsePrefix("203.0.113.9/32") })
	for name, tc := range map[string]struct {
		state    *dump.State
		policies []model.Object
		wrong    string // the packets of the check that differs, or is not compared; "": none
		verdict  Verdict
		packet   string
	}{
		"open pod":                   {stateOf(checked, nil), nil, "", Equal, ""},
		"no source check":            {stateOf(nil, nil), nil, "forged sources", Different, "198.51.100.7"},
		"source ranges of a Service": {stateOf(append([]space.Rule{ranges}, checked...), nil), []model.Object{service}, "", Equal, ""},
		"isolated":                   {stateOf(reflecting, right), []model.Object{isolating}, "", Equal, ""},
		"no lists":                   {stateOf(reflecting, nil), []model.Object{isolating}, "ingress", Different, "tcp 198.51.100.7:40000 -> 10.1.1.2:1 SYN"},
		"closed port":                {stateOf(reflecting, append(errors4(), rule(dump.Deny, nil))), []model.Object{isolating}, "ingress", Different, "-> 10.1.1.2:80 SYN"},
		"order":                      {stateOf(reflecting, append([]space.Rule{right[4], right[3]}, right[:3]...)), []model.Object{isolating}, "ingress", Different, "-> 10.1.1.2:80 SYN"},
		"hole for UDP":               {stateOf(reflecting, hole(space.UDP)), []model.Object{isolating}, "ingress", Different, "udp 198.51.100.7:40000 -> 10.1.1.2:1"},
		"hole for ICMP":              {stateOf(reflecting, hole(space.ICMP)), []model.Object{isolating}, "ingress", Different, "icmp 198.51.100.7 -> 10.1.1.2 type 8 code 0"},
		"hole for GRE":               {stateOf(reflecting, hole(47)), []model.Object{isolating}, "ingress", Different, "protocol 47 198.51.100.7 -> 10.1.1.2"},
		"hole for SCTP":              {stateOf(reflecting, hole(space.SCTP)), []model.Object{isolating}, "", Equal, ""}, // not compared
		"no policy":                  {stateOf(reflecting, right), nil, "ingress", Different, "-> 10.1.1.2:1 SYN"},
		"egress without session":     {stateOf(checked, right), []model.Object{isolating}, "answers to egress", Different, "10.1.1.2:40000"},
		"answers need no session":    {stateOf(checked, append(errors4(), rule(dump.Permit, nil))), nil, "", Equal, ""},
		"ingress without a session":  {stateOf(append([]space.Rule{rule(dump.Deny, httpPort)}, reflecting...), append(errors4(), rule(dump.Permit, httpPort), rule(dump.Deny, nil))), []model.Object{isolating}, "answers to ingress", Different, "-> 10.1.1.2:80 SYN"},
		"no interface":               {&dump.State{}, nil, "all", Unknown, ""},
		"list that is not in VPP":    {&dump.State{Interfaces: map[uint32]*dump.Interface{1: {Name: "tap1", Input: []uint32{7}}}, Behind: map[netip.Addr]uint32{podAddr: 1}}, nil, "egress", Different, "10.1.1.2"},
		"a header of nobody differs": {stateOf(checked, []space.Rule{rule(dump.Deny, func(b *space.Box) { b.Protocols = space.One(space.SCTP) }), rule(dump.Permit, nil)}), nil, "", Equal, ""},
	} {
		s := space.New()
		pod := &model.Pod{ID: model.PodID{Namespace: "prod", Name: "web"}, NodeName: "node-1", IPs: []netip.Addr{podAddr}}
		report := Compare(s, meaning.Read(s, append([]model.Object{pod}, tc.policies...)), tc.state, Config{Node: "node-1"})
		seen := false
		for _, c := range report.Checks {
			switch {
			case c.Packets == tc.wrong:
				seen = true
				if c.Verdict != tc.verdict || c.Difference != nil && !strings.Contains(c.Difference.Packet, tc.packet) {
					t.Errorf("%s: %s is %s, %+v", name, c.Packets, c.Verdict, c.Difference)
				}
			case tc.wrong == "" && c.Verdict != Equal:
				t.Errorf("%s: %s is %s, %+v", name, c.Packets, c.Verdict, c.Difference)
			}
		}
		if seen != (tc.wrong != "") || (report.Verdict == Equal) != (tc.wrong == "") {
			t.Errorf("%s: verdict %s, check seen %v", name, report.Verdict, seen)
		}
	}
}

// A difference has its texts as fields, too.
func TestDifferenceForPrograms(t *testing.T) {
	s := space.New()
	pod := &model.Pod{ID: model.PodID{Namespace: "prod", Name: "web"}, NodeName: "node-1", IPs: []netip.Addr{podAddr}}
	closed := stateOf([]space.Rule{rule(dump.Reflect, fromPod)}, append(errors4(), rule(dump.Deny, nil)))
	report := Compare(s, meaning.Read(s, []model.Object{pod, isolating}), closed, Config{Node: "node-1"})
	got, err := json.MarshalIndent(report.Checks[0].Difference, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "packet": "tcp 198.51.100.7:40000 -\u003e 10.1.1.2:80 SYN",
  "header": {
    "protocol": "TCP",
    "source": "198.51.100.7",
    "sourcePort": 40000,
    "destination": "10.1.1.2",
    "destinationPort": 80,
    "flags": [
      "SYN"
    ]
  },
  "vpp": "dropped: output of tap1, list 0 (acl 1, list), rule 3: deny 0.0.0.0/0 -\u003e 0.0.0.0/0 sport 0 dport 0",
  "policy": "allowed by NetworkPolicy prod/np ingress rule 1",
  "trace": "{\"from\":\"external:198.51.100.7@node-1\",\"protocol\":\"TCP\",\"sourcePort\":40000,\"to\":\"10.1.1.2:80\"}",
  "vppPasses": false,
  "lists": [
    {
      "pod": "prod/web",
      "interface": "tap1",
      "direction": "output",
      "passes": false,
      "list": 0,
      "acl": 1,
      "name": "list",
      "rule": 3,
      "text": "dropped: output of tap1, list 0 (acl 1, list), rule 3: deny 0.0.0.0/0 -\u003e 0.0.0.0/0 sport 0 dport 0"
    }
  ],
  "decisions": [
    {
      "pod": "prod/web",
      "direction": "ingress",
      "allowed": true,
      "policies": [
        {
          "kind": "NetworkPolicy",
          "namespace": "prod",
          "name": "np"
        }
      ],
      "tier": "default",
      "rule": {
        "direction": "ingress",
        "number": 1
      },
      "text": "allowed by NetworkPolicy prod/np ingress rule 1"
    }
  ]
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	open := Compare(s, meaning.Read(s, []model.Object{pod, isolating}), stateOf(nil, nil), Config{Node: "node-1"})
	for _, c := range open.Checks {
		if d := c.Difference; d != nil && (!d.VPPPasses || d.Lists[0].Rule != -1 || !d.Lists[0].Passes) {
			t.Errorf("%s: no list passes everything, but %+v", c.Packets, d)
		}
	}
}
