package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// TestSite builds the site of this tree. Every page is in the navigation's reach, every link of it leads to a file, and every fragment to an
// element of that file.
func TestSite(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := build(root, out); err != nil {
		t.Fatal(err)
	}
	ids, links := make(map[string]map[string]bool), make(map[string][]string)
	if err := filepath.WalkDir(out, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(p) != ".html" {
			return err
		}
		ids[p], links[p] = parse(t, p)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	reached := make(map[string]bool)
	var checked int
	for page, all := range links {
		for _, l := range all {
			if regexp.MustCompile(`^[a-z]+:`).MatchString(l) {
				continue
			}
			checked++
			name, fragment, _ := strings.Cut(l, "#")
			target := page
			if name != "" {
				target = filepath.Join(filepath.Dir(page), filepath.FromSlash(name))
			}
			reached[target] = true
			if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: link to %s leads to nothing", page, l)
			}
			if known, ok := ids[target]; ok && fragment != "" && !known[fragment] {
				t.Errorf("%s: link to %s: no such part", page, l)
			}
		}
	}
	for page := range links {
		if !reached[page] {
			t.Errorf("%s: no page links to it", page)
		}
	}
	if len(links) < 50 || checked < 1000 {
		t.Errorf("only %d pages and %d links", len(links), checked)
	}
}

// parse returns the identifiers and the links of a page.
func parse(t *testing.T, page string) (ids map[string]bool, links []string) {
	t.Helper()
	f, err := os.Open(page)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := html.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	ids = make(map[string]bool)
	for n := range doc.Descendants() {
		for _, a := range n.Attr {
			switch {
			case a.Key == "id":
				ids[a.Val] = true
			case n.Data == "a" && a.Key == "href", n.Data == "img" && a.Key == "src":
				links = append(links, a.Val)
			}
		}
	}
	return ids, links
}

// TestDeadLinkFails: a page that links to a file that does not exist makes no site.
func TestDeadLinkFails(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"README.md": "# Home\n", "docs/README.md": "# Index\n\n## Start\n\n* [README](../README.md)\n", "docs/a.md": "# A\n\n[gone](gone.md)\n", "docs/adr/0001.md": "# One\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := build(root, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "docs/a.md: link to gone.md") {
		t.Errorf("got %v, want an error about gone.md", err)
	}
}
