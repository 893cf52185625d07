package contivagent

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestChartHasCopies: the chart has no symbolic link, about which helm warns at each install, and its files/ are those of the other folders of deploy/.
func TestChartHasCopies(t *testing.T) {
	const chart = "deploy/helm/contiv-agent"
	script, err := os.ReadFile("tools/chart.sh")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z.-]+) ([a-z-]+/[a-z.-]+)$`).FindAllStringSubmatch(string(script), -1) {
		sources[filepath.Join(chart, "files", m[1])] = filepath.Join("deploy", m[2])
	}
	err = filepath.WalkDir(chart, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			t.Errorf("%s is no regular file", path)
		}
		if filepath.Dir(path) != filepath.Join(chart, "files") {
			return nil
		}
		ours, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		theirs, err := os.ReadFile(sources[path])
		if err != nil || !bytes.Equal(ours, theirs) {
			t.Errorf("%s differs from %s: run make chart (%v)", path, sources[path], err)
		}
		delete(sources, path)
		return nil
	})
	if err != nil || len(sources) > 0 {
		t.Errorf("%v; not in the chart: %v", err, sources)
	}
}
