package convert

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// verdict is the result of one policy for one packet.
type verdict string

const (
	denies  verdict = "denied"
	passes  verdict = "passed on"          // leaves the tier, past later policies of the tier
	silent  verdict = "left to the others" // the policy does not apply, or no rule matches and the tier passes
	permits verdict = "allowed"
)

// noMore reports whether a verdict allows no more than another one, whatever other policies exist.
func (v verdict) noMore(than verdict) bool { return v == than || v == denies || than == permits }

// packet is a packet between two endpoints of a test, as one of them sees it.
type packet struct {
	inbound  bool
	src, dst *end
	protocol model.Protocol
	port     uint16
}

// end is an endpoint with its own and inherited labels, or an unknown address.
type end struct {
	name   string
	labels selector.Map
	addr   netip.Addr
	ports  []model.NamedPort
}

func world() []*end {
	pod := func(ns, name, addr string, labels ...string) *end {
		e := &end{
			name: ns + "/" + name, addr: netip.MustParseAddr(addr), labels: selector.Map{
				model.LabelNamespace: ns, model.LabelOrchestrator: "k8s", model.LabelServiceAccount: "a",
				model.PrefixNamespace + model.LabelName: ns, model.PrefixNamespace + "kubernetes.io/metadata.name": ns,
			},
			ports: []model.NamedPort{{Name: "http", Protocol: model.TCP, Port: 80}, {Name: "dns", Protocol: model.UDP, Port: 53}},
		}
		for i := 0; i < len(labels); i += 2 {
			e.labels[labels[i]] = labels[i+1]
		}
		return e
	}
	return []*end{
		pod("prod", "a", "10.1.0.1", "app", "a", "pcns.team", "a", "pcsa.role", "r", "a", "1", "b", "2", "empty", "", "tier", "front"),
		pod("prod", "x", "10.2.0.2", "app", "x", "pcns.team", "a", "pcsa.role", "r", "a", "b"),
		pod("other", "x", "10.3.0.3", "app", "x", "pcns.team", "b", "pcns.x", ""),
		pod("kube-system", "d", "fd00:1::4"),
		{name: "node", addr: netip.MustParseAddr("192.168.16.1"), labels: selector.Map{model.LabelNode: "n", "pcnode.pool": "db"}},
		{name: "host", addr: netip.MustParseAddr("192.168.16.2"), labels: selector.Map{"host": "n", "app": "x"}},
		{name: "stranger", addr: netip.MustParseAddr("11.0.0.1"), labels: nil},
	}
}

// judge evaluates policies, and caches parsed selectors.
type judge struct {
	t      *testing.T
	world  []*end
	parsed map[string]map[*end]bool // by selector text
}

// verdict evaluates one policy literally.
func (j *judge) verdict(p *model.Policy, k packet) verdict {
	subject, rules, governs := k.dst, p.InboundRules, p.Ingress
	if !k.inbound {
		subject, rules, governs = k.src, p.OutboundRules, p.Egress
	}
	if subject.labels == nil || !governs || !j.selects(p.Selector, subject) {
		return silent
	}
	for i := range rules {
		r := &rules[i]
		if r.Action == model.ActionLog || !j.matches(r, k) {
			continue
		}
		switch {
		case r.Action.Allows():
			return permits
		case r.Action.Passes():
			return passes
		}
		return denies
	}
	for _, tier := range model.BuiltinTiers() {
		if tier.Name == p.Tier && tier.DefaultAction.Passes() {
			return silent
		}
	}
	return denies
}

func (j *judge) selects(text string, e *end) bool {
	known, ok := j.parsed[text]
	if !ok {
		s, err := selector.Parse(text)
		if err != nil {
			j.t.Fatal(err)
		}
		known = map[*end]bool{}
		for _, e := range j.world {
			known[e] = s.Matches(e.labels)
		}
		j.parsed[text] = known
	}
	return known[e]
}

func (j *judge) matches(r *model.Rule, k packet) bool {
	is := func(p model.RuleProtocol) bool {
		return p.Name == strings.ToLower(k.protocol.String()) || p.Name == "" && p.Number == uint8(k.protocol)
	}
	switch {
	case r.Protocol != model.RuleProtocol{} && !is(r.Protocol), r.NotProtocol != model.RuleProtocol{} && is(r.NotProtocol),
		r.ICMP != nil, r.IPVersion == 4 && k.src.addr.Is6(), r.IPVersion == 6 && k.src.addr.Is4():
		return false
	}
	return j.end(&r.Source, k.src, k.protocol, 40000) && j.end(&r.Destination, k.dst, k.protocol, k.port)
}

