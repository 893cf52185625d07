package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// customization is the part of kustomization.yaml that deploy uses.
type customization struct {
	APIVersion         string   `json:"apiVersion"`
	Kind               string   `json:"kind"`
	Namespace          string   `json:"namespace"`
	Resources          []string `json:"resources"`
	Components         []string `json:"components"`
	Patches            []struct{ Path string }
	ConfigMapGenerator []struct {
		Name  string
		Files []string
	} `json:"configMapGenerator"`
	GeneratorOptions struct {
		DisableNameSuffixHash bool `json:"disableNameSuffixHash"`
	} `json:"generatorOptions"`
}

func documents(t *testing.T, path string) (out [][]byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "---\n") {
		if strings.TrimSpace(doc) != "" {
			out = append(out, []byte(doc))
		}
	}
	return out
}

// readCustomization reads the kustomization.yaml of a folder.
func readCustomization(t *testing.T, dir, kind string) (c customization) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil || c.Kind != kind {
		t.Fatalf("%s: %s, want a %s: %v", dir, c.Kind, kind, err)
	}
	return c
}

// build does for a folder of deploy what kustomize does: documents by name, as JSON.
func build(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	c := readCustomization(t, dir, "Kustomization")
	out := map[string][]byte{}
	add := func(name string, doc []byte) {
		if out[name] != nil {
			t.Errorf("%s: %s is there twice", dir, name)
		}
		out[name] = doc
	}
	for _, r := range c.Resources {
		path := filepath.Join(dir, r)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			for name, doc := range build(t, path) {
				add(name, doc)
			}
			continue
		}
		for _, doc := range documents(t, path) {
			name, doc := objects{}.read(t, path, doc)
			add(name, doc)
		}
	}
	for _, g := range c.ConfigMapGenerator {
		cm := corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{}}
		cm.Name, cm.Namespace = g.Name, c.Namespace
		for _, f := range g.Files {
			content, err := os.ReadFile(filepath.Join(dir, f))
			if err != nil {
				t.Fatal(err)
			}
			cm.Data[f] = string(content)
		}
		doc, err := json.Marshal(cm)
		if err != nil || !c.GeneratorOptions.DisableNameSuffixHash {
			t.Fatalf("%s: %s gets another name (%v)", dir, g.Name, err)
		}
		add("ConfigMap "+c.Namespace+"/"+g.Name, doc)
	}
	for _, component := range c.Components {
		dir := filepath.Join(dir, component)
		part := readCustomization(t, dir, "Component")
		for _, r := range part.Resources {
			for _, doc := range documents(t, filepath.Join(dir, r)) {
				name, doc := objects{}.read(t, r, doc)
				add(name, doc)
			}
		}
		part.patch(t, dir, out)
	}
	c.patch(t, dir, out)
	return out
}

// patch applies the patches of a folder.
func (c *customization) patch(t *testing.T, dir string, out map[string][]byte) {
	t.Helper()
	for _, p := range c.Patches {
		for _, patch := range documents(t, filepath.Join(dir, p.Path)) {
			name, patch := objects{}.read(t, p.Path, patch)
			was := out[name]
			if was == nil {
				t.Fatalf("%s: %s patches %s, which is not there", dir, p.Path, name)
			}
			kind, _, _ := strings.Cut(name, " ")
			schema := map[string]any{"DaemonSet": appsv1.DaemonSet{}, "ConfigMap": corev1.ConfigMap{}}[kind]
			var err error
			if out[name], err = strategicpatch.StrategicMergePatch(was, patch, schema); err != nil {
				t.Fatalf("%s: %s: %v", dir, p.Path, err)
			}
		}
	}
}

// order sorts lists of named things, because a patch may put its items first or last.
func (o objects) order() {
	for _, object := range o {
		if d, ok := object.(*appsv1.DaemonSet); ok {
			pod := &d.Spec.Template.Spec
			slices.SortFunc(pod.Containers, func(a, b corev1.Container) int { return strings.Compare(a.Name, b.Name) })
			slices.SortFunc(pod.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
			for _, c := range pod.Containers {
				slices.SortFunc(c.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
				slices.SortFunc(c.VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
			}
		}
	}
}

// TestKustomizeBuildsTheSame compares this test's build of the folders with kubectl's kustomize, if kubectl exists.
func TestKustomizeBuildsTheSame(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("needs kubectl, for its kustomize")
	}
	for _, overlay := range overlays {
		out, err := exec.Command(kubectl, "kustomize", filepath.Join("..", "..", "deploy", overlay)).Output()
		if err != nil {
			t.Fatalf("%s: %v", overlay, err)
		}
		theirs := objects{}
		for doc := range strings.SplitSeq(string(out), "\n---\n") {
			name, _ := objects{}.read(t, overlay, []byte(doc))
			var head metav1.TypeMeta
			_ = yaml.Unmarshal([]byte(doc), &head) // it was read before
			theirs[name] = blank(head.APIVersion + "/" + head.Kind)
			_ = yaml.UnmarshalStrict([]byte(doc), theirs[name])
		}
		ours := built(t, overlay)
		ours.order()
		theirs.order()
		if !reflect.DeepEqual(ours, theirs) {
			t.Errorf("%s (- ours, + kustomize):\n%s", overlay, cmp.Diff(ours, theirs))
		}
	}
}
