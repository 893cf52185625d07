package scenario

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/plugins/service/health"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/cnat"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
)

const servicesPage = "../../docs/services.md"

// table returns the rows of the table with these headings on the page about services, each as its cells.
func table(t *testing.T, headings ...string) [][]string {
	t.Helper()
	page, err := os.ReadFile(servicesPage)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "\n| "+strings.Join(headings, " | ")+" |\n")
	if !found {
		t.Fatalf("%s: no table %v", servicesPage, headings)
	}
	var out [][]string
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | "); len(cells) == len(headings) {
			out = append(out, cells)
		} else if !strings.HasPrefix(line, "|---") {
			t.Fatalf("%s: %d cells, want %d: %s", servicesPage, len(cells), len(headings), line)
		}
	}
	return out
}

var quoted = regexp.MustCompile("`([^`]*)`")

// quotes returns the texts in backticks, sorted.
func quotes(cell string) []string {
	out := []string{}
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return out
}

// Every feature names a story, and the story exists.
func TestFeaturesHaveStories(t *testing.T) {
	rows := table(t, "feature", "nat44 (IPv4)", "cnat (IPv4, IPv6)", "stories")
	if len(rows) < 25 {
		t.Fatalf("only %d features", len(rows))
	}
	for _, row := range rows {
		stories := quotes(row[3])
		if len(stories) == 0 {
			t.Errorf("%s: no story", row[0])
		}
		for _, s := range stories {
			if _, err := os.Stat(filepath.Join("testdata", s+".txtar")); err != nil {
				t.Errorf("%s: %v", row[0], err)
			}
		}
	}
}

// tableWeb is default/web with a cluster IP and a TCP port 80 named p, and an endpoint on another node; the caller chooses
// the families.
func tableWeb(change func(*renderer.ContivService)) *renderer.ContivService {
	svc := renderer.NewContivService()
	svc.ID = model.ServiceID{Namespace: "default", Name: "web"}
	svc.ClusterIPs.Add(net.ParseIP("10.96.0.10"))
	svc.Ports["p"] = &renderer.ServicePort{Protocol: renderer.TCP, Port: 80}
	svc.Backends["p"] = []*renderer.ServiceBackend{{IP: net.ParseIP("10.1.2.2"), Port: 8080}}
	change(svc)
	return svc
}

// only6 reduces a Service to IPv6.
func only6(svc *renderer.ContivService) {
	svc.ClusterIPs = renderer.IPAddressesOf(netip.MustParseAddr("fd00:96::10"))
	svc.Backends["p"] = []*renderer.ServiceBackend{{IP: net.ParseIP("fd00:2::2"), Port: 8080}}
}

// officeOnly gives a Service a load-balancer IP for some clients.
func officeOnly(svc *renderer.ContivService) {
	svc.ExternalIPs = renderer.IPAddressesOf(netip.MustParseAddr("198.51.100.99"))
	svc.LoadBalancerIPs, svc.LoadBalancerSourceRanges = svc.ExternalIPs, []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}
}

// endpoints gives a Service that many.
func endpoints(n int) func(*renderer.ContivService) {
	return func(s *renderer.ContivService) {
		s.Backends["p"] = nil
		for i := range n {
			s.Backends["p"] = append(s.Backends["p"], &renderer.ServiceBackend{IP: net.IPv4(10, 1, byte(i/200), byte(i%200+1)), Port: 8080})
		}
	}
}