func (j *judge) end(p *model.Peer, e *end, proto model.Protocol, port uint16) bool {
	in := func(list []netip.Prefix) bool {
		return slices.ContainsFunc(list, func(n netip.Prefix) bool { return n.Contains(e.addr) })
	}
	at := func(list []model.PortMatch) bool {
		return slices.ContainsFunc(list, func(m model.PortMatch) bool {
			if m.Name != "" {
				return slices.Contains(e.ports, model.NamedPort{Name: m.Name, Protocol: proto, Port: port})
			}
			return m.First <= port && port <= m.Last
		})
	}
	switch {
	case len(p.Nets) > 0 && !in(p.Nets), in(p.NotNets), len(p.Ports) > 0 && !at(p.Ports), at(p.NotPorts),
		p.Selector != "" && !j.selects(p.Selector, e), p.NotSelector != "" && j.selects(p.NotSelector, e),
		p.Service.Name != "" && e.name != "prod/a":
		return false
	}
	return true
}

// packets returns the packets between all pairs of endpoints of which at least one is subject to policies.
func (j *judge) packets() []packet {
	var out []packet
	for _, src := range j.world {
		for _, dst := range j.world {
			for _, inbound := range []bool{true, false} {
				if subject := map[bool]*end{true: dst, false: src}[inbound]; subject.labels[model.LabelOrchestrator] == "" && subject.name != "host" {
					continue
				}
				for _, p := range []struct {
					protocol model.Protocol
					port     uint16
				}{{model.TCP, 80}, {model.TCP, 94}, {model.UDP, 53}, {model.SCTP, 5}, {model.ICMP, 0}} {
					out = append(out, packet{inbound, src, dst, p.protocol, p.port})
				}
			}
		}
	}
	return out
}

