package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig/etcd"
	"github.com/contiv-agent/contiv-agent/plugins/lossguard"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/quarantine"
)

const folder = "../../deploy/monitoring"

// target are labels that Prometheus adds to everything it reads from the pods of a ServiceMonitor.
var target = []string{"job", "instance", "namespace", "pod", "container", "endpoint", "service"} // read only

// metrics are the labels of each metric that is exported, by its name; plain are those that are known to be no histograms.
type metrics struct {
	labels map[string][]string
	plain  map[string]bool
}

func exported(t *testing.T) metrics {
	t.Helper()
	plain := map[string]bool{}
	v := sim.New(sim.Config{})
	t.Cleanup(v.Close)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	stored, err := etcd.New(etcd.Config{Endpoints: []string{"127.0.0.1:1"}, Label: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = agent.New(agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Dial: v.Dial}, VPPAgent: vppagent.Config{Quarantine: quarantine.New(quarantine.Config{})}, Process: config.Process{Registry: registry, Removals: lossguard.New(lossguard.Config{})}, Sources: map[string]agent.Source{"fed": agent.Fed{}},
		External: []controller.ExternalConfigSource{stored},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fanout.New(fanout.Config{Syncers: []wire.SyncerType{wire.Felix}, Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	descs := make(chan *prometheus.Desc)
	go func() { defer close(descs); registry.Describe(descs) }()
	out := map[string][]string{"up": nil}
	form := regexp.MustCompile(`fqName: "([^"]+)".*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	for d := range descs {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		out[m[1]] = append([]string{}, named(m[3], `([a-z_]+)\)?(?:,|$)`)...)
		out[m[1]] = append(out[m[1]], named(m[2], `([a-z_]+)="`)...)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetType() != dto.MetricType_HISTOGRAM {
			plain[f.GetName()] = true
		}
	}
	if len(out) < 60 {
		t.Fatalf("only %d metrics", len(out))
	}
	return metrics{out, plain}
}

// of are the labels of a metric, or of a series of a histogram.
func (h metrics) of(series string) (labels []string, there bool) {
	if labels, there = h.labels[series]; there {
		return labels, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if name, is := strings.CutSuffix(series, suffix); is && !h.plain[name] {
			labels, there = h.labels[name]
			return append(slices.Clone(labels), "le"), there
		}
	}
	return nil, false
}

// check returns the errors of an expression: names that are not exported. shown are the labels that the result needs.
func check(have metrics, expr string, shown ...string) (wrong []string) {
	plain := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$instance", ".*").Replace(expr)
	tree, err := parser.ParseExpr(plain)
	if err != nil {
		return []string{err.Error()}
	}
	known := slices.Clone(target)
	selectors := 0
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		selectors++
		of, there := have.of(s.Name)
		if !there {
			wrong = append(wrong, "no metric "+s.Name)
		}
		for _, m := range s.LabelMatchers {
			if m.Name != labels.MetricName && !slices.Contains(of, m.Name) && !slices.Contains(target, m.Name) {
				wrong = append(wrong, s.Name+" has no label "+m.Name)
			}
		}
		known = append(known, of...)
		return nil
	})
	if selectors == 0 {
		wrong = append(wrong, "it has no metric in it")
	}
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		var names []string
		switch n := n.(type) {
		case *parser.AggregateExpr:
			names = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				names = append(slices.Clone(n.VectorMatching.MatchingLabels), n.VectorMatching.Include...)
			}
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				wrong = append(wrong, "nothing in it has a label "+name)
			}
		}
		return nil
	})
	for _, name := range shown {
		if !slices.Contains(known, name) {
			wrong = append(wrong, "its result has no label "+name)
		}
		if a, is := tree.(*parser.AggregateExpr); is && a.Op != parser.TOPK && a.Without == slices.Contains(a.Grouping, name) {
			wrong = append(wrong, "it aggregates away the label "+name)
		}
	}
	return wrong
}

