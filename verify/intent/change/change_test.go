package change

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/intent"
)

func load(t testing.TB, docs ...string) []model.Object {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(docs, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := manifest.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []model.Object
	for _, ch := range changes {
		if ch.Err != nil {
			t.Fatal(ch.Err)
		}
		list = append(list, ch.Object)
	}
	return list
}

func pod(name, labels, addr string) string {
	ns, name, _ := strings.Cut(name, "/")
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, labels: {%s}}, spec: {nodeName: node-1, containers: [{name: c}]}, status: {podIP: %s, podIPs: [{ip: %s}]}}", name, ns, labels, addr, addr)
}

func calico(spec string) string {
	return "{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: p}, spec: " + spec + "}"
}

// lines are the rows of a report.
func lines(r *Report) (out []string) {
	for what, rows := range map[string][]Row{"opened": r.Opened, "closed": r.Closed} {
		for _, row := range rows {
			var ends []string
			for _, groups := range [][]Group{row.From, row.To} {
				var names []string
				for _, g := range groups {
					names = append(names, strings.TrimSpace(g.Name+strings.Repeat("*", len(g.Pods))+" "+g.Only))
				}
				ends = append(ends, strings.Join(names, " + "))
			}
			out = append(out, fmt.Sprintf("%s: %s: %s", what, strings.Join(ends, " -> "), row.Ports))
		}
	}
	slices.Sort(out)
	return out
}

