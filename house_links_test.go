package contivagent

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// heavy are packages that the program must not link, and their cost.
var heavy = map[string]string{
	"k8s.io/client-go/kubernetes":                "every kind of every API group, and apply configurations: 26 MB. source/kube/api has the kinds that the agent uses",
	"k8s.io/client-go/kubernetes/scheme":         "every kind of every API group",
	"k8s.io/client-go/discovery":                 "the scheme above, and the models of OpenAPI",
	"k8s.io/client-go/gentype":                   "client-go's fakes",
	"github.com/google/gnostic-models":           "the models of OpenAPI",
	"golang.org/x/net/trace":                     "pages about requests of grpc, which the build tag grpcnotrace leaves out",
	"testing":                                    "belongs to tests",
	"k8s.io/client-go/testing":                   "belongs to tests",
	"sigs.k8s.io/structured-merge-diff/v6/typed": "server-side apply on the client",
}

// TestProgramLinksNoHeavyPackages lists what the program links, as make build builds it.
func TestProgramLinksNoHeavyPackages(t *testing.T) {
	// The go command reads these files in another process. They are inputs of this test, whose results are cached, only if it reads them too.
	tree(t)
	if _, err := os.ReadFile("go.mod"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-tags", "grpcnotrace", "-deps", "./cmd/contiv-agent").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 300 {
		t.Fatalf("only %d packages", len(packages))
	}
	for _, p := range packages {
		for h, cost := range heavy {
			if p == h || strings.HasPrefix(p, h+"/") && strings.Contains(h, ".") {
				t.Errorf("the program links %s: %s", p, cost)
			}
		}
	}
}

// TestTestsImportNoClientset keeps every kind of every API group out of the tests as well: 229 packages, a third of what they would compile of others.
// source/kube/api/apitest is an API server for them, and interop/kube has tests beside the clientset.
func TestTestsImportNoClientset(t *testing.T) {
	for _, s := range tree(t) {
		if strings.HasPrefix(s.Dir(), "interop") || strings.HasPrefix(s.Dir(), "tools") {
			continue // modules beside the product
		}
		for _, imp := range imports(s) {
			for _, every := range []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/discovery", "k8s.io/client-go/applyconfigurations"} {
				if imp == every || strings.HasPrefix(imp, every+"/") {
					t.Errorf("%s imports %s, and so every kind of every API group", s.Path, imp)
				}
			}
		}
	}
}
