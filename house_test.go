// Package contivagent holds the project's house rules: it turns the tree into parsed files and checks ranks, fences,
// package comments, sizes and pages. Invariant: it reads sources only, so a rule fails on the very commit that breaks it.
package contivagent

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/contiv-agent/contiv-agent/"

// ranks gives each room its rank; a room is the longest prefix of a package's folder. Imports point to a lower rank.
var ranks = map[string]int{
	"calico": 0, "model": 0, "selector": 0, "proto": 0, "renderer": 0, "renderer/dataplane": 0, "kv": 0, "parallel": 0, "backoff": 0, "httpserver": 0, "calico/recorded": 0, "test/page": 0, "test/pace": 0, "test/port": 0, "test/words": 0,
	"calico/v3": 1, "event": 1, "calc": 1, "vpp": 1, "source/convert": 1, "calico/datastore": 1, "calico/wire": 1, "renderer/adapter": 1, "classifier": 1, "budget": 1,
	"plugins/service": 2, "plugins/policy": 2, "plugins/controller": 2, "plugins/extconfig": 2, "client": 2,
	"renderer/nat44": 2, "renderer/cnat": 2, "renderer/builtin": 2, "renderer/acl": 2, "vppagent": 2,
	"source/kube": 2, "source/manifest": 2, "calico/typha": 2, "calico/fanout": 2, "calico/felix": 2, "sim": 2,
	"agent": 3, "trace": 3, "doctor": 3,
	"cmd": 4, "test": 4, "examples": 4,
}

// sameRank lists the imports between rooms of one rank that are part of the picture (docs/ARCHITECTURE.md).
var sameRank = map[[2]string]bool{
	{"kv", "proto"}:                        true, // keys are made from messages
	{"renderer/dataplane", "proto"}:        true, // a driver reads Felix's messages
	{"renderer", "model"}:                  true, // the seam names services by the model's identifier
	{"renderer/builtin", "renderer/nat44"}: true, // the one room that knows which renderers there are
	{"renderer/builtin", "renderer/cnat"}:  true,
	{"trace", "agent"}:                     true, // a what-if is one agent and one sim per node

	{"source/convert", "calico/v3"}:        true, // a policy of Calico's is read once, for the model and for the datastore
	{"calico/datastore", "calico/v3"}:      true,
	{"calico/datastore", "calc"}:           true, // a change of the datastore is a change of the graph
	{"calico/datastore", "source/convert"}: true, // Services and EndpointSlices are in it as Kubernetes has them
}

// features lists what a feature's descriptors may import of other features. The contract imports none of them, and only all imports every one.
var features = map[string][]string{
	"": {}, "abf": {"acl"}, "acl": {}, "cnat": {"l3"}, "ifaces": {}, "l2": {}, "l3": {}, "linux": {"ifaces"}, "nat": {"acl"}, "punt": {},
	"all": {"abf", "acl", "cnat", "ifaces", "l2", "l3", "nat", "punt"},
}

// fences lists who alone may import a module.
var fences = map[string][]string{
	"k8s.io/client-go":       {"source/kube"},
	"go.fd.io/govpp":         {"vpp", "vppagent/descriptor", "sim", "doctor"},
	"go.etcd.io/etcd":        {"plugins/extconfig/etcd"},
	"google.golang.org/grpc": {"plugins/extconfig/grpc", "plugins/extconfig/etcd", "client"},
	"go.etcd.io/bbolt":       {"plugins/extconfig"},
	"github.com/vishvananda": {"vppagent/descriptor/linux"},
}

type source struct {
	path string // slash-separated, relative to the root
	file *ast.File
	fset *token.FileSet
}

func (s source) dir() string  { return filepath.ToSlash(filepath.Dir(s.path)) }
func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func tree(t *testing.T) []source {
	t.Helper()
	out, err := parseOnce()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("found only %d Go files: not at the root of the repository?", len(out))
	}
	return out
}

// parseOnce parses the tree for all tests together.
var parseOnce = sync.OnceValues(func() ([]source, error) {
	var out []source
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipDir(path) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, source{path: filepath.ToSlash(path), file: file, fset: fset})
		return nil
	})
	return out, err
})