// TestBrokenNeverAllowsMore breaks each part of each good policy in turn, in several ways. A refused policy then allows
// nothing that the good policy did not, whatever other policies exist.
func TestBrokenNeverAllowsMore(t *testing.T) {
	j := &judge{t: t, world: world(), parsed: map[string]map[*end]bool{}}
	universe, broken, every := j.packets(), 0, pace.Every(5)
	for _, file := range []string{"networkpolicy", "admin", "calico"} {
		a, err := txtar.ParseFile(filepath.Join("testdata/policies", file+".txtar"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			if !strings.HasSuffix(f.Name, ".yaml") {
				continue
			}
			good, err := decodePolicy(t, tree(t, f.Data))
			if good == nil || err != nil {
				continue // not a policy
			}
			before := j.all(good, universe)
			for n := 0; ; n++ {
				in := tree(t, f.Data)
				what, more := mutate(in, n)
				if !more {
					break
				}
				if n%every != 0 {
					continue
				}
				bad, err := decodePolicy(t, in)
				if err == nil {
					continue // a different meaning, not a mistake
				}
				broken++
				if bad == nil {
					t.Fatalf("%s: %s: %s: nothing is left", file, f.Name, what)
				}
				j.compare(file+": "+f.Name+": "+what, good, bad, before, universe)
			}
		}
	}
	if broken < 2000/every {
		t.Errorf("only %d broken policies", broken)
	}
}

func (j *judge) all(p *model.Policy, universe []packet) []verdict {
	out := make([]verdict, len(universe))
	for i, k := range universe {
		out[i] = j.verdict(p, k)
	}
	return out
}

func (j *judge) compare(what string, good, bad *model.Policy, before []verdict, universe []packet) {
	j.t.Helper()
	if bad.Order.Compare(good.Order) > 0 {
		j.t.Errorf("%s: it comes later", what)
	}
	for i, k := range universe {
		after := j.verdict(bad, k)
		if !after.noMore(before[i]) {
			j.t.Errorf("%s: %s to %s %s/%d inbound %v: %s, was %s", what, k.src.name, k.dst.name, k.protocol, k.port, k.inbound, after, before[i])
			return
		}
	}
}

func decodePolicy(t *testing.T, in map[string]any) (*model.Policy, error) {
	t.Helper()
	gv, err := schema.ParseGroupVersion(in["apiVersion"].(string))
	if err != nil {
		t.Fatal(err)
	}
	k, ok := KindOf(gv.Group, in["kind"].(string))
	if !ok || !k.policy() {
		return nil, nil
	}
	obj, _, err := k.Decode(in)
	p, _ := obj.(*model.Policy)
	return p, err
}

// mutate makes the nth of all possible changes to an object's spec; false if there are fewer.
func mutate(in map[string]any, n int) (what string, ok bool) {
	junk := []any{json.Number("3"), "junk junk", true, []any{}, map[string]any{}, []any{"junk"}, map[string]any{"junk": "x"}, json.Number("-70000.5")}
	var walk func(path string, v any, set func(any)) bool
	walk = func(path string, v any, set func(any)) bool {
		if n < len(junk) {
			set(junk[n])
			what = fmt.Sprintf("%s is %v", path, junk[n])
			return true
		}
		n -= len(junk)
		switch v := v.(type) {
		case map[string]any:
			if n == 0 {
				v["junk"] = "x"
				what = path + ".junk is new"
				return true
			}
			n--
			for _, k := range sortedKeys(v) {
				if walk(path+"."+k, v[k], func(x any) { v[k] = x }) {
					return true
				}
			}
		case []any:
			for i := range v {
				if walk(check.ElementPath(path, i), v[i], func(x any) { v[i] = x }) {
					return true
				}
			}
		}
		return false
	}
	spec, _ := in["spec"].(map[string]any) // replacing the whole spec would give a different policy
	for _, k := range sortedKeys(spec) {
		if ok = walk("spec."+k, spec[k], func(x any) { spec[k] = x }); ok {
			return what, true
		}
	}
	switch {
	case spec == nil:
	case n == 0:
		spec["junk"] = "x"
		return "spec.junk is new", true
	case n == 1:
		in["spec"] = junk[0]
		return "spec is a number", true
	}
	return what, false
}

// FuzzDecode converts arbitrary trees of every kind. Conversion never panics, a refused policy has a value, selectors
// parse, and equal input gives equal values.
func FuzzDecode(f *testing.F) {
	kinds := []string{
		"networking.k8s.io NetworkPolicy", "policy.networking.k8s.io AdminNetworkPolicy", "policy.networking.k8s.io BaselineAdminNetworkPolicy",
		"policy.networking.k8s.io ClusterNetworkPolicy", "projectcalico.org NetworkPolicy", "projectcalico.org GlobalNetworkPolicy",
		"projectcalico.org StagedNetworkPolicy", "projectcalico.org StagedGlobalNetworkPolicy",
		"projectcalico.org StagedKubernetesNetworkPolicy", "projectcalico.org Tier", "projectcalico.org Profile",
		"projectcalico.org NetworkSet", "crd.projectcalico.org GlobalNetworkSet", "crd.projectcalico.org HostEndpoint", " ServiceAccount",
	}
	files, err := filepath.Glob("testdata/policies/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range a.Files {
			if !strings.HasSuffix(part.Name, ".yaml") {
				continue
			}
			in := tree(f, part.Data)
			text, _ := json.Marshal(in)
			for i, k := range kinds {
				group, kind, _ := strings.Cut(k, " ")
				if kind == in["kind"] && strings.HasPrefix(fmt.Sprint(in["apiVersion"]), group) {
					f.Add(byte(i), text)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, which byte, text []byte) {
		group, kind, _ := strings.Cut(kinds[int(which)%len(kinds)], " ")
		k, ok := KindOf(group, kind)
		if !ok {
			t.Fatal(group, kind)
		}
		in := jsonTree(text)
		if in == nil {
			return
		}
		ref := k.Ref(in)
		obj, _, err := k.Decode(in)
		again, _, err2 := k.Decode(jsonTree(text))
		if fmt.Sprint(err) != fmt.Sprint(err2) || !model.Equal(obj, again) {
			t.Fatalf("converted twice: %v, %v; %v, %v", obj, err, again, err2)
		}
		if err != nil && !strings.Contains(err.Error(), ref.String()) {
			t.Fatalf("error %v does not name %v", err, ref)
		}
		if obj == nil {
			if e, ok := err.(*check.Error); k.policy() && err != nil && (!ok || !(&check.Problems{List: e.Problems}).Nameless()) {
				t.Fatalf("nothing is left of %s: %v", text, err)
			}
			return
		}
		if obj.Ref() != ref {
			t.Fatalf("Ref %v of the object, %v of the value", ref, obj.Ref())
		}
		if p, ok := obj.(*model.Policy); ok {
			parses(t, p.Selector)
			for _, r := range slices.Concat(p.InboundRules, p.OutboundRules) {
				if r.Origin == "" || r.Action == "" {
					t.Fatalf("rule %+v", r)
				}
				for _, s := range []string{r.Source.Selector, r.Source.NotSelector, r.Destination.Selector, r.Destination.NotSelector} {
					parses(t, s)
				}
			}
		}
	})
}
