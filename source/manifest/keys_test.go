package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/event"
)

// With Config.Keys a folder is also emitted as keys of Calico's datastore. A refused policy isolates its pods there, too.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{Paths: []string{dir}, Keys: true}
	told := func() (out []string) {
		s := New(cfg)
		if err := s.Run(t.Context(), func(e event.Event) {
			if u, ok := e.(*event.Update); ok {
				for _, c := range u.Changes {
					for _, kv := range c.Keys {
						out = append(out, kv.Key+" "+string(kv.Value))
					}
					if c.Err != nil {
						out = append(out, c.Err.Error()[strings.LastIndex(c.Err.Error(), "/")+1:])
					}
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct{ text, want string }{
		{`{apiVersion: v1, kind: Namespace, metadata: {name: prod}}`, `
/calico/v1/policy/profile/kns.prod/labels {"pcns.kubernetes.io/metadata.name":"prod","pcns.projectcalico.org/name":"prod"}
/calico/v1/policy/profile/kns.prod/rules {"inbound_rules":[{"action":"allow"}],"outbound_rules":[{"action":"allow"}]}
/calico/resources/v3/projectcalico.org/profiles/kns.prod {"kind":"Profile","apiVersion":"projectcalico.org/v3","metadata":{"name":"kns.prod","creationTimestamp":null},"spec":{"ingress":[{"action":"Allow","source":{},"destination":{}}],"egress":[{"action":"Allow","source":{},"destination":{}}],"labelsToApply":{"pcns.kubernetes.io/metadata.name":"prod","pcns.projectcalico.org/name":"prod"}}}`},
		{`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web}, spec: {podSelector: {}, egress: [{}]}}`, `
/calico/v1/policy/tier/default/policy/default%2fknp.default.web {"namespace":"default","order":1000,"outbound_rules":[{"action":"allow"}],"selector":"(projectcalico.org/orchestrator == 'k8s') \u0026\u0026 projectcalico.org/namespace == 'default'","types":["ingress","egress"]}`},
		{`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web}, spec: {podSelector: {matchLabels: [x]}, ingress: [{}]}}`, `
/calico/v1/policy/tier/default/policy/default%2fknp.default.web {"namespace":"default","order":1000,"selector":"(projectcalico.org/orchestrator == 'k8s') \u0026\u0026 projectcalico.org/namespace == 'default'","types":["ingress"]}
web: spec.podSelector.matchLabels: must be a mapping, not a list`},
		{`{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: p}, spec: {cidr: 10.65.0.0/16, vxlanMode: Always}}`, `
/calico/v1/ipam/v4/pool/10.65.0.0-16 {"cidr":"10.65.0.0/16","ipip":"","ipip_mode":"","vxlan_mode":"always","masquerade":false,"ipam":true,"disabled":false,"disableBGPExport":false,"assignment_mode":"Automatic"}`},
		{`{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: p}, spec: {cidr: x}}`, "\na.yaml:1: IPPool p: spec.cidr: must be a range (\"x\")"},
		{`{apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: sec}, spec: {order: x}}`, `
/calico/v1/policy/tier/sec/metadata {"order":-1.7976931348623157e+308,"defaultAction":"Deny"}
` + `a.yaml:1: Tier sec: spec.order: must be a number`},
	} {
		write(c.text)
		got := "\n" + strings.Join(told(), "\n")
		if i := strings.Index(got, "must be"); i > 0 && strings.Contains(c.want, "must be") {
			got, c.want = got[:i], c.want[:strings.Index(c.want, "must be")]
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s\n%s", c.text, d)
		}
	}
	cfg.Keys = false
	if got := told(); len(got) != 1 { // the error of the last one
		t.Errorf("keys nobody asked for: %q", got)
	}
}
