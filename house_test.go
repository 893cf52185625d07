// Package contivagent holds the project's house rules: it turns the tree into parsed files and checks ranks, fences,
// package comments, sizes and pages. Invariant: it reads shape.Files only, so a rule fails on the very commit that breaks it.
package contivagent

import (
	"bytes"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/shape"
)

const module = "github.com/contiv-agent/contiv-agent/"

// ranks gives each room its rank; a room is the longest prefix of a package's folder. Imports point to a lower rank.
var ranks = map[string]int{
	"calico": 0, "model": 0, "selector": 0, "proto": 0, "renderer": 0, "renderer/dataplane": 0, "kv": 0, "parallel": 0, "netns": 0, "backoff": 0, "httpserver": 0, "atomicfile": 0, "stdin": 0, "fields": 0, "calico/recorded": 0, "test/guestbook": 0, "test/logbuffer": 0, "test/page": 0, "test/pace": 0, "test/poll": 0, "test/port": 0, "test/samples": 0, "test/words": 0, "test/shape": 0, "test/startup": 0, "plugins/cni/protocol": 0, "connectivity/probe": 0,
	"calico/v3": 1, "event": 1, "calc": 1, "vpp": 1, "source/convert": 1, "calico/datastore": 1, "calico/wire": 1, "renderer/adapter": 1, "classifier": 1, "budget": 1, "boltstore": 1, "space": 1, "translation": 1, "flows": 1,
	"plugins/service": 2, "plugins/policy": 2, "plugins/controller": 2, "plugins/extconfig": 2, "client": 2, "plugins/cni": 2, "plugins/podnet": 2, "plugins/lossguard": 2, "plugins/ipam": 2, "plugins/cni/cnitest": 2,
	"renderer/nat44": 2, "renderer/cnat": 2, "renderer/builtin": 2, "renderer/acl": 2, "vppagent": 2,
	"source/kube": 2, "source/manifest": 2, "recorder": 2, "calico/typha": 2, "calico/fanout": 2, "calico/felix": 2, "sim": 2,
	"calico/feed": 3, "doctor": 3, "verify": 3, "agent/attachment": 3, "agent/capture": 3, "agent/cleanup": 3, "agent/config": 3, "agent/control": 3, "agent/counters": 3, "agent/flows": 3, "agent/flows/goldmane": 3, "agent/heap": 3, "agent/live": 3, "agent/kubeproxy": 3, "agent/metrics": 3, "agent/nattable": 3, "agent/owner": 3, "agent/proof": 3, "agent/reasons": 3, "agent/status": 3, "agent/stepper": 3,
	"trace/hops": 3,
	"agent":      4, "trace": 4, "replay": 4, "connectivity": 4, "ui": 4,
	"cmd": 5, "test": 5, "examples": 5, "release": 5,
}

// sameRank lists the imports between rooms of one rank that are part of the picture (docs/ARCHITECTURE.md).
var sameRank = map[[2]string]bool{
	{"plugins/cni/protocol", "atomicfile"}:  true, // requests that wait in files survive a crash
	{"kv", "proto"}:                         true, // keys are made from messages
	{"renderer/dataplane", "proto"}:         true, // a driver reads Felix's messages
	{"renderer", "model"}:                   true, // the seam names services by the model's identifier
	{"renderer/builtin", "renderer/nat44"}:  true, // the one room that knows which renderers there are
	{"renderer/builtin", "renderer/cnat"}:   true,
	{"agent/cleanup", "agent/owner"}:        true, // cleanup holds the lock of all agents, and shows what is left as a status does
	{"agent/cleanup", "agent/status"}:       true,
	{"agent/config", "agent/attachment"}:    true, // a configuration holds the settings of the agent's rooms
	{"agent/config", "agent/counters"}:      true,
	{"agent/config", "agent/flows"}:         true,
	{"agent/config", "agent/nattable"}:      true,
	{"agent/config", "agent/owner"}:         true,
	{"agent/config", "verify"}:              true, // the settings of a proof are those of the agent
	{"agent/control", "agent/status"}:       true, // the socket serves the status
	{"agent/control", "verify"}:             true, // and the report of a proof
	{"agent/control", "agent/flows"}:        true, // and flows
	{"agent/control", "agent/live"}:         true, // and paths of real packets
	{"agent/live", "agent/flows"}:           true, // the first rule that has a header
	{"agent/live", "verify"}:                true, // what became of a packet that a pod sent
	{"agent/live", "trace/hops"}:            true, // a real path has the form of a predicted one
	{"agent/flows/goldmane", "agent/flows"}: true, // it pushes flows
	{"agent/flows", "verify"}:               true, // the name of a pod's workload
	{"agent/proof", "verify"}:               true,
	{"agent/status", "agent/proof"}:         true, // the status shows the last proof
	{"agent/status", "verify"}:              true,
	{"agent/status", "agent/attachment"}:    true, // the status shows what the other rooms of the agent have found
	{"agent/status", "agent/counters"}:      true,
	{"agent/status", "agent/nattable"}:      true,
	{"agent/status", "agent/flows"}:         true,
	{"agent/stepper", "agent/nattable"}:     true, // a Stepper drives the agent's rooms
	{"agent/stepper", "agent/reasons"}:      true,
	{"agent/stepper", "agent/status"}:       true,
	{"plugins/podnet", "plugins/ipam"}:      true, // the network gives pods their addresses
	{"plugins/cni/cnitest", "plugins/ipam"}: true, // the modelled node has real addresses
	{"test/shape", "test/words"}:            true, // one table has the figures of both
	{"trace", "agent"}:                      true, // a what-if is one agent and one sim per node
	{"replay", "agent"}:                     true, // a replay is an agent on a simulated VPP
	{"replay", "trace"}:                     true, // a bisection asks about packets

	{"source/convert", "calico/v3"}:        true, // a policy of Calico's is read once, for the model and for the datastore
	{"calico/datastore", "calico/v3"}:      true,
	{"calico/datastore", "calc"}:           true, // a change of the datastore is a change of the graph
	{"calico/datastore", "source/convert"}: true, // Services and EndpointSlices are in it as Kubernetes has them
}

