package budget

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

func claim(ns, name string, age, rules int) Claim {
	return Claim{
		Ref: model.Ref{Kind: "NetworkPolicy", Namespace: ns, Name: name}, Age: Age{Created: time.Unix(int64(age), 0).UTC()}, Size: Size{Rules: rules},
	}
}

func refusals(l *Ledger) (out []string) {
	for _, n := range l.Refusals() {
		out = append(out, n.Ref.Namespace+"/"+n.Ref.Name)
	}
	return out
}

func TestOlderObjectsComeFirst(t *testing.T) {
	l := NewLedger(Limits{Rules: Limit{Object: 50, Namespace: 100, Node: 150}})
	steps := []struct {
		claim Claim
		drop  string
		want  string
	}{
		{claim: claim("a", "1", 1, 50), want: ""},
		{claim: claim("a", "big", 0, 51), want: "a/big"},
		{claim: claim("a", "2", 2, 40), want: "a/big"},
		{claim: claim("a", "4", 4, 20), want: "a/4 a/big"},                                     // 110 of the namespace
		{claim: claim("a", "5", 5, 10), want: "a/4 a/big"},                                     // fits beside the others
		{claim: claim("b", "1", 3, 50), want: "a/4 a/big"},                                     // 150 of the node
		{claim: claim("b", "2", 6, 10), want: "a/4 a/big b/2"},                                 // 160
		{claim: claim("c", "1", 7, 1), want: "a/4 a/big b/2 c/1"},                              // younger
		{claim: claim("a", "2", 2, 30), want: "a/5 a/big b/2 c/1"},                             // 4 is older than 5: 50, 30, 20 in a
		{claim: claim("a", "4", 4, 21), want: "a/4 a/big c/1"},                                 // one more than there is room for
		{drop: "a/1", want: "a/big"},                                                           // there is room for all
		{claim: claim("a", "2", 2, 40), drop: "a/big", want: ""},                               // and nothing is too big
		{claim: Claim{Ref: claim("c", "new", 0, 0).Ref, Size: Size{Rules: 50}}, want: "c/new"}, // without a timestamp it is the youngest
	}
	for i, s := range steps {
		if s.drop != "" {
			ns, name, _ := strings.Cut(s.drop, "/")
			l.Drop(claim(ns, name, 0, 0).Ref)
		}
		if s.claim.Ref.Name != "" {
			l.Claim(s.claim)
		}
		l.Settle()
		if got := strings.Join(refusals(l), " "); got != s.want {
			t.Fatalf("step %d: refused %q, want %q", i, got, s.want)
		}
	}
}

// A reason names limit and setting, and does not change when others do.
func TestReasons(t *testing.T) {
	l := NewLedger(Limits{Rules: Limit{Object: 50, Namespace: 60, Node: 70}})
	for _, c := range []Claim{claim("a", "big", 1, 51), claim("a", "1", 2, 50), claim("a", "2", 3, 11), claim("b", "1", 4, 21)} {
		l.Claim(c)
	}
	if got := l.Settle(); len(got) != 3 {
		t.Errorf("changed: %v", got)
	}
	for ref, want := range map[string]string{
		"a/big": "it asks for 51 rules of policies, and an object may have 50 (--max-policy-rules)",
		"a/2":   "it asks for 11 rules of policies, and older objects leave less of the 60 that its namespace may have (--max-policy-rules)",
		"b/1":   "it asks for 21 rules of policies, and older objects leave less of the 70 that the node has (--max-policy-rules)",
	} {
		ns, name, _ := strings.Cut(ref, "/")
		if got := l.Refused(claim(ns, name, 0, 0).Ref); got != want {
			t.Errorf("%s: %q, want %q", ref, got, want)
		}
	}
	if got := l.Settle(); got != nil {
		t.Errorf("nothing changed, and %v did", got)
	}
}

