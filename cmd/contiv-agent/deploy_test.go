package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/cmd/driver"
)

// overlays are the folders of deploy that operators apply.
var overlays = []string{"standalone", "other-cni", "fanout", "calico-typha", "felix-driver", "monitoring"}

// serviceMonitor is the part of the Prometheus operator's type that deploy uses.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector
		Endpoints []struct{ Port, Interval string }
	}
}

// prometheusRule is the part of the same operator's type that deploy uses.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
}

func blank(kind string) any {
	switch kind {
	case "v1/Namespace":
		return &corev1.Namespace{}
	case "v1/ServiceAccount":
		return &corev1.ServiceAccount{}
	case "v1/ConfigMap":
		return &corev1.ConfigMap{}
	case "v1/Service":
		return &corev1.Service{}
	case "apps/v1/DaemonSet":
		return &appsv1.DaemonSet{}
	case "apps/v1/Deployment":
		return &appsv1.Deployment{}
	case "policy/v1/PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}
	case "rbac.authorization.k8s.io/v1/ClusterRole":
		return &rbacv1.ClusterRole{}
	case "rbac.authorization.k8s.io/v1/ClusterRoleBinding":
		return &rbacv1.ClusterRoleBinding{}
	case "rbac.authorization.k8s.io/v1/Role":
		return &rbacv1.Role{}
	case "rbac.authorization.k8s.io/v1/RoleBinding":
		return &rbacv1.RoleBinding{}
	case "monitoring.coreos.com/v1/ServiceMonitor":
		return &serviceMonitor{}
	case "monitoring.coreos.com/v1/PrometheusRule":
		return &prometheusRule{}
	}
	return nil
}

// objects maps "kind namespace/name" to a manifest.
type objects map[string]any

func (o objects) read(t *testing.T, path string, text []byte) (name string, document []byte) {
	t.Helper()
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta
	}
	if err := yaml.Unmarshal(text, &head); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	into := blank(head.APIVersion + "/" + head.Kind)
	if into == nil {
		t.Fatalf("%s: %s/%s is no kind that is expected", path, head.APIVersion, head.Kind)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil && !strings.Contains(string(text), "$patch: delete") { // the merged result is read again
		t.Errorf("%s: %s %s: %v", path, head.Kind, head.Metadata.Name, err)
	}
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return head.Kind + " " + head.Metadata.Namespace + "/" + head.Metadata.Name, document
}

// built returns the objects of an overlay.
func built(t *testing.T, overlay string) objects {
	t.Helper()
	out := objects{}
	for name, doc := range build(t, filepath.Join("..", "..", "deploy", overlay)) {
		var head metav1.TypeMeta
		_ = json.Unmarshal(doc, &head) // it was read before
		into := blank(head.APIVersion + "/" + head.Kind)
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			t.Errorf("%s: %s: %v", overlay, name, err)
		}
		out[name] = into
	}
	return out
}

// TestManifestsAreConsistent reads deploy as strictly as an API server, and resolves each name in it.
func TestManifestsAreConsistent(t *testing.T) {
	for _, overlay := range overlays {
		t.Run(overlay, func(t *testing.T) {
			all := built(t, overlay)
			if overlay != "monitoring" {
				vswitch, ok := all["DaemonSet contiv-system/contiv-vswitch"].(*appsv1.DaemonSet)
				if !ok {
					t.Fatalf("no DaemonSet among %v", slices.Sorted(maps.Keys(all)))
				}
				checkPod(t, all, &vswitch.Spec.Template, vswitch.Spec.Selector)
			}
			for name, o := range all {
				switch o := o.(type) {
				case *appsv1.Deployment:
					checkPod(t, all, &o.Spec.Template, o.Spec.Selector)
					if !budgeted(t, all, o.Spec.Template.Labels) {
						t.Errorf("%s: no PodDisruptionBudget", name)
					}
				case *rbacv1.ClusterRoleBinding:
					checkBinding(t, all, name, o.RoleRef, "", o.Subjects)
				case *rbacv1.RoleBinding:
					checkBinding(t, all, name, o.RoleRef, o.Namespace, o.Subjects)
				case *corev1.Service:
					if overlay != "monitoring" && !selects(all, labels.SelectorFromSet(o.Spec.Selector)) {
						t.Errorf("%s selects no object", name)
					}
				case *policyv1.PodDisruptionBudget:
					if s, err := metav1.LabelSelectorAsSelector(o.Spec.Selector); err != nil || !selects(all, s) {
						t.Errorf("%s selects no object: %v", name, err)
					}
				}
			}
		})
	}
}

