package contivagent

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The page for contributors names files that exist, and no more of them than it promises.
func TestContributingNamesFiles(t *testing.T) {
	page, err := os.ReadFile("docs/contributing.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(page), "\n## ")[1:]
	if len(sections) != 5 {
		t.Errorf("%d tasks, want 5", len(sections))
	}
	for _, s := range sections {
		title, _, _ := strings.Cut(s, "\n")
		promised := regexp.MustCompile(`At most (\d+) files`).FindStringSubmatch(s)
		if promised == nil {
			t.Errorf("%s: no number of files", title)
			continue
		}
		most, _ := strconv.Atoi(promised[1])
		n := 0
		for _, line := range strings.Split(s, "\n") {
			if !strings.HasPrefix(line, "- ") {
				continue
			}
			names, _, _ := strings.Cut(line, ":")
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(names, -1) {
				if strings.HasPrefix(m[1], "make ") {
					continue
				}
				n++
				if _, err := os.Stat(filepath.FromSlash(m[1])); err != nil {
					t.Errorf("%s: %v", title, err)
				}
			}
		}
		if n == 0 || n > most {
			t.Errorf("%s: names %d files, at most %d", title, n, most)
		}
	}
}