// named are the labels in {{…}} of a text.
func named(text, form string) (out []string) {
	for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

func TestDashboard(t *testing.T) {
	have := exported(t)
	text, err := os.ReadFile(filepath.Join(folder, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		UID, Title string
		Panels     []struct {
			ID          int
			Title, Type string
			Description string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr, LegendFormat, RefID string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: number %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" || at[0] > 23 {
					t.Fatalf("%s is on top of %q at %v", p.Title, taken[at], at)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" {
			t.Errorf("%s: nothing to show, or nothing said of it", p.Title)
		}
		for _, target := range p.Targets {
			for _, wrong := range check(have, target.Expr, named(target.LegendFormat, `\{\{ ?([a-z_]+) ?\}\}`)...) {
				t.Errorf("%s: %s: %s", p.Title, target.Expr, wrong)
			}
		}
	}
	if len(board.Panels) < 12 || board.UID == "" {
		t.Errorf("%d panels, uid %q", len(board.Panels), board.UID)
	}
}

func TestAlerts(t *testing.T) {
	have := exported(t)
	text, err := os.ReadFile(filepath.Join(folder, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		APIVersion, Kind string
		Metadata         struct{ Name, Namespace string }
		Spec             struct {
			Groups []struct {
				Name  string
				Rules []struct {
					Alert, Expr, For    string
					Labels, Annotations map[string]string
				}
			}
		}
	}
	if err := yaml.UnmarshalStrict(text, &rules); err != nil {
		t.Fatal(err)
	}
	if rules.APIVersion != "monitoring.coreos.com/v1" || rules.Kind != "PrometheusRule" || rules.Metadata.Namespace != "contiv-system" {
		t.Errorf("%s %s %+v", rules.APIVersion, rules.Kind, rules.Metadata)
	}
	seen := map[string]bool{}
	for _, g := range rules.Spec.Groups {
		for _, r := range g.Rules {
			if seen[r.Alert] || r.Alert == "" {
				t.Errorf("%q is there twice", r.Alert)
			}
			seen[r.Alert] = true
			said := fmt.Sprint(r.Annotations)
			for _, wrong := range check(have, r.Expr, named(said, `\$labels\.([a-z_]+)`)...) {
				t.Errorf("%s: %s: %s", r.Alert, r.Expr, wrong)
			}
			if _, err := time.ParseDuration(r.For); err != nil {
				t.Errorf("%s: for: %v", r.Alert, err)
			}
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s: severity %q, annotations %v", r.Alert, r.Labels["severity"], r.Annotations)
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d alerts", len(seen))
	}
}

// TestJobsAreThere: Prometheus calls a job by the Service that a ServiceMonitor selects.
func TestJobsAreThere(t *testing.T) {
	monitor, err := os.ReadFile(filepath.Join(folder, "monitor.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	jobs := 0
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range named(string(text), `job=\\?"([a-z-]+)\\?"`) {
			if jobs++; !strings.Contains(string(monitor), "kind: Service\nmetadata:\n  name: "+job+"\n") {
				t.Errorf("%s: no Service is called %s", name, job)
			}
		}
	}
	if jobs < 3 {
		t.Errorf("only %d jobs were found", jobs)
	}
}

// TestCheckFinds holds the checks themselves.
func TestCheckFinds(t *testing.T) {
	have := exported(t)
	for expr, want := range map[string]string{
		"contiv_vpp_connected ==":                  "unexpected end of input",
		"contiv_vpp_conected == 0":                 "no metric contiv_vpp_conected",
		`contiv_values_unwell{reason="x"}`:         "contiv_values_unwell has no label reason",
		"sum by (node) (contiv_policies)":          "nothing in it has a label node",
		"contiv_policies_bucket":                   "no metric contiv_policies_bucket",
		"vector(1)":                                "it has no metric in it",
		"contiv_policies / on (shelf) up":          "nothing in it has a label shelf",
		"sum by (pod) (contiv_policies)":           "it aggregates away the label instance",
		"sum without (instance) (contiv_policies)": "it aggregates away the label instance",
	} {
		wrong := check(have, expr, "instance")
		if !strings.Contains(fmt.Sprint(wrong), want) {
			t.Errorf("%s: %v, want %s", expr, wrong, want)
		}
	}
	if wrong := check(have, `histogram_quantile(0.99, sum by (le, instance) (rate(kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4"}[$__rate_interval])))`, "instance"); wrong != nil {
		t.Error(wrong)
	}
}