// The verdicts depend on what is claimed in the end, not on interim claims; what Settle returns is the difference; an older object is
// not refused because of a younger one.
func TestVerdictsDependOnClaimsAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Rules: {Object: 30, Namespace: 60, Node: 120}, Tables: {Namespace: 4}}
		drawn := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Claim {
			c := claim(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "ns"), rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "name"),
				rapid.IntRange(0, 5).Draw(t, "age"), rapid.IntRange(0, 35).Draw(t, "rules"))
			c.Size[Tables] = rapid.IntRange(0, 2).Draw(t, "tables")
			return c
		}), 0, 30).Draw(t, "claims")
		l, final, was := NewLedger(limits), map[model.Ref]Claim{}, map[model.Ref]bool{}
		for _, c := range drawn {
			if c.Size[Rules] == 0 {
				l.Drop(c.Ref)
				delete(final, c.Ref)
				delete(was, c.Ref)
			} else {
				l.Claim(c)
				final[c.Ref] = c
			}
			if rapid.Bool().Draw(t, "settle") {
				for _, ref := range l.Settle() {
					was[ref] = !was[ref]
				}
			}
		}
		for _, ref := range l.Settle() {
			was[ref] = !was[ref]
		}
		once := NewLedger(limits)
		for _, c := range final {
			once.Claim(c)
		}
		once.Settle()
		if a, b := refusals(l), refusals(once); !slices.Equal(a, b) {
			t.Fatalf("refused %v, at once %v", a, b)
		}
		for ref, c := range final {
			if was[ref] != (l.Refused(ref) != "") {
				t.Fatalf("%v: changed to %v, is refused %q", ref, was[ref], l.Refused(ref))
			}
			older := NewLedger(limits)
			for _, o := range final {
				if o.older(&c) <= 0 {
					older.Claim(o)
				}
			}
			older.Settle()
			if (older.Refused(ref) != "") != (l.Refused(ref) != "") {
				t.Fatalf("%v: %q, without the younger %q", ref, l.Refused(ref), older.Refused(ref))
			}
		}
	})
}

// While all is within the limits, a change costs the same whatever there is.
func TestSettleIsProportionalToTheChange(t *testing.T) {
	cost := func(n int) float64 {
		l := NewLedger(Defaults())
		for i := range n {
			l.Claim(claim(fmt.Sprint(i%10), fmt.Sprint(i), i, 2))
		}
		l.Settle()
		i := 0
		return testing.AllocsPerRun(100, func() {
			i++
			l.Claim(claim("1", "1", 1, 2+i%2))
			l.Settle()
		})
	}
	if few, many := cost(100), cost(10_000); many > few {
		t.Errorf("%v allocations among 10,000, %v among 100", many, few)
	}
}

func TestSizes(t *testing.T) {
	nets := func(n int) (out []netip.Prefix) {
		for i := range n {
			out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i)}), 32))
		}
		return out
	}
	ports := func(n int) (out []model.PortMatch) {
		for i := range n {
			out = append(out, model.PortMatch{First: uint16(2*i + 1), Last: uint16(2*i + 1)})
		}
		return out
	}
	tcp := model.RuleProtocol{Name: "tcp"}
	rules := func(n int, r model.Rule) (out []model.Rule) { return slices.Repeat([]model.Rule{r}, n) }
	for name, c := range map[string]struct {
		in   []model.Rule
		want Size
	}{
		"nothing":                  {nil, Size{}},
		"all, in both families":    {rules(1, model.Rule{}), Size{Rules: 2, Tables: 1}},
		"all of one family":        {rules(1, model.Rule{IPVersion: 4}), Size{Rules: 1, Tables: 1}},
		"ipBlocks × ports":         {rules(5000, model.Rule{Protocol: tcp, Source: model.Peer{Nets: nets(1)}, Destination: model.Peer{Ports: ports(50)}}), Size{Rules: 250_000, Tables: 32}},
		"both sides":               {rules(1, model.Rule{Protocol: tcp, Source: model.Peer{Nets: nets(10)}, Destination: model.Peer{Nets: nets(20)}}), Size{Rules: 200, Tables: 1}},
		"a few exceptions":         {rules(1, model.Rule{Protocol: tcp, Source: model.Peer{Nets: nets(1), NotNets: nets(2)}}), Size{Rules: 67, Tables: 1}},
		"many exceptions":          {rules(1, model.Rule{Protocol: tcp, Source: model.Peer{Nets: nets(1), NotNets: nets(1000)}}), Size{Rules: 33_001, Tables: 16}},
		"ports without a protocol": {rules(1, model.Rule{Destination: model.Peer{Ports: ports(5)}}), Size{Rules: 40, Tables: 1}},
		"runs":                     {slices.Concat(rules(2, model.Rule{}), rules(1, model.Rule{Action: model.ActionDeny}), rules(1, model.Rule{})), Size{Rules: 8, Tables: 3}},
		"not a protocol":           {rules(1, model.Rule{NotProtocol: tcp, Source: model.Peer{Nets: nets(2)}}), Size{Rules: 516, Tables: 8}},
		"not a protocol, many":     {rules(1, model.Rule{NotProtocol: tcp, Source: model.Peer{Nets: nets(1000)}}), Size{Rules: 258_000, Tables: 32}},
		"beyond numbers":           {rules(9, model.Rule{Source: model.Peer{Nets: nets(60000)}, Destination: model.Peer{Nets: nets(60000)}}), Size{Rules: mostCount, Tables: 32}},
	} {
		c.want[Memory] = min(3*len(c.in)+c.want[Rules], mostCount)
		for _, p := range []*model.Policy{{InboundRules: c.in}, {OutboundRules: c.in}} {
			for _, wholeBytes := range []bool{false, true} { // all of it is about IPv4
				if got := OfPolicy(p, wholeBytes); got != c.want {
					t.Errorf("%s, %d rules of egress: %v, want %v", name, len(p.OutboundRules), got, c.want)
				}
			}
		}
	}
}