func TestRows(t *testing.T) {
	base := []string{
		pod("shop/web-0", "app: web", "10.1.1.2"), pod("shop/web-1", "app: web", "10.1.1.3"), pod("shop/db-0", "app: db", "10.1.1.4"),
		pod("dev/client", "app: client", "10.1.1.5"),
	}
	deny := calico("{selector: app == 'db', ingress: []}")
	for _, tc := range []struct {
		what     string
		old, new []string
		want     []string
	}{
		{"nothing", base, base, nil},
		{"nothing, other addresses", base, []string{
			pod("shop/web-0", "app: web", "10.9.1.2"), pod("shop/web-1", "app: web", "10.9.1.3"), pod("shop/db-0", "app: db", "10.9.1.4"), pod("dev/client", "app: client", "10.9.1.5"),
		}, nil},
		{"nothing, other names of a Deployment's pods", []string{pod("shop/web-1a-x", "app: web, pod-template-hash: 1a", "10.1.1.2"), deny}, []string{pod("shop/web-2b-y", "app: web, pod-template-hash: 2b", "10.1.1.3"), deny}, nil},
		{"nothing, more pods of a workload", append(slices.Clone(base), deny), append(slices.Clone(base), deny, pod("shop/web-2", "app: web", "10.1.1.9")), nil},
		{"a policy isolates", base, append(slices.Clone(base), deny), []string{"closed: ns:dev + shop/web** + outside -> shop/db-0: all protocols"}},
		{"a policy isolates a namespace", base, append(slices.Clone(base), calico("{namespaceSelector: \"projectcalico.org/name == 'shop'\", ingress: []}")), []string{
			"closed: every pod + outside -> ns:shop: all protocols", // db-0 to itself is in no row, and has another
		}},
		{"a policy isolates all pods of a workload", base, append(slices.Clone(base), calico("{selector: app == 'web', ingress: []}")), []string{
			"closed: every pod + outside -> shop/web**: all protocols",
		}},
		{"a policy isolates the only workload", base[:2], append(slices.Clone(base[:2]), calico("{selector: app == 'web', ingress: [{action: Allow, source: {nets: [0.0.0.0/0], notSelector: app == 'web'}}]}")), []string{
			"closed: ns:shop -> ns:shop: all protocols",
		}},
		{"a policy opens ports", append(slices.Clone(base), deny), append(slices.Clone(base), calico("{selector: app == 'db', ingress: [{action: Allow, protocol: TCP, source: {selector: app == 'web'}, destination: {ports: [5432, '8000:8080']}}]}")), []string{
			"opened: shop/web** -> shop/db-0: TCP 5432, 8000-8080",
		}},
		{"a policy opens to one pod of two", append(slices.Clone(base), calico("{selector: app == 'db', ingress: []}")), append(slices.Clone(base), calico("{selector: app == 'db', ingress: [{action: Allow, source: {nets: [10.1.1.3/32]}}]}")), []string{
			"opened: shop/web-1 -> shop/db-0: all protocols",
		}},
		{"a policy opens source ports", append(slices.Clone(base), deny), append(slices.Clone(base), calico("{selector: app == 'db', ingress: [{action: Allow, protocol: UDP, source: {selector: app == 'web', ports: [5]}, destination: {ports: [53]}}]}")), []string{
			"opened: shop/web** -> shop/db-0: UDP 53 from port 5",
		}},
		{"a policy opens messages", append(slices.Clone(base), deny), append(slices.Clone(base), calico("{selector: app == 'db', ingress: [{action: Allow, protocol: ICMP, source: {selector: app == 'web'}, icmp: {type: 8}}, {action: Allow, protocol: ICMP, source: {selector: app == 'web'}, icmp: {type: 13, code: 0}}]}")), []string{
			"opened: shop/web** -> shop/db-0: ICMP type 8; ICMP type 13 code 0",
		}},
		{"a policy opens a protocol", append(slices.Clone(base), deny), append(slices.Clone(base), calico("{selector: app == 'db', ingress: [{action: Allow, protocol: 47, source: {selector: app == 'web'}}]}")), []string{
			"opened: shop/web** -> shop/db-0: protocols 47",
		}},
		{"a policy opens all but TCP", append(slices.Clone(base), deny), append(slices.Clone(base), calico("{selector: app == 'db', ingress: [{action: Allow, notProtocol: TCP, source: {selector: app == 'web'}}]}")), []string{
			"opened: shop/web** -> shop/db-0: UDP; SCTP; ICMP; other protocols",
		}},
		{"a policy opens to addresses", append(slices.Clone(base), deny), append(slices.Clone(base), calico("{selector: app == 'db', ingress: [{action: Allow, source: {nets: [198.51.100.0/24]}}]}")), []string{
			"opened: 198.51.100.0/24 -> shop/db-0: all protocols",
		}},
		{"a policy opens to all other addresses", append(slices.Clone(base), deny), append(slices.Clone(base), calico("{selector: app == 'db', ingress: [{action: Allow, source: {nets: [0.0.0.0/0], notNets: [198.51.100.0/24, 10.0.0.0/8]}}]}")), []string{
			"opened: outside except 10.0.0.0-10.1.1.1, 10.1.1.6-10.255.255.255, 198.51.100.0/24 -> shop/db-0: all protocols",
		}},
		{"a new workload beside a policy", []string{pod("shop/db-0", "app: db", "10.1.1.4"), deny}, []string{pod("shop/db-0", "app: db", "10.1.1.4"), deny, pod("dev/job", "a: b", "10.1.1.7")}, []string{
			"opened: ns:dev new -> outside: all protocols", "opened: ns:shop + outside -> ns:dev new: all protocols",
		}},
		{"a workload is removed", []string{pod("shop/db-0", "app: db", "10.1.1.4"), deny, pod("dev/job", "a: b", "10.1.1.7")}, []string{pod("shop/db-0", "app: db", "10.1.1.4"), deny}, []string{
			"closed: ns:dev removed -> outside: all protocols", "closed: ns:shop + outside -> ns:dev removed: all protocols",
		}},
		{"a new pod of a workload has another label", []string{pod("shop/db-0", "app: db", "10.1.1.4"), pod("dev/a-0", "x: z", "10.1.1.7"), deny}, []string{pod("shop/db-0", "app: db", "10.1.1.4"), pod("dev/a-0", "x: z", "10.1.1.7"), pod("dev/a-1", "app: db", "10.1.1.8"), deny}, []string{
			"closed: dev/a-0 + ns:shop + outside -> dev/a-1 new: all protocols", // and not to a-0, which may receive as before
		}},
	} {
		r := Compare(load(t, tc.old...), load(t, tc.new...))
		if d := cmp.Diff(tc.want, lines(r)); d != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.what, d)
		}
		for _, row := range slices.Concat(r.Opened, r.Closed) {
			if onBothSides := !strings.Contains(fmt.Sprint(row.From, row.To), "new") && !strings.Contains(fmt.Sprint(row.From, row.To), "removed"); onBothSides && (row.Before == nil || row.After == nil) {
				t.Errorf("%s: %v has no example", tc.what, row)
			}
			if got := protocolsText(row.Protocols); got != row.Ports {
				t.Errorf("%s: the fields say %q, the text %q", tc.what, got, row.Ports)
			}
			for _, e := range []*intent.Example{row.Before, row.After} {
				if e != nil && e.From == e.To {
					t.Errorf("%s: %s is from a pod to itself", tc.what, e.Packet)
				}
			}
		}
	}
}