// skipDir leaves out other modules (they have separate rules) and folders without sources.
func skipDir(path string) bool {
	if path == "." {
		return false
	}
	base := filepath.Base(path)
	if strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil
}

func room(dir string) string {
	best := ""
	for r := range ranks {
		if (dir == r || strings.HasPrefix(dir, r+"/")) && len(r) > len(best) {
			best = r
		}
	}
	return best
}

func imports(s source) []string {
	var out []string
	for _, imp := range s.file.Imports {
		out = append(out, strings.Trim(imp.Path.Value, `"`))
	}
	return out
}

// TestFeaturesStandAlone keeps the descriptors of one feature of VPP apart from those of others.
func TestFeaturesStandAlone(t *testing.T) {
	const contract = "vppagent/descriptor"
	for _, s := range tree(t) {
		if s.dir() != contract && !strings.HasPrefix(s.dir(), contract+"/") || s.isTest() {
			continue
		}
		feature := strings.TrimPrefix(strings.TrimPrefix(s.dir(), contract), "/")
		allowed, known := features[feature]
		if !known {
			t.Errorf("%s: %q is no feature; add it to features and to docs/ARCHITECTURE.md", s.path, feature)
		}
		for _, imp := range imports(s) {
			if other, ok := strings.CutPrefix(imp, module+contract+"/"); ok && !slices.Contains(allowed, other) {
				t.Errorf("%s imports the feature %s", s.path, other)
			}
		}
	}
}

func TestImportsPointToALowerRank(t *testing.T) {
	for _, s := range tree(t) {
		from := room(s.dir())
		if from == "" {
			if s.dir() != "." {
				t.Errorf("%s: folder belongs to no room; add it to ranks and to docs/ARCHITECTURE.md", s.path)
			}
			continue
		}
		for _, imp := range imports(s) {
			to := room(strings.TrimPrefix(imp, module))
			if !strings.HasPrefix(imp, module) || to == from || to == "" {
				continue
			}
			if s.isTest() && ranks[to] <= max(ranks[from], 2) {
				continue // a test may bring a partner of the same rank
			}
			if ranks[to] >= ranks[from] && !sameRank[[2]string{from, to}] && ranks[from] != 4 {
				t.Errorf("%s: room %s (rank %d) imports %s (rank %d)", s.path, from, ranks[from], to, ranks[to])
			}
		}
	}
}

func TestFences(t *testing.T) {
	for _, s := range tree(t) {
		for _, imp := range imports(s) {
			for fenced, rooms := range fences {
				if imp != fenced && !strings.HasPrefix(imp, fenced+"/") {
					continue
				}
				if !inside(s.dir(), rooms) && !s.isTest() && room(s.dir()) != "test" {
					t.Errorf("%s: imports %s, which only %v may", s.path, imp, rooms)
				}
			}
		}
	}
}

func inside(dir string, rooms []string) bool {
	for _, r := range rooms {
		if dir == r || strings.HasPrefix(dir, r+"/") {
			return true
		}
	}
	return false
}

func TestEachPackageHasOneComment(t *testing.T) {
	comments := map[string][]string{} // dir → files with a package comment
	names := map[string]string{}
	for _, s := range tree(t) {
		if s.isTest() && s.dir() != "." {
			continue
		}
		names[s.dir()] = s.file.Name.Name
		if s.file.Doc == nil || strings.HasPrefix(strings.TrimSpace(s.file.Doc.Text()), "Code generated") {
			continue
		}
		comments[s.dir()] = append(comments[s.dir()], s.path)
		word := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			word = "Command "
		}
		if !strings.HasPrefix(s.file.Doc.Text(), word) {
			t.Errorf("%s: package comment must start with %q", s.path, word)
		}
	}
	for dir, name := range names {
		if n := len(comments[dir]); n != 1 {
			sort.Strings(comments[dir])
			t.Errorf("%s (package %s): %d package comments, want exactly one %v", dir, name, n, comments[dir])
		}
	}
}