// Lists are few, and each holds a bearable number of rules. More rules never become fewer lists.
func TestLists(t *testing.T) {
	for rules, want := range map[int]int{
		0: 1, 1: 1, firstSplit: 1, firstSplit + 1: 4, 512: 4, 513: 8, 10_000: 8, fewLists * longList: 8, fewLists*longList + 1: 16,
		2*fewLists*longList + 1: 32, mostCount: 32,
	} {
		if got := Lists(rules); got != want {
			t.Errorf("%d rules: %d lists, want %d", rules, got, want)
		}
	}
	for rules, last := 0, 1; rules < 200_000; rules++ {
		n := Lists(rules)
		if n < last {
			t.Fatalf("%d rules are %d lists, one rule less are %d", rules, n, last)
		}
		last = n
	}
}

func TestSizesOfMessages(t *testing.T) {
	ipv4 := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("10.1.%d.%d/32", i/256, i%256))
		}
		return out
	}
	sets := map[string]*Members{
		"hundred": new(Members).Add(ipv4(100), 1), "ten": new(Members).Add(ipv4(10), 1), "dual": new(Members).Add([]string{"10.0.0.1/32", "fd00::1", "fd00::/61", "fd00::/9"}, 1),
		"gone": new(Members).Add([]string{"fd00::/61", "10.0.0.1"}, 1).Add([]string{"fd00::/61"}, -1), "services": new(Members).Add([]string{"fd00::1,tcp:80", "10.0.0.1,udp:53"}, 1),
	}
	members := func(set string) *Members { return sets[set] }
	port := []*felix.PortRange{{First: 1, Last: 1}, {First: 5, Last: 9}}
	for name, c := range map[string]struct {
		rule  *felix.Rule
		want  int
		bytes int // where VPP compares IPv6 prefixes by whole bytes; 0: the same
	}{
		"members × ports":  {&felix.Rule{Protocol: &felix.Protocol{}, SrcIpSetIds: []string{"hundred"}, DstPorts: port}, 200, 0},
		"in both":          {&felix.Rule{SrcIpSetIds: []string{"hundred", "ten"}}, 10, 0},
		"in none":          {&felix.Rule{SrcIpSetIds: []string{"empty"}}, 1, 0},
		"two sides":        {&felix.Rule{SrcIpSetIds: []string{"hundred"}, DstIpSetIds: []string{"ten"}}, 1000, 0},
		"not in":           {&felix.Rule{NotSrcIpSetIds: []string{"hundred"}}, 1 + 24 + 100*8 + 100 + 1, 0}, // and all of IPv6
		"not in, IPv6":     {&felix.Rule{IpVersion: 6, NotSrcNet: []string{"fd00::1/128", "10.0.0.1/32"}}, 1 + 128 + 2, 1 + 16*255 + 2},
		"one family":       {&felix.Rule{IpVersion: 4, SrcIpSetIds: []string{"dual"}}, 1, 0},
		"both families":    {&felix.Rule{SrcIpSetIds: []string{"dual"}}, 4, 1 + 1 + 8 + 128},
		"few are left":     {&felix.Rule{SrcIpSetIds: []string{"gone"}}, 1, 0},
		"prefixes":         {&felix.Rule{SrcNet: []string{"fd00::/61", "fd00::/64", "10.0.0.0/9"}}, 3, 10},
		"on both sides":    {&felix.Rule{SrcNet: []string{"fd00::/61"}, DstNet: []string{"fd00::/62", "10.0.0.0/8"}}, 1, 32},
		"ranges in ranges": {&felix.Rule{SrcNet: []string{"10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16"}, NotSrcNet: []string{"10.1.1.0/24"}}, 3 + 2*24 + 1, 0},
		"endpoints":        {&felix.Rule{Protocol: &felix.Protocol{}, DstIpPortSetIds: []string{"services"}}, 2, 0},
		"named ports":      {&felix.Rule{Protocol: &felix.Protocol{}, DstNamedPortIpSetIds: []string{"ten"}, SrcIpSetIds: []string{"hundred"}}, 1000, 0},
		"a Service":        {&felix.Rule{Protocol: &felix.Protocol{}, DstIpPortSetIds: []string{"ten"}}, 11, 0},
	} {
		for _, p := range []*felix.Policy{{InboundRules: []*felix.Rule{c.rule}}, {OutboundRules: []*felix.Rule{c.rule}}} {
			if got := OfMessage(p, members, false)[Rules]; got != c.want {
				t.Errorf("%s: %d rules, want %d", name, got, c.want)
			}
			if got, want := OfMessage(p, members, true)[Rules], max(c.want, c.bytes); got != want {
				t.Errorf("%s, by whole bytes: %d rules, want %d", name, got, want)
			}
		}
	}
}