// situations are those of the page's table of remarks. Each renderer is the only one, unless beside says that they share the
// families; bare is a node without free addresses for the NAT loopback.
var situations = map[string]struct {
	change       func(*renderer.ContivService)
	beside, bare bool
	lists        string // why the agent does not own access lists
}{
	"the annotation names another renderer": {change: func(s *renderer.ContivService) { s.Renderer = "another" }},
	"IPv6, and nat44 is alone":              {change: only6},
	"SCTP":                                  {change: func(s *renderer.ContivService) { s.Ports["p"].Protocol = renderer.SCTP }},
	"SCTP in IPv6": {beside: true, change: func(s *renderer.ContivService) {
		only6(s)
		s.Ports["p"].Protocol = renderer.SCTP
	}},
	"a protocol that no Service has":      {change: func(s *renderer.ContivService) { s.Ports["p"].Protocol = 47 }},
	"`loadBalancerSourceRanges`":          {change: officeOnly},
	"the same, with `--no-policies`":      {change: officeOnly, lists: nat44.PoliciesOff},
	"the same, with `--dataplane-driver`": {change: officeOnly, lists: nat44.ListsOfDriver},
	"the same, beyond `--max-source-range-rules`": {change: func(s *renderer.ContivService) {
		officeOnly(s)
		s.SourceRangesRefused = "it asks for 9000 rules of source ranges, and an object may have 8192 (--max-source-range-rules)"
	}},
	"`internalTrafficPolicy: Local`, none here": {change: func(s *renderer.ContivService) { s.InternalTrafficPolicy = renderer.NodeLocal }},
	"`externalTrafficPolicy: Local`, none here": {change: func(s *renderer.ContivService) {
		s.Ports["p"].NodePort, s.TrafficPolicy = 30080, renderer.NodeLocal
	}},
	"`sessionAffinity: ClientIP`": {change: func(s *renderer.ContivService) { s.SessionAffinityTimeout = 10800 }},
	"the same, with an external IP": {change: func(s *renderer.ContivService) {
		s.SessionAffinityTimeout = 10800
		s.ExternalIPs.Add(net.ParseIP("198.51.100.7"))
	}},
	"`sessionAffinity: ClientIP`, and an endpoint terminates": {change: func(s *renderer.ContivService) {
		s.SessionAffinityTimeout = 10800
		s.Other.Draining = map[string][]*renderer.ServiceBackend{"p": {{IP: net.ParseIP("10.9.9.9"), Port: 8080}}}
	}},
	"more than 84 endpoints, of which some terminate": {change: func(s *renderer.ContivService) {
		endpoints(89)(s)
		s.Other.Draining = map[string][]*renderer.ServiceBackend{"p": {{IP: net.ParseIP("10.9.9.9"), Port: 8080}}}
	}},
	"more than 253 endpoints":                    {change: endpoints(300)},
	"more than 8,192 endpoints":                  {change: endpoints(9000)},
	"no NAT loopback, or no address of the node": {bare: true, change: func(*renderer.ContivService) {}},
	"the same, with external addresses":          {bare: true, change: func(s *renderer.ContivService) { s.ExternalIPs.Add(net.ParseIP("198.51.100.7")) }},
}

