package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const chart = deploy + "/helm/contiv-agent"

// helm builds the real one, unless the user's cache has it, and returns its path.
var helm = sync.OnceValues(func() (string, error) {
	cache, err := cached()
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join("helm", "go.sum"))
	if err != nil {
		return "", err
	}
	file := filepath.Join(filepath.Dir(cache), fmt.Sprintf("helm-%x", sha256.Sum256(sums))[:21])
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	return file, goBuild(context.Background(), os.Stdout, "helm", file, "helm.sh/helm/v3/cmd/helm", "-ldflags=-s -w",
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly -buildvcs=false -trimpath", "CGO_ENABLED=0")
})

// helming runs helm on nobody's files but the chart's and the test's.
func helming(t testing.TB, args ...string) (string, error) {
	t.Helper()
	path, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	cmd, home := exec.Command(path, args...), t.TempDir()
	cmd.Env = []string{"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("helm %q: %w\n%s\n%s", args, err, output(err), out)
	}
	return string(out), err
}

// render is what the chart makes with these values, in a namespace.
func render(t testing.TB, namespace, values string) (manifests, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := helming(t, "template", "some-release", chart, "--namespace", namespace, "--kube-version", version, "--values", file)
	if err != nil {
		return nil, err
	}
	return parse(t, out), nil
}

// byName are objects by what they are called, in a form in which those that mean the same are equal.
func byName(t testing.TB, all manifests) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, o := range all {
		name := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if out[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		out[name] = normal(o.Object)
	}
	return out
}

// normal orders what has names, by name, and reads texts that are YAML.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if out[key] = normal(value); strings.HasSuffix(key, ".yaml") {
				var text any
				if yaml.Unmarshal([]byte(fmt.Sprint(value)), &text) == nil {
					out[key] = normal(text)
				}
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = normal(v[i])
		}
		if slices.ContainsFunc(out, func(v any) bool { return nameOf(v) == "" }) {
			return out // the order may mean something
		}
		slices.SortFunc(out, func(a, b any) int { return cmp.Compare(nameOf(a), nameOf(b)) })
		return out
	}
	return v
}

// nameOf is what an item of a list is called; "": it has no name.
func nameOf(v any) string {
	m, _ := v.(map[string]any)
	name, _ := m["name"].(string)
	if name == "" {
		name, _ = m["mountPath"].(string)
	}
	return name
}

// TestChart holds the chart against the folders: it makes the same objects, in any namespace, and an API server takes them.
func TestChart(t *testing.T) {
	t.Parallel()
	t.Run("lint", func(t *testing.T) {
		for _, mode := range []string{"standalone", "fanout", "calico-typha", "felix-driver"} {
			if out, err := helming(t, "lint", "--strict", chart, "--kube-version", version, "--set", "mode="+mode); err != nil || !strings.Contains(out, "0 chart(s) failed") {
				t.Errorf("%s: %v\n%s", mode, err, out)
			}
		}
	})
	for folder, values := range map[string]string{
		"standalone": "mode: standalone", "other-cni": "mode: standalone\ncni: {enabled: false}", "fanout": "mode: fanout", "calico-typha": "mode: calico-typha",
		"felix-driver": "mode: felix-driver",
	} {
		t.Run(folder, func(t *testing.T) {
			theirs, err := render(t, system, values+"\ncreateNamespace: true\nmonitoring: true\nclosed: true\n")
			if err != nil {
				t.Fatal(err)
			}
			ours, is := byName(t, slices.Concat(kustomize(t, folder), kustomize(t, "monitoring"), kustomize(t, "closed"))), byName(t, theirs)
			for name := range ours {
				if !reflect.DeepEqual(ours[name], is[name]) {
					t.Errorf("%s (- kustomize, + chart):\n%s", name, diff.Diff(ours[name], is[name]))
				}
			}
			for name := range is {
				if ours[name] == nil {
					t.Errorf("%s is the chart's alone", name)
				}
			}
		})
	}
	t.Run("values are checked", refusedValues)
}