func selects(all objects, s labels.Selector) bool {
	for _, o := range all {
		switch o := o.(type) {
		case *appsv1.Deployment:
			if s.Matches(labels.Set(o.Spec.Template.Labels)) {
				return true
			}
		case *appsv1.DaemonSet:
			if s.Matches(labels.Set(o.Spec.Template.Labels)) {
				return true
			}
		}
	}
	return false
}

// budgeted reports whether a PodDisruptionBudget selects pods with these labels.
func budgeted(t *testing.T, all objects, of map[string]string) bool {
	t.Helper()
	for _, o := range all {
		if o, ok := o.(*policyv1.PodDisruptionBudget); ok {
			if s, err := metav1.LabelSelectorAsSelector(o.Spec.Selector); err == nil && s.Matches(labels.Set(of)) {
				return true
			}
		}
	}
	return false
}

func checkBinding(t *testing.T, all objects, name string, ref rbacv1.RoleRef, namespace string, subjects []rbacv1.Subject) {
	t.Helper()
	if ref.Kind == "ClusterRole" {
		namespace = ""
	}
	if all[ref.Kind+" "+namespace+"/"+ref.Name] == nil && ref.Name != "calico-node" { // Calico's own
		t.Errorf("%s: no %s %s", name, ref.Kind, ref.Name)
	}
	for _, s := range subjects {
		if all[s.Kind+" "+s.Namespace+"/"+s.Name] == nil {
			t.Errorf("%s: no %s %s", name, s.Kind, s.Name)
		}
	}
}

func checkPod(t *testing.T, all objects, pod *corev1.PodTemplateSpec, selector *metav1.LabelSelector) {
	t.Helper()
	if s, err := metav1.LabelSelectorAsSelector(selector); err != nil || !s.Matches(labels.Set(pod.Labels)) {
		t.Errorf("the selector does not select its own pods: %v", err)
	}
	if all["ServiceAccount contiv-system/"+pod.Spec.ServiceAccountName] == nil {
		t.Errorf("no ServiceAccount %s", pod.Spec.ServiceAccountName)
	}
	if pod.Spec.PriorityClassName == "" || pod.Spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Error("no priority, or no seccomp profile")
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil && all["ConfigMap contiv-system/"+v.ConfigMap.Name] == nil {
			t.Errorf("no ConfigMap %s", v.ConfigMap.Name)
		}
	}
	for i := range len(pod.Spec.InitContainers) + len(pod.Spec.Containers) {
		c := &slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)[i]
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s: no volume %s", c.Name, m.Name)
			}
		}
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, needs(c)) {
			t.Errorf("%s may do more than it needs: %+v", c.Name, s)
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: resources %v", c.Name, c.Resources)
		}
		switch c.Name {
		case "vpp":
		case "driver":
			checkCommand(t, all, c, &pod.Spec)
		case "felix":
			checkProbes(t, c)
			checkFelix(t, all, c, pod.Spec.InitContainers[0])
		default:
			checkProbes(t, c)
			checkCommand(t, all, c, &pod.Spec)
		}
	}
}

// checkProbes checks the targets of probes: Felix reports its health on a separate port.
func checkProbes(t *testing.T, c *corev1.Container) {
	t.Helper()
	ports := map[string]bool{}
	for _, p := range c.Ports {
		ports[p.Name] = true
	}
	for want, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		switch {
		case probe == nil || probe.HTTPGet == nil:
			t.Errorf("%s: no probe for %s", c.Name, want)
		case c.Name == "felix" && want == "/livez":
			if probe.HTTPGet.Path != "/liveness" || probe.HTTPGet.Port.IntVal != 9099 || probe.HTTPGet.Host != "localhost" {
				t.Errorf("%s: probe %+v", c.Name, probe)
			}
		case !ports[probe.HTTPGet.Port.StrVal] || probe.HTTPGet.Path != want:
			t.Errorf("%s: probe %+v", c.Name, probe)
		}
	}
}