// protocolsText makes the text of a row's protocols from their fields.
func protocolsText(list []Protocol) string {
	spans := func(list []space.Span) string {
		var texts []string
		for _, s := range list {
			texts = append(texts, spanText(s))
		}
		return strings.Join(texts, ", ")
	}
	var texts, numbers []string
	for _, p := range list {
		text := p.Name
		switch {
		case p.Name == "any" || p.Name == "other":
			text = strings.Replace(p.Name, "any", "all", 1) + " protocols"
		case p.Name[0] < 'A':
			numbers = append(numbers, p.Name)
			continue
		case p.Types != nil:
			text += " type " + spanText(*p.Types) + strings.TrimSuffix(" code "+spans(p.Codes), " code 0-255")
		case len(p.Ports) > 0:
			text += " " + spans(p.Ports)
		}
		if p.FromPorts != nil {
			text += " from port " + spanText(*p.FromPorts)
		}
		texts = append(texts, text)
	}
	if len(numbers) > 0 {
		texts = append(texts, "protocols "+strings.Join(numbers, ", "))
	}
	return strings.Join(texts, "; ")
}

func TestExamplesSayWhoDecides(t *testing.T) {
	base := []string{pod("shop/web-0", "app: web", "10.1.1.2"), pod("shop/db-0", "app: db", "10.1.1.4")}
	moved := []string{pod("shop/web-0", "app: web", "10.1.1.2"), pod("shop/db-0", "app: db", "10.1.1.9")}
	r := Compare(load(t, base...), load(t, append(moved, calico("{selector: app == 'db', ingress: [{action: Allow, protocol: UDP}]}"))...))
	if len(r.Closed) != 1 || len(r.Opened) != 0 || r.Same() {
		t.Fatalf("%+v", r)
	}
	before, after := r.Closed[0].Before, r.Closed[0].After
	if before.Packet != "tcp 10.1.1.2:40000 -> 10.1.1.4:80 SYN" || after.Packet != "tcp 10.1.1.2:40000 -> 10.1.1.9:80 SYN" {
		t.Errorf("packets %s and %s", before.Packet, after.Packet)
	}
	if before.Ingress != "allowed: no policy selects shop/db-0 for ingress" || !strings.HasPrefix(after.Ingress, "denied: no rule of GlobalNetworkPolicy p allows it") {
		t.Errorf("%s; %s", before.Ingress, after.Ingress)
	}
	d := after.Decisions
	if len(d) != 2 || d[0].Pod != "shop/web-0" || d[0].Direction != "egress" || d[0].Text != after.Egress || d[1].Pod != "shop/db-0" || d[1].Text != after.Ingress ||
		d[1].Allowed || len(d[1].Policies) != 1 || d[1].Policies[0].String() != "GlobalNetworkPolicy p" || after.Header.Destination.String() != "10.1.1.9" {
		t.Errorf("fields %+v of %s", d, after.Packet)
	}
}

func TestPoliciesThatCannotBeEvaluatedAreNotCompared(t *testing.T) {
	base := []string{pod("shop/web-0", "app: web", "10.1.1.2"), pod("shop/db-0", "app: db", "10.1.1.4"), calico("{selector: app == 'db', ingress: [{action: Allow}]}")}
	after := load(t, base...)
	for _, o := range after {
		if p, ok := o.(*model.Policy); ok {
			p.InboundRules[0].HTTP = &model.HTTPMatch{Methods: []string{"GET"}}
			p.InboundRules[0].Protocol = model.RuleProtocol{Name: "tcp"}
		}
	}
	r := Compare(load(t, base...), after)
	if len(r.Opened)+len(r.Closed) > 0 || len(r.Unknown) != 1 || len(r.Doubts) != 1 || r.Doubts[0].Pod != "shop/db-0" || r.Unknown[0] != r.Doubts[0].Pod+": "+r.Doubts[0].Why || !strings.HasPrefix(r.Unknown[0], "shop/db-0: ") || r.Same() {
		t.Errorf("%+v", r)
	}
}

func TestFamiliesOfOneRowAreJoined(t *testing.T) {
	const two = "{apiVersion: v1, kind: Pod, metadata: {name: NAME, namespace: shop, labels: {app: NAME}}, spec: {nodeName: node-1, containers: [{name: c}]}, status: {podIP: 10.1.1.IP, podIPs: [{ip: 10.1.1.IP}, {ip: 'fd00::IP'}]}}"
	at := func(name, ip string) string { return strings.NewReplacer("NAME", name, "IP", ip).Replace(two) }
	r := Compare(load(t, at("a", "2"), at("b", "3")), load(t, at("a", "2"), at("b", "3"), calico("{selector: app == 'b', ingress: [{action: Allow, protocol: TCP}]}")))
	if len(r.Closed) != 2 { // the names of ICMP are of one family
		t.Errorf("%v", lines(r))
	}
	r = Compare(load(t, at("a", "2"), at("b", "3")), load(t, at("a", "2"), at("b", "3"), calico("{selector: app == 'b', ingress: [{action: Deny, protocol: TCP}, {action: Allow}]}")))
	if len(r.Closed) != 1 || !slices.Equal(r.Closed[0].Families, []string{"IPv4", "IPv6"}) {
		t.Errorf("%v", r.Closed)
	}
}