// features lists what a feature's descriptors may import of other features. The contract imports none of them, and only all imports every one.
var features = map[string][]string{
	"": {}, "abf": {"acl"}, "acl": {"sctp"}, "cnat": {"l3"}, "ifaces": {}, "l2": {}, "l3": {}, "linux": {"ifaces", "linux/ethtool"}, "linux/ethtool": {}, "linux/leftover": {"linux", "linux/nodeports"}, "linux/nic": {"linux", "linux/ethtool"}, "linux/nodeports": {"linux"}, "linux/sever": {}, "nat": {"acl", "nat/arrange", "nat/drain", "nat/pool", "nat/sessions"}, "nat/arrange": {}, "nat/drain": {}, "nat/gate": {}, "nat/pool": {}, "nat/sessions": {}, "policer": {}, "punt": {}, "rcu": {}, "sctp": {},
	"all": {"abf", "acl", "cnat", "ifaces", "l2", "l3", "nat", "nat/pool", "policer", "punt", "sctp"},
}

// fences lists who alone may import a module.
var fences = map[string][]string{
	"k8s.io/client-go":                   {"source/kube"},
	"go.fd.io/govpp":                     {"vpp", "vppagent/descriptor", "sim", "doctor", "verify/dump"},
	"go.etcd.io/etcd":                    {"plugins/extconfig/etcd"},
	"google.golang.org/grpc":             {"plugins/extconfig/grpc", "plugins/extconfig/etcd", "client", "agent/flows/hubble", "agent/flows/goldmane"},
	"go.etcd.io/bbolt":                   {"boltstore"},
	"github.com/google/nftables":         {"vppagent/descriptor/linux"},
	"github.com/vishvananda":             {"vppagent/descriptor/linux", "source/kube/reach"},
	"github.com/containernetworking/cni": {"cmd/contiv-cni"},
}

