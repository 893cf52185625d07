package agent

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/plugins/extconfig/etcd"
)

// catcher is a registerer that only records the names.
type catcher struct {
	prometheus.Registerer
	names map[string]bool
}

func (c *catcher) Register(m prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 10)
	m.Describe(descs)
	close(descs)
	for d := range descs {
		c.names[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	return nil
}

// TestPagesNameMetricsThatExist checks that the metrics in the manual pages of plugins and renderers exist.
func TestPagesNameMetricsThatExist(t *testing.T) {
	have := &catcher{names: map[string]bool{}}
	stored, err := etcd.New(etcd.Config{Endpoints: []string{"127.0.0.1:1"}, Label: "node-1"})
	if err == nil {
		err = errors.Join(newMetrics().register(have), have.Register(stored))
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
				if named++; !have.names[string(m[1])] {
					t.Errorf("%s: no such metric: %s", page, m[1])
				}
			}
		}
	}
	if named == 0 {
		t.Error("the pages name no metric at all")
	}
}
