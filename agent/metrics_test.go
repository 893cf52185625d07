package agent

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig/etcd"
	"github.com/contiv-agent/contiv-agent/plugins/lossguard"
	"github.com/contiv-agent/contiv-agent/test/samples"
)

// TestPagesNameMetricsThatExist checks that the metrics in the manual pages of plugins and renderers exist.
func TestPagesNameMetricsThatExist(t *testing.T) {
	have := samples.Names{}
	stored, err := etcd.New(etcd.Config{Endpoints: []string{"127.0.0.1:1"}, Label: "node-1"})
	if err == nil {
		err = errors.Join(newMeters(nil).register(have), have.Register(stored), have.Register(cni.New(cni.Config{}).Metrics()), lossguard.New(lossguard.Config{}).Register(have))
	}
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, pattern := range []string{"../plugins/*/README.md", "../renderer/*/README.md"} {
		pages, _ := filepath.Glob(pattern)
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile("`((?:contiv|kubeproxy)_[a-z_]+)`").FindAllSubmatch(text, -1) {
				if named++; !have[string(m[1])] {
					t.Errorf("%s: no such metric: %s", page, m[1])
				}
			}
		}
	}
	if named == 0 {
		t.Error("the pages name no metric at all")
	}
}
