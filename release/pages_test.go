package release

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/cmd/buildinfo"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestVersionsPage: the page about versions says what the program, the chart and go.mod say, and names the files of a release.
func TestVersionsPage(t *testing.T) {
	text := page(t, "docs/versions.md")
	kubernetes := regexp.MustCompile(`kubeVersion: ">=(\d+\.\d+)\.`).FindStringSubmatch(page(t, "deploy/helm/contiv-agent/Chart.yaml"))
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(page(t, "go.mod"))
	if kubernetes == nil || language == nil {
		t.Fatal("no kubeVersion, or no version of Go")
	}
	for _, row := range []string{"| VPP | " + buildinfo.Of("").VPP + " |", "| Kubernetes | " + kubernetes[1] + " and later ", "| Go, to build it | " + language[1] + " |"} {
		if !strings.Contains(text, row) {
			t.Errorf("docs/versions.md does not say %q", row)
		}
	}
	dir, revision := smallCommit(t)
	for name := range filesOf(t, smallRelease(t, dir, revision)) {
		if strings.HasSuffix(name, ".cdx.json") || strings.HasSuffix(name, "_arm64.tar.gz") {
			continue // and so on
		}
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/versions.md does not name %s", name)
		}
	}
}

// TestChangelog: the newest section is for changes that no release has, and every other is named as make release wants it.
func TestChangelog(t *testing.T) {
	sections := regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(page(t, "CHANGELOG.md"), -1)
	for i, s := range sections {
		if i == 0 && s[1] == "Unreleased" {
			continue
		}
		version, rest, _ := strings.Cut(s[1], " ")
		if !semver.MatchString(version) || !regexp.MustCompile(`^\(\d{4}-\d\d-\d\d\)$`).MatchString(rest) {
			t.Errorf("CHANGELOG.md: section %q", s[1])
		}
	}
	if len(sections) == 0 {
		t.Error("CHANGELOG.md has no sections")
	}
}

// TestImageIsThatOfTheDockerfile: both ways to the image have the same names in it.
func TestImageIsThatOfTheDockerfile(t *testing.T) {
	text := page(t, "deploy/Dockerfile")
	c := Config{Version: "v1.2.3"}
	i := c.image("amd64", []program{{name: agentProgram}, {name: cniProgram}})
	for _, f := range i.Files {
		words := "-o /out/" + strings.TrimPrefix(f.Path, "usr/local/bin/") + " "
		if f.Link != "" {
			words = "ln -s " + f.Link + " /out/" + strings.TrimPrefix(f.Path, "usr/local/bin/")
		} else if file, ok := strings.CutPrefix(f.Path, "usr/share/sbom/"); ok {
			words = "> /sbom/" + file
		}
		if !strings.Contains(text, words) {
			t.Errorf("deploy/Dockerfile has no %q", words)
		}
	}
	if n := strings.Count(text, "/out/") - 2; n != len(i.Files)-1 { // COPY, and the program that writes the bill
		t.Errorf("deploy/Dockerfile makes %d programs and links, the image has %d", n, len(i.Files)-1)
	}
	if !strings.Contains(text, `ENTRYPOINT ["`+i.Entrypoint[0]+`"]`) || !strings.Contains(text, "ENV "+i.Env[0]) {
		t.Error("another entrypoint or environment")
	}
}