// refusedValues are those the chart does not know, or cannot do anything with.
func refusedValues(t *testing.T) {
	for values, why := range map[string]string{
		"mode: felix":                             "mode",
		"agnet: {}":                               "agnet",
		"agent: {extraArgs: --no-snat}":           "extraArgs",
		"agent: {hostAddress: tap0}":              "hostAddress",
		"cni: {confDir: net.d}":                   "confDir",
		"cni: {enable: false}":                    "enable",
		"images: {agent: {repository: ''}}":       "repository",
		"images: {agent: {digest: v1}}":           "digest",
		"fanout: {replicas: 0}":                   "replicas",
		"apiServer: 192.0.2.1":                    "apiServer",
		"typha: {service: calico-typha}":          "service",
		"vpp: {resources: {request: {cpu: 1}}}":   "request",
		"vswitch: {tolerations: {operator: any}}": "tolerations",
	} {
		if _, err := render(t, system, values); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// everyValue is a chart with nothing as it is by default.
const everyValue = `
images:
  agent: {repository: registry.example.com/agent, tag: v1.2.3, pullPolicy: Always}
  vpp: {repository: registry.example.com/vpp, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", pullPolicy: IfNotPresent}
  felix: {repository: registry.example.com/node, tag: v3.31.0, pullPolicy: Never}
imagePullSecrets: [{name: pull}]
apiServer: https://192.0.2.10:6443
vswitch:
  priorityClassName: system-cluster-critical
  nodeSelector: {vpp: "true"}
  tolerations: [{key: vpp, operator: Exists}]
  podAnnotations: {note: "42"}
  maxUnavailable: 10%
vpp: {startupConf: "unix { nodaemon }\n", capabilities: [NET_ADMIN], resources: {requests: {cpu: 2}}}
cni: {confDir: /var/lib/other/net.d, binDir: /var/lib/other/bin, netnsDir: /run/other/netns}
agent: {hostAddress: 169.254.1.2, extraArgs: [--no-snat, --nat-sessions=100000], resources: {limits: {memory: 3Gi}}}
fanout: {replicas: 3, extraArgs: [--max-connections=7], resources: {limits: {memory: 3Gi}}}
typha: {service: kube-system/typha, cn: some-typha, serviceCIDR: 10.7.0.0/16}
felix: {driver: {vpp: {socket: /run/vpp/other.sock}}, extraEnv: [{name: FELIX_IPV6SUPPORT, value: "false"}], resources: {limits: {memory: 3Gi}}}
monitoring: true
`

// chartTaken lets an API server judge what the chart makes with other values than its own.
func (c *cluster) chartTaken(t *testing.T) {
	c.kubectl(nil, "create", "namespace", "vswitch")
	for mode, wants := range map[string][]string{
		"standalone":   {`"path":"/var/lib/other/net.d"`, `"path":"/var/lib/other/bin"`, `"mountPath":"/run/other/netns"`, `"path":"/run/other/netns"`, "registry.example.com/agent:v1.2.3", "--nat-sessions=100000", `"--host-address=$(HOST_ADDRESS)"`, `"host-address":"169.254.1.2"`},
		"fanout":       {`"--max-connections=7"`, `"--typha-service=vswitch/contiv-fanout"`, `"replicas":3`},
		"calico-typha": {`"--typha-service=kube-system/typha"`, `"--typha-cn=some-typha"`, `"service-cidr":"10.7.0.0/16"`, `"namespace":"kube-system"`},
		"felix-driver": {"registry.example.com/node:v3.31.0", "FELIX_IPV6SUPPORT", "socket: /run/vpp/other.sock"},
	} {
		all, err := render(t, "vswitch", everyValue+"mode: "+mode+"\n")
		if err != nil {
			t.Fatal(err)
		}
		c.accepts(t, all)
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range append(wants, "registry.example.com/vpp@sha256:0123", `"imagePullSecrets":[{"name":"pull"}]`, "https://192.0.2.10:6443",
			`"vpp":"true"`, `"note":"42"`, `"maxUnavailable":"10%"`, `"startup.conf":"unix { nodaemon }`, `"add":["NET_ADMIN"]`) {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %s in\n%s", mode, want, text)
			}
		}
		if strings.Contains(string(text), system) {
			t.Errorf("%s: something is in %s:\n%s", mode, system, text)
		}
	}
	all, err := render(t, "vswitch", "vpp: {privileged: true}")
	if err != nil {
		t.Fatal(err)
	}
	c.accepts(t, all)
}

// chartInstalled lets helm itself install, upgrade and remove a release.
func (c *cluster) chartInstalled(t *testing.T) {
	do := func(args ...string) {
		t.Helper()
		if out, err := helming(t, append(args, "--kubeconfig", c.path("admin.kubeconfig"), "--namespace", "vswitch")...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	do("install", "vswitch", chart)
	c.kubectl(nil, "get", "clusterrolebinding/contiv-agent")
	do("upgrade", "vswitch", chart, "--set", "mode=fanout")
	c.kubectl(nil, "-n", "vswitch", "get", "deployment/contiv-fanout")
	if out, err := c.try("get", "clusterrolebinding/contiv-agent"); err == nil {
		t.Errorf("the agent behind fan-out servers may still read everything:\n%s", out)
	}
	do("uninstall", "vswitch")
	if out := c.kubectl(nil, "get", "clusterrole,clusterrolebinding", "-o", "name"); strings.Contains(out, "contiv-") {
		t.Errorf("roles are left:\n%s", out)
	}
}