func tree(t *testing.T) []shape.File {
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
var parseOnce = sync.OnceValues(func() ([]shape.File, error) { return shape.Tree(".") })

func room(dir string) string {
	best := ""
	for r := range ranks {
		if (dir == r || strings.HasPrefix(dir, r+"/")) && len(r) > len(best) {
			best = r
		}
	}
	return best
}

func imports(s shape.File) []string {
	var out []string
	for _, imp := range s.AST.Imports {
		out = append(out, strings.Trim(imp.Path.Value, `"`))
	}
	return out
}

// TestFeaturesStandAlone keeps the descriptors of one feature of VPP apart from those of others.
func TestFeaturesStandAlone(t *testing.T) {
	const contract = "vppagent/descriptor"
	for _, s := range tree(t) {
		if s.Dir() != contract && !strings.HasPrefix(s.Dir(), contract+"/") || s.IsTest() {
			continue
		}
		feature := strings.TrimPrefix(strings.TrimPrefix(s.Dir(), contract), "/")
		allowed, known := features[feature]
		if !known {
			t.Errorf("%s: %q is no feature; add it to features and to docs/ARCHITECTURE.md", s.Path, feature)
		}
		for _, imp := range imports(s) {
			if other, ok := strings.CutPrefix(imp, module+contract+"/"); ok && !slices.Contains(allowed, other) {
				t.Errorf("%s imports the feature %s", s.Path, other)
			}
		}
	}
}

func TestImportsPointToALowerRank(t *testing.T) {
	for _, s := range tree(t) {
		from := room(s.Dir())
		if from == "" {
			if s.Dir() != "." {
				t.Errorf("%s: folder belongs to no room; add it to ranks and to docs/ARCHITECTURE.md", s.Path)
			}
			continue
		}
		for _, imp := range imports(s) {
			to := room(strings.TrimPrefix(imp, module))
			if !strings.HasPrefix(imp, module) || to == from || to == "" {
				continue
			}
			if s.IsTest() && ranks[to] <= max(ranks[from], 2) {
				continue // a test may bring a partner of the same rank
			}
			if ranks[to] >= ranks[from] && !sameRank[[2]string{from, to}] && ranks[from] != 5 {
				t.Errorf("%s: room %s (rank %d) imports %s (rank %d)", s.Path, from, ranks[from], to, ranks[to])
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
				if !inside(s.Dir(), rooms) && !s.IsTest() && room(s.Dir()) != "test" {
					t.Errorf("%s: imports %s, which only %v may", s.Path, imp, rooms)
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
		if s.IsTest() && s.Dir() != "." {
			continue
		}
		names[s.Dir()] = s.AST.Name.Name
		if s.AST.Doc == nil || strings.HasPrefix(strings.TrimSpace(s.AST.Doc.Text()), "Code generated") {
			continue
		}
		comments[s.Dir()] = append(comments[s.Dir()], s.Path)
		word := "Package " + s.AST.Name.Name + " "
		if s.AST.Name.Name == "main" {
			word = "Command "
		}
		if !strings.HasPrefix(s.AST.Doc.Text(), word) {
			t.Errorf("%s: package comment must start with %q", s.Path, word)
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
		if s.Generated() {
			continue
		}
		if lines := s.Fset.File(s.AST.Pos()).LineCount(); lines > maxFile && !s.IsTest() {
			t.Errorf("%s: %d lines, at most %d", s.Path, lines, maxFile)
		}
		for _, decl := range s.AST.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || s.IsTest() {
				continue
			}
			if n := s.Fset.Position(fn.End()).Line - s.Fset.Position(fn.Pos()).Line; n > maxFunc {
				t.Errorf("%s: func %s has %d lines, at most %d", s.Path, fn.Name.Name, n, maxFunc)
			}
		}
	}
}

func TestExportedIsDocumented(t *testing.T) {
	for _, s := range tree(t) {
		if s.IsTest() || s.Generated() {
			continue
		}
		for _, decl := range s.AST.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Name.Name != "Error" && d.Doc == nil && exportedReceiver(d) {
					t.Errorf("%s: exported func %s has no comment", s.Path, d.Name.Name)
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

func checkTypeDocs(t *testing.T, s shape.File, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		if ts, ok := spec.(*ast.TypeSpec); ok && ts.Name.IsExported() && d.Doc == nil && ts.Doc == nil {
			t.Errorf("%s: exported type %s has no comment", s.Path, ts.Name.Name)
		}
	}
}

func TestNoSleepNoInitNoDefaults(t *testing.T) {
	for _, s := range tree(t) {
		if s.IsTest() || s.Generated() {
			continue
		}
		for _, decl := range s.AST.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: init function", s.Path)
			}
		}
		ast.Inspect(s.AST, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && sel.Sel.Name == "Sleep" {
					t.Errorf("%s: time.Sleep", s.Fset.Position(sel.Pos()))
				}
			}
			return true
		})
	}
}

func TestLowRanksAndRenderersDoNotLog(t *testing.T) {
	for _, s := range tree(t) {
		r := room(s.Dir())
		// serve hands a logger to net/http, which logs by itself and returns nothing.
		quiet := r != "" && r != "vpp" && r != "httpserver" && (ranks[r] == 0 || ranks[r] == 1 || strings.HasPrefix(r, "renderer/"))
		if !quiet || s.IsTest() {
			continue
		}
		for _, imp := range imports(s) {
			if imp == "log" || imp == "log/slog" {
				t.Errorf("%s: room %s imports %s; return facts instead", s.Path, r, imp)
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
		if err != nil || d.IsDir() && (path == ".git" || path == "bin" || path == "dist" || path == ".cache") {
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
