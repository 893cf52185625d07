package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	deploy = "../../deploy"  // the manifests
	system = "contiv-system" // their namespace
)

// manifests are objects, in the order they are written in.
type manifests []unstructured.Unstructured

func parse(t testing.TB, text string) (out manifests) {
	t.Helper()
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		o := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc+"\n"), &o.Object); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if o.Object != nil { // or there is but a comment
			out = append(out, o)
		}
	}
	return out
}

// find returns the object of that kind and name as its own type; false: there is none.
func find[T any](t testing.TB, all manifests, kind, name string) (out T, found bool) {
	t.Helper()
	for _, o := range all {
		if o.GetKind() == kind && o.GetName() == name {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &out, true); err != nil {
				t.Fatalf("%s %s: %v", kind, name, err)
			}
			return out, true
		}
	}
	return out, false
}

// folders are those of deploy that kustomize builds: all but components, which are parts of others.
func folders(t testing.TB) (out []string) {
	t.Helper()
	err := filepath.WalkDir(deploy, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "kustomization.yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if !strings.Contains(string(text), "\nkind: Component\n") {
			out = append(out, filepath.Base(filepath.Dir(path)))
		}
		return err
	})
	if err != nil || len(out) < 8 {
		t.Fatalf("folders of %s: %q (%v)", deploy, out, err)
	}
	return out
}

// kustomize builds a folder of deploy.
func kustomize(t testing.TB, folder string) manifests {
	t.Helper()
	out, err := exec.Command(built.cluster, "kubectl", "kustomize", filepath.Join(deploy, folder)).Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", folder, err, output(err))
	}
	return parse(t, string(out))
}

// output is the output of a failed program.
func output(err error) []byte {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.Stderr
	}
	return nil
}

// try runs kubectl as who may do everything.
func (c *cluster) try(args ...string) (string, error) {
	out, err := exec.Command(built.cluster, append([]string{"kubectl", "--kubeconfig", c.path("admin.kubeconfig")}, args...)...).CombinedOutput()
	return string(out), err
}

// check lets the API server judge objects without keeping them: with all defaults, admission, and no field it does not know.
func (c *cluster) check(all manifests) (string, error) {
	return c.apply(all, "--dry-run=server")
}

func (c *cluster) apply(all manifests, flags ...string) (string, error) {
	c.t.Helper()
	var text strings.Builder
	for _, o := range all {
		b, err := yaml.Marshal(o.Object)
		if err != nil {
			c.t.Fatal(err)
		}
		fmt.Fprintf(&text, "---\n%s", b)
	}
	c.write("apply.yaml", text.String())
	return c.try(append([]string{"apply", "--server-side", "--validate=strict", "-f", c.path("apply.yaml")}, flags...)...)
}

// keep creates objects or updates them.
func (c *cluster) keep(all manifests) {
	c.t.Helper()
	if out, err := c.apply(all); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
}

// namespaces makes those the manifests name.
func (c *cluster) namespaces() {
	c.t.Helper()
	c.kubectl(nil, "apply", "--server-side", "-f", filepath.Join(deploy, "base", "namespace.yaml"))
	c.kubectl(nil, "create", "namespace", "calico-system")
	c.kubectl(nil, "create", "namespace", "contiv-remove")
}

// customs creates custom types, and waits until the API server serves them.
func (c *cluster) customs(path string) {
	c.t.Helper()
	c.kubectl(nil, "apply", "--server-side", "-f", path)
	c.kubectl(nil, "wait", "--for=condition=Established", "--timeout=120s", "-f", path)
}

// pods are the templates of Pods among objects, by kind and name.
func pods(t testing.TB, all manifests) map[string]corev1.PodTemplateSpec {
	t.Helper()
	out := map[string]corev1.PodTemplateSpec{}
	for _, o := range all {
		switch o.GetKind() {
		case "DaemonSet":
			d, _ := find[appsv1.DaemonSet](t, all, "DaemonSet", o.GetName())
			out["DaemonSet "+o.GetName()] = d.Spec.Template
		case "Deployment":
			d, _ := find[appsv1.Deployment](t, all, "Deployment", o.GetName())
			out["Deployment "+o.GetName()] = d.Spec.Template
		}
	}
	return out
}

// triedRoles are those whose rights some test here takes away one by one.
var triedRoles = []string{
	"ClusterRole contiv-events", "ClusterRole contiv-fanout-keys", "ClusterRole contiv-reader", // TestRights
	"ClusterRole contiv-reporter",                                              // TestReports
	"Role contiv-agent-fanout", "Role contiv-agent-typha", "Role contiv-lease", // TestRights
	"Role contiv-removal",  // TestRemoval
	"Role contiv-reporter", // TestReports
}

