package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// figures are counts of one tree. Keys of maps are a package's folder within the tree, or "folder.Type".
type figures struct {
	lines, testLines, commentLines int
	packages                       map[string]int            // lines
	fields, methods                map[string]int            // by type
	functions                      []int                     // lines of each
	names                          map[string]map[string]int // bare name → package → definitions
	back, references               int                       // between files of one package
}

func measure(dir string) (figures, error) {
	f := figures{packages: map[string]int{}, fields: map[string]int{}, methods: map[string]int{}, names: map[string]map[string]int{}}
	root, err := filepath.Abs(dir)
	if err != nil {
		return f, err
	}
	cfg := &packages.Config{Dir: root, Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps | packages.NeedForTest, Tests: true}
	found, err := packages.Load(cfg, "./...")
	if err != nil {
		return f, err
	}
	seen := map[string]bool{}
	for _, p := range found {
		if len(p.Errors) > 0 {
			return f, fmt.Errorf("%s: %w", p.PkgPath, p.Errors[0])
		}
		var own []*ast.File
		for _, file := range p.Syntax {
			path := p.Fset.Position(file.Package).Filename
			rel, err := filepath.Rel(root, path)
			if err != nil || strings.HasPrefix(rel, "..") || generated(file) {
				continue
			}
			if strings.HasSuffix(path, "_test.go") {
				if !seen[path] {
					f.testLines += p.Fset.File(file.Package).LineCount()
				}
				seen[path] = true
				continue
			}
			if p.ForTest == "" {
				own = append(own, file)
			}
		}
		if len(own) > 0 {
			f.add(p, filepath.ToSlash(folder(root, p.Fset, own[0])), own)
		}
	}
	return f, nil
}

func folder(root string, fset *token.FileSet, file *ast.File) string {
	rel, err := filepath.Rel(root, filepath.Dir(fset.Position(file.Package).Filename))
	if err != nil {
		return "?"
	}
	return rel
}

func generated(f *ast.File) bool {
	return slices.ContainsFunc(f.Comments, func(c *ast.CommentGroup) bool {
		return c.Pos() < f.Package && strings.Contains(c.Text(), "Code generated")
	})
}

// add counts the files of one package.
func (f *figures) add(p *packages.Package, dir string, files []*ast.File) {
	for _, file := range files {
		n := p.Fset.File(file.Package).LineCount()
		f.lines += n
		f.packages[dir] += n
		for _, c := range file.Comments {
			f.commentLines += p.Fset.Position(c.End()).Line - p.Fset.Position(c.Pos()).Line + 1
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				f.function(p, dir, d)
			case *ast.GenDecl:
				f.types(dir, d)
			}
		}
	}
	back, all := references(p, files)
	f.back += back
	f.references += all
}

func (f *figures) function(p *packages.Package, dir string, d *ast.FuncDecl) {
	f.functions = append(f.functions, p.Fset.Position(d.End()).Line-p.Fset.Position(d.Pos()).Line+1)
	if name := d.Name.Name; name == strings.ToLower(name) && name != "main" {
		if f.names[name] == nil {
			f.names[name] = map[string]int{}
		}
		f.names[name][dir]++
	}
	if d.Recv == nil {
		return
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if index, ok := typ.(*ast.IndexExpr); ok {
		typ = index.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		f.methods[dir+"."+id.Name]++
	}
}

func (f *figures) types(dir string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		ts, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		st, ok := ts.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range st.Fields.List {
			f.fields[dir+"."+ts.Name.Name] += max(1, len(field.Names))
		}
	}
}