// remarks returns the reasons of notes, each once, sorted.
func remarks(notes []model.Note) []string {
	out := []string{}
	for _, n := range notes {
		out = append(out, n.Reason)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// The page has the exact texts of the renderers, and all of them.
func TestRemarksOfRenderers(t *testing.T) {
	var said []string
	rows := table(t, "when", "nat44", "cnat")
	if len(rows) != len(situations) {
		t.Errorf("%d rows, %d situations", len(rows), len(situations))
	}
	for _, row := range rows {
		s, known := situations[row[0]]
		if !known {
			t.Errorf("%s: no such situation", row[0])
			continue
		}
		node := renderer.NodeState{
			Name: "node-1", IPs: []netip.Addr{netip.MustParseAddr("192.168.16.1"), netip.MustParseAddr("fd00:16::1")},
			Loopback: netip.MustParseAddr("10.1.1.254"), ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		}
		if s.bare {
			node.IPs, node.Loopback = nil, netip.Addr{}
		}
		svc, nodeIPs := tableWeb(s.change), renderer.IPAddressesOf(append(slices.Clone(node.IPs), netip.MustParseAddr("192.168.16.2"))...)
		_, one := nat44.Service(svc, node, nodeIPs, nat44.Config{Families: renderer.Families{IPv4: true, IPv6: !s.beside}, NoSourceRanges: s.lists})
		_, two := cnat.Service(svc, node, nodeIPs, cnat.Config{Families: renderer.Families{IPv4: !s.beside, IPv6: true}})
		for i, notes := range [][]model.Note{one, two} {
			got := remarks(notes)
			said = append(said, got...)
			if diff := cmp.Diff(quotes(row[i+1]), got); diff != "" {
				t.Errorf("%s, %s: -page +said\n%s", row[0], []string{"nat44", "cnat"}[i], diff)
			}
		}
	}
	allSaid(t, said, "../../renderer/nat44", "../../renderer/cnat", "../../renderer/adapter")
}

// The same for the texts of the processor.
func TestRemarksOfTheProcessor(t *testing.T) {
	ports := []model.ServicePort{{Name: "p", Protocol: model.TCP, Port: 80}}
	addr := netip.MustParseAddr
	first := &model.Service{ID: model.ServiceID{Namespace: "default", Name: "first"}, ClusterIPs: []netip.Addr{addr("10.96.0.10")}, Ports: ports}
	second := &model.Service{ID: model.ServiceID{Namespace: "default", Name: "second"}, ClusterIPs: []netip.Addr{addr("10.96.0.5")}, Ports: ports}
	prey := &model.Pod{ID: model.PodID{Namespace: "default", Name: "prey"}, IPs: []netip.Addr{addr("10.1.1.9")}}
	node := &model.Node{Name: "node-1", InternalIPs: []netip.Addr{addr("192.168.16.1")}, PodCIDRs: ranges("10.1.1.0/24")}
	external := func(ip string) func(*model.Service) {
		return func(s *model.Service) { s.ExternalIPs = []netip.Addr{addr(ip)} }
	}
	balanced := func(ip string) func(*model.Service) {
		return func(s *model.Service) {
			s.Type, s.LoadBalancerIPs = model.LoadBalancer, []model.LoadBalancerIP{{Addr: addr(ip)}}
		}
	}
	of := func(cfg service.Config, change func(*model.Service)) []string {
		p := service.New(cfg)
		web := &model.Service{ID: model.ServiceID{Namespace: "default", Name: "web"}, ClusterIPs: []netip.Addr{addr("10.96.0.11")}, Ports: ports}
		change(web)
		for _, obj := range []model.Object{first, second, prey, node, web} {
			p.Apply(event.Change{Ref: obj.Ref(), Object: obj})
		}
		p.Located(&event.Located{Uplink: "eth0", UplinkIPs: ranges("192.168.16.1/24")})
		_ = p.Flush()
		var notes []model.Note
		for _, s := range p.Services() {
			notes = append(notes, s.Notes...)
		}
		return remarks(notes)
	}
	got := map[string][]string{
		"more backends than `--max-service-backends`": of(service.Config{Limits: budget.Limits{budget.Backends: {Object: 50}}}, func(s *model.Service) {
			s.ClusterIPs = slices.Repeat(s.ClusterIPs, 90)
		}),
		"two ports of one name":                                of(service.Config{}, func(s *model.Service) { s.Ports = append(slices.Clone(ports), model.ServicePort{Name: "p", Port: 81}) }),
		"`--no-external-ips`":                                  of(service.Config{NoExternalIPs: true}, func(s *model.Service) { s.ExternalIPs = []netip.Addr{addr("198.51.100.7")} }),
		"an external IP outside `--external-ip-cidrs`":         of(service.Config{ExternalIPCIDRs: ranges("203.0.113.0/24")}, external("198.51.100.7")),
		"an external IP in a range of cluster IPs":             of(service.Config{ServiceCIDRs: ranges("10.96.0.0/12")}, external("10.96.0.99")),
		"an external IP in a range of pods":                    of(service.Config{NodeName: "node-1"}, external("10.1.1.99")),
		"an external IP in a range of nodes":                   of(service.Config{}, external("192.168.16.99")),
		"an address of a node":                                 of(service.Config{}, balanced("192.168.16.1")),
		"an address of the API server":                         of(service.Config{APIServers: []netip.Addr{addr("198.51.100.1")}}, balanced("198.51.100.1")),
		"another Service's cluster IP":                         of(service.Config{}, balanced("10.96.0.5")),
		"a pod's address":                                      of(service.Config{}, balanced("10.1.1.9")),
		"an external IP of a family the Service does not have": of(service.Config{}, func(s *model.Service) { s.ExternalIPs = []netip.Addr{addr("2001:db8::7")} }),
		"an address, port and protocol another Service has":    of(service.Config{}, func(s *model.Service) { s.ClusterIPs = first.ClusterIPs }),
		"a health-check port another Service has":              askedTwice(t),
		"a health-check port that cannot be opened":            refusedPort(t),
	}
	var said []string
	rows := table(t, "when", "remark")
	if len(rows) != len(got) {
		t.Errorf("%d rows, want %d", len(rows), len(got))
	}
	for _, row := range rows {
		said = append(said, got[row[0]]...)
		if diff := cmp.Diff(quotes(row[1]), got[row[0]]); diff != "" {
			t.Errorf("%s: -page +said\n%s", row[0], diff)
		}
	}
	allSaid(t, said, "../../plugins/service/build.go", "../../plugins/service/processor.go")
}

func ranges(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }

// checkedService is a Service with a health check at port 32000.
func checkedService(name string) *renderer.ContivService {
	svc := renderer.NewContivService()
	svc.ID, svc.HealthCheck.NodePort = model.ServiceID{Namespace: "default", Name: name}, 32000
	return svc
}

func askedTwice(*testing.T) []string {
	s := health.New(health.Config{})
	s.ServiceChanged(nil, checkedService("first"))
	s.ServiceChanged(nil, checkedService("web"))
	return s.Problems()[checkedService("web").ID]
}

func refusedPort(t *testing.T) []string {
	t.Helper()
	s := health.New(health.Config{Listen: func(context.Context, string) (net.Listener, error) { return nil, errors.New("taken") }})
	s.ServiceChanged(nil, checkedService("web"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for deadline := time.Now().Add(20 * time.Second); len(s.Problems()) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return s.Problems()[checkedService("web").ID]
}

// allSaid checks that the tests produced every note in the code.
func allSaid(t *testing.T, said []string, sources ...string) {
	t.Helper()
	found := 0
	for _, source := range sources {
		files := []string{source}
		if !strings.HasSuffix(source, ".go") {
			files, _ = filepath.Glob(source + "/*.go")
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, format := range formats(t, file) {
				found++
				if pattern := patternOf(format); !slices.ContainsFunc(said, pattern.MatchString) {
					t.Errorf("%s can say %q, and %s has no such line", file, format, servicesPage)
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d notes found in %v: are they written otherwise?", found, sources)
	}
}

// formats returns the texts of notes in a file: a string after true or false in a call, or the first one of refuse.
func formats(t *testing.T, file string) []string {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(tree, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		says := fmt.Sprint(call.Fun) == "refuse"
		for _, arg := range call.Args {
			if text := literal(arg); says && text != "" {
				out = append(out, text)
				break
			}
			flag, isName := arg.(*ast.Ident)
			says = isName && (flag.Name == "true" || flag.Name == "false")
		}
		return true
	})
	return out
}

// literal returns the value of a string expression, which may have several parts; "": it is not a string.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if e.Kind != token.STRING || err != nil {
			return ""
		}
		return text
	case *ast.BinaryExpr:
		return literal(e.X) + literal(e.Y)
	}
	return ""
}

var verbs = regexp.MustCompile(`%[a-z]`)

func patternOf(format string) *regexp.Regexp {
	var parts []string
	for _, part := range verbs.Split(format, -1) {
		parts = append(parts, regexp.QuoteMeta(part))
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
}