// checkFelix checks that Felix starts the driver of the init container, and that the driver can read its configuration.
func checkFelix(t *testing.T, all objects, c *corev1.Container, init corev1.Container) {
	t.Helper()
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	folder, program := filepath.Split(env["FELIX_DATAPLANEDRIVER"])
	mounts := map[string]string{} // place → volume
	for _, m := range c.VolumeMounts {
		mounts[m.MountPath] = m.Name
	}
	if env["FELIX_USEINTERNALDATAPLANEDRIVER"] != "false" || program != driver.Program || mounts[filepath.Clean(folder)] != init.VolumeMounts[0].Name ||
		!slices.Equal(init.Args, []string{"felix-driver", "--install=" + init.VolumeMounts[0].MountPath}) {
		t.Errorf("%s: driver %q, %v; init container: %q, %v", c.Name, env["FELIX_DATAPLANEDRIVER"], mounts, init.Args, init.VolumeMounts)
	}
	dir := t.TempDir()
	for name, text := range all["ConfigMap contiv-system/contiv-felix-driver"].(*corev1.ConfigMap).Data {
		if path := filepath.Join("/etc/contiv-agent", name); path != driver.DefaultFile || mounts[filepath.Dir(path)] != "driver-config" {
			t.Errorf("%s: no mount of %s in %v", c.Name, path, mounts)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := driver.Load(filepath.Join(dir, filepath.Base(driver.DefaultFile)), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Agent(version, slog.New(slog.DiscardHandler)); err != nil || f.Listen != fmt.Sprintf(":%d", c.Ports[0].ContainerPort) ||
		mounts[filepath.Dir(f.VPP.Socket)] != "run-vpp" {
		t.Errorf("%s: driver's configuration %+v: %v", c.Name, f, err)
	}
}

// checkCommand makes the program parse its arguments.
func checkCommand(t *testing.T, all objects, c *corev1.Container, pod *corev1.PodSpec) {
	t.Helper()
	samples := map[string]string{"api-server": "https://192.0.2.1:6443"}
	args := strings.Join(c.Args, "\n")
	for _, e := range c.Env {
		value := samples["api-server"]
		switch {
		case e.ValueFrom == nil:
			value = e.Value
		case e.ValueFrom.ConfigMapKeyRef != nil:
			ref := e.ValueFrom.ConfigMapKeyRef
			cm, ok := all["ConfigMap contiv-system/"+ref.Name].(*corev1.ConfigMap)
			has, there := "", false
			if ok {
				has, there = cm.Data[ref.Key]
			}
			if !there {
				t.Errorf("%s: ConfigMap %s has no %s", c.Name, ref.Name, ref.Key)
			}
			if has != "" {
				value = has
			}
		}
		args = strings.ReplaceAll(args, "$("+e.Name+")", value)
	}
	if strings.Contains(args, "$(") {
		t.Errorf("%s: a variable of the arguments is not in the environment: %s", c.Name, args)
	}
	cmd, rest, err := newRoot().Find(strings.Split(args, "\n"))
	if err != nil || !slices.Equal(c.Command, []string{"contiv-agent"}) {
		t.Fatalf("%s: %v %v", c.Name, c.Command, err)
	}
	if err := cmd.ParseFlags(rest); err != nil || cmd.Flags().NArg() > 0 {
		t.Fatalf("%s: %v: %v", c.Name, rest, err)
	}
	listens := map[string]bool{}
	for _, name := range []string{"listen", "metrics"} {
		if f := cmd.Flags().Lookup(name); f != nil {
			listens[f.Value.String()] = true
		}
	}
	ports := map[string]bool{}
	for _, p := range c.Ports {
		if ports[p.Name] = true; !listens[fmt.Sprintf(":%d", p.ContainerPort)] {
			t.Errorf("%s does not listen at port %d (%s), only at %v", c.Name, p.ContainerPort, p.Name, listens)
		}
	}
	for _, arg := range rest { // files must be in a volume
		if _, file, ok := strings.Cut(arg, "=/"); ok && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return strings.HasPrefix("/"+file+"/", m.MountPath+"/")
		}) {
			t.Errorf("%s: %s is in no volume of %v", c.Name, arg, pod.Volumes)
		}
	}
	if f := cmd.Flags().Lookup("cni"); f != nil && (f.Value.String() == "true") != connectsPods(c) {
		t.Errorf("%s: --cni=%s, and the environment is %v", c.Name, f.Value, c.Env)
	}
	if f := cmd.Flags().Lookup("flows-folder"); f != nil {
		checkCaptures(t, f.Value.String(), c, pod)
	}
	if connectsPods(c) {
		checkNode(t, cmd.Flags(), c, pod)
	}
}
