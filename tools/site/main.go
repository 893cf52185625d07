// Package main makes a site of the Markdown pages of docs, the README and SECURITY.md. It needs no network, and the site needs none.
//
//	site ROOT OUT
//
// The navigation is the index docs/README.md: its sections and links. Links between pages lead to their HTML; links to code stay links into
// the tree, relative to ROOT.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

//go:embed page.html
var layout string

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: site ROOT OUT")
		os.Exit(2)
	}
	if err := build(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// A section of the navigation.
type section struct {
	Title string
	Links []link
}

type link struct{ Title, Href string }

// site is what a build knows. Paths are relative to the root, with slashes.
type site struct {
	root, out string
	pages     map[string]bool // Markdown files that become pages
	nav       []section       // Href are the paths of pages
	md        goldmark.Markdown
	layout    *template.Template
}

// build makes the site. It fails if a link between pages leads nowhere.
func build(root, out string) error {
	s := &site{root: root, out: out, pages: make(map[string]bool)}
	s.md = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	var err error
	if s.layout, err = template.New("page").Parse(layout); err != nil {
		return err
	}
	var pictures []string
	if err := fs.WalkDir(os.DirFS(root), "docs", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
		case path.Ext(p) == ".md":
			s.pages[p] = true
		case path.Ext(p) == ".svg" || path.Ext(p) == ".png" || strings.HasPrefix(p, "docs/man/"):
			pictures = append(pictures, p)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, p := range []string{"README.md", "SECURITY.md", "CHANGELOG.md"} {
		if _, err := os.Stat(filepath.Join(root, p)); err == nil {
			s.pages[p] = true
		}
	}
	if err := s.readNav("docs/README.md"); err != nil {
		return err
	}
	if len(s.nav) == 0 {
		return errors.New("docs/README.md: no sections with links")
	}
	var problems []error
	for p := range s.pages {
		if err := s.write(p); err != nil {
			problems = append(problems, err)
		}
	}
	for _, p := range pictures {
		content, err := os.ReadFile(filepath.Join(root, p))
		if err == nil {
			err = s.save(p, content)
		}
		problems = append(problems, err)
	}
	problems = append(problems, s.manuals(pictures))
	return errors.Join(problems...)
}

// readNav makes the navigation of the sections and links of a page.
func (s *site) readNav(page string) error {
	src, err := os.ReadFile(filepath.Join(s.root, page))
	if err != nil {
		return err
	}
	doc := s.md.Parser().Parse(text.NewReader(src))
	return ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Heading:
			if entering && n.Level == 2 {
				s.nav = append(s.nav, section{Title: string(n.Lines().Value(src))})
			}
		case *ast.Link:
			target := path.Join(path.Dir(page), string(n.Destination))
			if entering && len(s.nav) > 0 && (s.pages[target] || target == "docs/man" || target == "docs/adr") {
				last := &s.nav[len(s.nav)-1]
				title := target
				if c, ok := n.FirstChild().(*ast.Text); ok {
					title = strings.TrimSuffix(string(c.Segment.Value(src)), ".md")
				}
				last.Links = append(last.Links, link{title, target})
			}
		}
		return ast.WalkContinue, nil
	})
}

// href returns a link from one page to another, or "" if there is no such page.
func (s *site) href(from, to string) string {
	switch {
	case s.pages[to]:
		to = htmlPath(to)
	case to == "docs/man" || to == "docs/adr":
		to += "/index.html"
	default:
		return ""
	}
	rel, err := filepath.Rel(filepath.Dir(from), to)
	if err != nil {
		return ""
	}
	return filepath.ToSlash(rel)
}

// htmlPath is the file of a page: that of the index of docs is docs/index.html, that of the README is index.html.
func htmlPath(page string) string {
	if path.Base(page) == "README.md" {
		return path.Join(path.Dir(page), "index.html")
	}
	return strings.TrimSuffix(page, ".md") + ".html"
}