// references counts references from one file of a package to another, and those that point back in the best order of files that a
// greedy search finds: an order in which a file stands before the files it refers to.
func references(p *packages.Package, files []*ast.File) (back, all int) {
	index := map[string]int{}
	for i, file := range files {
		index[p.Fset.Position(file.Package).Filename] = i
	}
	edges := make([][]int, len(files)) // edges[a][b]: references from file a to file b
	for i := range edges {
		edges[i] = make([]int, len(files))
	}
	for i, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			obj := p.TypesInfo.Uses[id]
			if obj == nil || obj.Pkg() != p.Types || !declared(obj) {
				return true
			}
			if to, ok := index[p.Fset.Position(obj.Pos()).Filename]; ok && to != i {
				edges[i][to]++
				all++
			}
			return true
		})
	}
	return feedback(edges), all
}

// declared reports whether an object is a declaration of its package: no local variable, no field.
func declared(obj types.Object) bool {
	if v, ok := obj.(*types.Var); ok && v.IsField() {
		return false
	}
	if fn, ok := obj.(*types.Func); ok && fn.Signature().Recv() != nil {
		return true
	}
	return obj.Parent() == obj.Pkg().Scope()
}

// feedback returns the weight of the edges that point back in an order of nodes: sources first, sinks last, and of what is left the node
// that gives most more than it takes (the heuristic of Eades, Lin and Smyth for feedback arc sets).
func feedback(edges [][]int) int {
	left := map[int]bool{}
	for i := range edges {
		left[i] = true
	}
	weigh := func(i int) (out, in int) {
		for j := range left {
			if j != i {
				out, in = out+edges[i][j], in+edges[j][i]
			}
		}
		return out, in
	}
	var head, tail []int
	for len(left) > 0 {
		best, bestValue, end := -1, 0, false
		for _, i := range slices.Sorted(maps.Keys(left)) {
			out, in := weigh(i)
			if out == 0 {
				best, end = i, true
				break
			}
			value := out - in
			if in == 0 {
				value = 1 << 30
			}
			if best < 0 || value > bestValue {
				best, bestValue = i, value
			}
		}
		delete(left, best)
		if end {
			tail = append(tail, best)
		} else {
			head = append(head, best)
		}
	}
	slices.Reverse(tail)
	place := map[int]int{}
	for at, i := range append(head, tail...) {
		place[i] = at
	}
	back := 0
	for i := range edges {
		for j, n := range edges[i] {
			if place[j] < place[i] {
				back += n
			}
		}
	}
	return back
}

func (f figures) share(n int) float64 { return float64(n) / float64(max(1, f.lines)) }

// above lists the packages with more lines than that.
func (f figures) above(lines int) string {
	var out []string
	for _, dir := range slices.SortedFunc(maps.Keys(f.packages), func(a, b string) int { return cmp.Compare(f.packages[b], f.packages[a]) }) {
		if f.packages[dir] > lines {
			out = append(out, fmt.Sprintf("%s %d", dir, f.packages[dir]))
		}
	}
	return fmt.Sprintf("%d: %s", len(out), strings.Join(out, ", "))
}

func (f figures) most(of map[string]int) string {
	best := ""
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if best == "" || of[name] > of[best] {
			best = name
		}
	}
	return fmt.Sprintf("%s %d", best, of[best])
}

func count(of map[string]int, above int) (n int) {
	for _, v := range of {
		if v > above {
			n++
		}
	}
	return n
}

func (f figures) functionSizes() string {
	if len(f.functions) == 0 {
		return "none"
	}
	s := slices.Sorted(slices.Values(f.functions))
	return fmt.Sprintf("%d, %d, %d lines", s[len(s)/2], s[len(s)*95/100], s[len(s)-1])
}

func (f figures) bareNames() string {
	n, most := 0, ""
	for _, name := range slices.Sorted(maps.Keys(f.names)) {
		if len(f.names[name]) > 5 {
			n++
			if most == "" || len(f.names[name]) > len(f.names[most]) {
				most = name
			}
		}
	}
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s: %d packages)", n, most, len(f.names[most]))
}

func (f figures) backReferences() string {
	return fmt.Sprintf("%d of %d (%.0f %%)", f.back, f.references, 100*float64(f.back)/float64(max(1, f.references)))
}
