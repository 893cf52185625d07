// Package shape turns the Go files of a tree into figures about its size and structure: lines, fields, methods, names, and
// references between files. The house tests hold the figures under caps; print writes them as a table.
//
// Invariant: a figure depends on the files alone. Nothing outside the tree is read, so types of other packages are unknown, and no file
// needs to build.
package shape

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// File is a parsed file.
type File struct {
	Path string // slash-separated, relative to the root of the tree
	Fset *token.FileSet
	AST  *ast.File
}

// Dir returns the folder, slash-separated, relative to the root of the tree.
func (f File) Dir() string { return filepath.ToSlash(filepath.Dir(f.Path)) }

// IsTest reports whether it is a file of tests.
func (f File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Generated reports whether a program wrote the file.
func (f File) Generated() bool {
	return slices.ContainsFunc(f.AST.Comments, func(c *ast.CommentGroup) bool {
		return c.Pos() < f.AST.Package && strings.Contains(c.Text(), "Code generated")
	})
}

// Tree parses all Go files of the module at a root, with comments. It leaves out other modules, hidden folders, testdata and bin. The
// error names the first file that cannot be read or parsed.
func Tree(root string) ([]File, error) {
	var out []File
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && skip(path) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		out = append(out, File{Path: filepath.ToSlash(rel), Fset: fset, AST: file})
		return err
	})
	return out, err
}

func skip(dir string) bool {
	base := filepath.Base(dir)
	if strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// Figures are counts of one tree, without generated code and, but for TestLines, without tests. Keys of maps are a package's folder,
// or "folder.Type".
type Figures struct {
	Lines, TestLines, CommentLines int
	Packages                       map[string]int             // lines
	Fields, Methods                map[string]int             // by type
	Functions                      []int                      // lines of each
	Names                          map[string]map[string]bool // name in lower case → packages that define a function or method of it
}

// Measure counts files.
func Measure(files []File) Figures {
	f := Figures{Packages: map[string]int{}, Fields: map[string]int{}, Methods: map[string]int{}, Names: map[string]map[string]bool{}}
	for _, file := range files {
		lines := file.Fset.File(file.AST.Package).LineCount()
		switch {
		case file.Generated():
		case file.IsTest():
			f.TestLines += lines
		default:
			f.addFile(file, lines)
		}
	}
	return f
}

func (f *Figures) addFile(file File, lines int) {
	f.Lines += lines
	f.Packages[file.Dir()] += lines
	for _, c := range file.AST.Comments {
		f.CommentLines += span(file.Fset, c)
	}
	for _, decl := range file.AST.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			f.addFunction(file, d)
		case *ast.GenDecl:
			f.addTypes(file.Dir(), d)
		}
	}
}

// span is the number of lines of a node.
func span(fset *token.FileSet, n ast.Node) int {
	return fset.Position(n.End()).Line - fset.Position(n.Pos()).Line + 1
}

func (f *Figures) addFunction(file File, d *ast.FuncDecl) {
	f.Functions = append(f.Functions, span(file.Fset, d))
	if name := d.Name.Name; name == strings.ToLower(name) && name != "main" {
		if f.Names[name] == nil {
			f.Names[name] = map[string]bool{}
		}
		f.Names[name][file.Dir()] = true
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
		f.Methods[file.Dir()+"."+id.Name]++
	}
}

func (f *Figures) addTypes(dir string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		ts, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		if st, ok := ts.Type.(*ast.StructType); ok {
			for _, field := range st.Fields.List {
				f.Fields[dir+"."+ts.Name.Name] += max(1, len(field.Names))
			}
		}
	}
}

// References counts references from one file of a package to another, in all packages, and those that point back in the best order of
// files that a greedy search finds: an order in which a file stands before the files it refers to. back has them by package.
func References(files []File) (back map[string]int, all int) {
	packages := map[string][]File{}
	for _, file := range files {
		if !file.IsTest() && !file.Generated() {
			packages[file.Dir()] = append(packages[file.Dir()], file)
		}
	}
	back = map[string]int{}
	for dir, p := range packages {
		b, n := references(p)
		back[dir], all = b, all+n
	}
	return back, all
}

// nothing imports no package.
type nothing struct{}

func (nothing) Import(string) (*types.Package, error) { return nil, errors.New("not read") }

// references counts those of one package. Objects of other packages are unknown, which the type checker survives.
func references(files []File) (back, all int) {
	fset := files[0].Fset
	parsed, index := make([]*ast.File, len(files)), map[string]int{}
	for i, f := range files {
		parsed[i], index[fset.Position(f.AST.Package).Filename] = f.AST, i
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: nothing{}, Error: func(error) {}}
	pkg, _ := cfg.Check(files[0].Dir(), fset, parsed, info) // errors about what is not read
	edges := make([][]int, len(files))                      // edges[a][b]: references from file a to file b
	for i := range edges {
		edges[i] = make([]int, len(files))
	}
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || !declared(obj) {
			continue
		}
		from, to := index[fset.Position(id.Pos()).Filename], index[fset.Position(obj.Pos()).Filename]
		if from != to {
			edges[from][to]++
			all++
		}
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