func TestSizesOfServices(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	s := &model.Service{
		Type: model.LoadBalancer, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		LoadBalancerIPs: []model.LoadBalancerIP{{Addr: netip.MustParseAddr("198.18.0.1")}}, Ports: []model.ServicePort{{Port: 80}, {Port: 443, NodePort: 30000}},
	}
	parts := []*model.EndpointSlice{{Endpoints: make([]model.Endpoint, 10)}, {Endpoints: make([]model.Endpoint, 5)}}
	if got := OfService(s, parts); got != (Size{Backends: 90, Memory: 45}) {
		t.Errorf("two addresses, two ports, one node port, 15 endpoints: %v", got)
	}
	for range 4000 {
		s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(rng.IntN(200)), byte(rng.IntN(256)), byte(rng.IntN(256)), byte(rng.IntN(256))}), 32))
	}
	if got := OfService(s, nil)[RangeRules]; got < 100_000 || got > 200_000 {
		t.Errorf("4,000 random addresses and two ports: %d rules", got)
	}
	s.LoadBalancerSourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/9"), netip.MustParsePrefix("10.128.0.0/9"), netip.MustParsePrefix("10.0.0.0/24")}
	if got := OfService(s, nil)[RangeRules]; got != 16 {
		t.Errorf("10.0.0.0/8 in parts: %d rules, want 8 for each port", got)
	}
}

func TestLimits(t *testing.T) {
	for _, l := range Defaults() {
		if got, err := ParseLimit(l.String()); err != nil || got != l {
			t.Errorf("%s: %v, %v", l, got, err)
		}
	}
	for _, text := range []string{"", "1", "1/2", "1/2/3/4", "a/b/c", "-1/2/3", "1/2/9999999999"} {
		if _, err := ParseLimit(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	d := Defaults()
	if got := d.Within(0); got != d {
		t.Errorf("without a bound: %v", got)
	}
	for memory, want := range map[int64]Limit{
		1 << 30: {1 << 17, 832 << 9, 832 << 10}, 128 << 20: {1 << 17, 32 << 9, 32 << 10},
	} {
		got := d.Within(memory)
		if got[Memory] != want {
			t.Errorf("%d bytes: %s, want %s", memory, got[Memory], want)
		}
		if got[Memory] = d[Memory]; got != d {
			t.Errorf("%d bytes: %v", memory, got)
		}
	}
	low := Limits{Memory: {Object: 300, Namespace: 30, Node: 3000}}
	if got := low.Within(1 << 30); got != low {
		t.Errorf("lower ones: %v", got)
	}
	if got := low.Of(1, 3)[Memory]; got != (Limit{300, 10, 1000}) {
		t.Errorf("a third: %v", got)
	}
}
