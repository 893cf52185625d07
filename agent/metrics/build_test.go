package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/test/samples"
)

// The metric of the build is one series, with the version.
func TestBuild(t *testing.T) {
	for version, want := range map[string]string{"v1.2.3": `version="v1.2.3"`, "": `version="unknown"`} {
		r := prometheus.NewRegistry()
		r.MustRegister(Build(version))
		got := samples.Read(t, r)
		if len(got) != 1 {
			t.Errorf("%v", got)
		}
		for name, v := range got {
			if v != 1 || !strings.HasPrefix(name, `contiv_build_info{goversion="go`) || !strings.Contains(name, want) {
				t.Errorf("%s %v", name, v)
			}
		}
	}
}