// TestManifests holds every folder of deploy, and the chart, against a real API server.
func TestManifests(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.customs("testdata/monitoring.yaml")
	c.customs("testdata/policies.yaml") // for deploy/closed
	c.namespaces()
	t.Run("what is wrong is refused", func(t *testing.T) {
		good := append(kustomize(t, "standalone"), kustomize(t, "monitoring")...)
		for what, spoil := range map[string]func(manifests){
			"unknown field":  func(all manifests) { spoil(t, all, "DaemonSet", true, "spec", "template", "spec", "hostNetwrok") },
			"wrong type":     func(all manifests) { spoil(t, all, "DaemonSet", "yes", "spec", "template", "spec", "hostNetwork") },
			"custom type":    func(all manifests) { spoil(t, all, "ServiceMonitor", "x", "spec", "selektor") },
			"missing field":  func(all manifests) { spoil(t, all, "DaemonSet", nil, "spec", "selector") },
			"unknown verb":   func(all manifests) { spoil(t, all, "ClusterRole", []any{map[string]any{"verbs": []any{}}}, "rules") },
			"field of a map": func(all manifests) { spoil(t, all, "ConfigMap", map[string]any{"a": int64(1)}, "data") },
		} {
			all := make(manifests, len(good))
			for i := range good {
				all[i] = *good[i].DeepCopy()
			}
			spoil(all)
			if out, err := c.check(all); err == nil {
				t.Errorf("%s: taken:\n%s", what, out)
			}
		}
	})
	roles := map[string]bool{}
	for _, folder := range folders(t) {
		t.Run(folder, func(t *testing.T) {
			all := kustomize(t, folder)
			c.accepts(t, all)
			for _, o := range all {
				if strings.HasSuffix(o.GetKind(), "Role") {
					roles[o.GetKind()+" "+o.GetName()] = true
				}
			}
		})
	}
	t.Run("roles", func(t *testing.T) {
		if is := slices.Sorted(maps.Keys(roles)); !slices.Equal(is, triedRoles) {
			t.Errorf("roles are %q; rights are taken away, one by one, of %q", is, triedRoles)
		}
	})
	t.Run("chart", c.chartTaken)
	t.Run("chart, installed", c.chartInstalled)
	t.Run("applied", func(t *testing.T) {
		c.keep(kustomize(t, "standalone"))
		c.kubectl(nil, "-n", system, "get", "serviceaccount/contiv-agent", "daemonset/contiv-vswitch", "configmap/contiv-agent", "configmap/contiv-vpp")
		c.kubectl(nil, "get", "clusterrole/contiv-reader", "clusterrolebinding/contiv-agent")
		out := c.kubectl(nil, "auth", "can-i", "--list", "--as=system:serviceaccount:contiv-system:contiv-agent")
		if !strings.Contains(out, "endpointslices.discovery.k8s.io") {
			t.Errorf("the agent may not read EndpointSlices:\n%s", out)
		}
	})
}

// spoil changes the first object of a kind; nil: removes the field.
func spoil(t testing.TB, all manifests, kind string, value any, path ...string) {
	t.Helper()
	i := slices.IndexFunc(all, func(o unstructured.Unstructured) bool { return o.GetKind() == kind })
	if value == nil {
		unstructured.RemoveNestedField(all[i].Object, path...)
		return
	}
	if err := unstructured.SetNestedField(all[i].Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

// accepts checks that the API server takes objects, and Pods of their templates.
func (c *cluster) accepts(t *testing.T, all manifests) {
	t.Helper()
	if len(all) == 0 {
		t.Fatal("no objects")
	}
	out, err := c.check(all)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if n := strings.Count(out, "serverside-applied"); n != len(all) {
		t.Errorf("%d of %d objects judged:\n%s", n, len(all), out)
	}
	for name, template := range pods(t, all) {
		pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		pod.GenerateName = "some-"
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := c.client.CoreV1().Pods(namespaceOf(all)).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("a Pod of %s: %v", name, err)
		}
	}
}

// namespaceOf is where the Pods of objects are.
func namespaceOf(all manifests) string {
	for _, o := range all {
		if o.GetKind() == "DaemonSet" || o.GetKind() == "Deployment" {
			return o.GetNamespace()
		}
	}
	return system
}