// write writes one page.
func (s *site) write(page string) error {
	src, err := os.ReadFile(filepath.Join(s.root, page))
	if err != nil {
		return err
	}
	doc := s.md.Parser().Parse(text.NewReader(src))
	title := page
	if err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 1 && title == page {
				title = string(n.Lines().Value(src))
			}
		case *ast.Link:
			dest, err := s.destination(page, string(n.Destination))
			n.Destination = []byte(dest)
			return ast.WalkContinue, err
		}
		return ast.WalkContinue, nil
	}); err != nil {
		return err
	}
	var body bytes.Buffer
	if err := s.md.Renderer().Render(&body, src, doc); err != nil {
		return err
	}
	return s.render(page, title, template.HTML(body.String())) //nolint:gosec // of our own pages
}

var external = regexp.MustCompile(`^[a-z]+:`)

// destination returns where a link leads on the site: another page, or a file of the tree.
func (s *site) destination(page, dest string) (string, error) {
	if external.MatchString(dest) || strings.HasPrefix(dest, "#") {
		return dest, nil
	}
	name, fragment, _ := strings.Cut(dest, "#")
	target := path.Join(path.Dir(page), name)
	if _, err := os.Stat(filepath.Join(s.root, target)); err != nil {
		return "", fmt.Errorf("%s: link to %s: %w", page, dest, err)
	}
	rel := s.href(page, target)
	if rel == "" {
		if strings.HasPrefix(target, "docs/man/") {
			return dest, nil
		}
		abs, err := filepath.Rel(filepath.Join(s.out, filepath.Dir(page)), filepath.Join(s.root, target))
		if err != nil {
			return "", err
		}
		rel = filepath.ToSlash(abs)
	}
	if fragment != "" {
		rel += "#" + fragment
	}
	return rel, nil
}

// render writes a page with the layout.
func (s *site) render(page, title string, body template.HTML) error {
	nav := make([]section, len(s.nav))
	for i, sec := range s.nav {
		nav[i].Title = sec.Title
		for _, l := range sec.Links {
			nav[i].Links = append(nav[i].Links, link{l.Title, s.href(page, l.Href)})
		}
	}
	var out bytes.Buffer
	err := s.layout.Execute(&out, struct {
		Title string
		Home  string
		Nav   []section
		Body  template.HTML
	}{title, s.href(page, "README.md"), nav, body})
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return s.save(htmlPath(page), out.Bytes())
}

func (s *site) save(name string, content []byte) error {
	file := filepath.Join(s.out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}

// manuals writes the lists of manual pages and of decisions.
func (s *site) manuals(files []string) error {
	var man, adr strings.Builder
	man.WriteString("<h1>Manual pages</h1>\n<p>Of all commands, in the format of <code>man -l</code>.</p>\n<ul>\n")
	for _, f := range files {
		if strings.HasPrefix(f, "docs/man/") {
			fmt.Fprintf(&man, "<li><a href=\"%[1]s\">%[1]s</a></li>\n", template.HTMLEscapeString(path.Base(f)))
		}
	}
	adr.WriteString("<h1>Decisions</h1>\n<ul>\n")
	entries, err := fs.Glob(os.DirFS(s.root), "docs/adr/*.md")
	if err != nil {
		return err
	}
	for _, e := range entries {
		src, err := os.ReadFile(filepath.Join(s.root, e))
		if err != nil {
			return err
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(src), "# "), "\n")
		fmt.Fprintf(&adr, "<li><a href=\"%s\">%s</a></li>\n", path.Base(htmlPath(e)), template.HTMLEscapeString(title))
	}
	return errors.Join(s.render("docs/man/README.md", "Manual pages", template.HTML(man.String()+"</ul>\n")), //nolint:gosec // names of files
		s.render("docs/adr/README.md", "Decisions", template.HTML(adr.String()+"</ul>\n"))) //nolint:gosec // escaped above
}