func TestSizes(t *testing.T) {
	const maxFunc, maxFile = 100, 500
	for _, s := range tree(t) {
		if generated(s.file) {
			continue
		}
		if lines := s.fset.File(s.file.Pos()).LineCount(); lines > maxFile && !s.isTest() {
			t.Errorf("%s: %d lines, at most %d", s.path, lines, maxFile)
		}
		for _, decl := range s.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || s.isTest() {
				continue
			}
			if n := s.fset.Position(fn.End()).Line - s.fset.Position(fn.Pos()).Line; n > maxFunc {
				t.Errorf("%s: func %s has %d lines, at most %d", s.path, fn.Name.Name, n, maxFunc)
			}
		}
	}
}

func generated(f *ast.File) bool {
	for _, c := range f.Comments {
		if c.Pos() < f.Package && strings.Contains(c.Text(), "Code generated") {
			return true
		}
	}
	return false
}

func TestExportedIsDocumented(t *testing.T) {
	for _, s := range tree(t) {
		if s.isTest() || generated(s.file) {
			continue
		}
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Name.Name != "Error" && d.Doc == nil && exportedReceiver(d) {
					t.Errorf("%s: exported func %s has no comment", s.path, d.Name.Name)
				}
			case *ast.GenDecl:
				checkTypeDocs(t, s, d)
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if idx, ok := typ.(*ast.IndexExpr); ok {
		typ = idx.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

func checkTypeDocs(t *testing.T, s source, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		if ts, ok := spec.(*ast.TypeSpec); ok && ts.Name.IsExported() && d.Doc == nil && ts.Doc == nil {
			t.Errorf("%s: exported type %s has no comment", s.path, ts.Name.Name)
		}
	}
}

func TestNoSleepNoInitNoDefaults(t *testing.T) {
	for _, s := range tree(t) {
		if s.isTest() || generated(s.file) {
			continue
		}
		for _, decl := range s.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: init function", s.path)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && sel.Sel.Name == "Sleep" {
					t.Errorf("%s: time.Sleep", s.fset.Position(sel.Pos()))
				}
			}
			return true
		})
	}
}

func TestLowRanksAndRenderersDoNotLog(t *testing.T) {
	for _, s := range tree(t) {
		r := room(s.dir())
		// serve hands a logger to net/http, which logs by itself and returns nothing.
		quiet := r != "" && r != "vpp" && r != "httpserver" && (ranks[r] == 0 || ranks[r] == 1 || strings.HasPrefix(r, "renderer/"))
		if !quiet || s.isTest() {
			continue
		}
		for _, imp := range imports(s) {
			if imp == "log" || imp == "log/slog" {
				t.Errorf("%s: room %s imports %s; return facts instead", s.path, r, imp)
			}
		}
	}
}

func TestRenderersAndPluginsHavePages(t *testing.T) {
	dirs, _ := filepath.Glob("renderer/*")
	more, _ := filepath.Glob("plugins/*")
	for _, dir := range append(dirs, more...) {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || ranks[dir] < 2 { // seams and adapters are no plugins
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, "README.md"))
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		for _, section := range []string{"NAME", "DESCRIPTION", "CONFIG", "EXAMPLES", "METRICS", "BUGS"} {
			if !regexp.MustCompile(`(?m)^#+ ` + section + `$`).Match(page) {
				t.Errorf("%s/README.md: no section %s", dir, section)
			}
		}
	}
}

// TestSpeaksOfTheSoftwareAlone keeps paths of one machine out of the repository.
func TestSpeaksOfTheSoftwareAlone(t *testing.T) {
	bad := [][]byte{[]byte("proxy.golang" + ".org"), []byte("/opt/" + "vpp-lab")}
	for _, root := range []string{"/work/", "/root/", "/tmp/"} {
		for _, dir := range []string{"main", "shared", "brief", "go/pkg"} {
			bad = append(bad, []byte(root+dir))
		}
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (path == ".git" || path == "bin" || path == ".cache") {
			if d != nil && d.IsDir() && err == nil {
				return filepath.SkipDir
			}
			return err
		}
		if d.IsDir() || path == "house_test.go" || path == ".git" { // a worktree has a file of that name
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, words := range bad {
			if bytes.Contains(text, words) {
				t.Errorf("%s: speaks of this machine: %q", path, words)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
