package shape

import (
	"go/ast"
	"maps"
	"slices"
)

// goroutineCalls are the names of functions and methods that start a goroutine: of sync.WaitGroup and errgroup, of testing, and of time and context.
var goroutineCalls = []string{"Go", "Parallel", "RunParallel", "AfterFunc"}

// WithGoroutines returns the folders of packages with tests whose code or tests start goroutines, sorted. Goroutines of imported packages do not count.
func WithGoroutines(files []File) []string {
	starts, tested := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		dir := f.Dir()
		tested[dir] = tested[dir] || f.IsTest()
		starts[dir] = starts[dir] || f.startsGoroutine()
	}
	maps.DeleteFunc(starts, func(dir string, starts bool) bool { return !starts || !tested[dir] })
	return slices.Sorted(maps.Keys(starts))
}

func (f File) startsGoroutine() (found bool) {
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			found = found || ok && slices.Contains(goroutineCalls, s.Sel.Name)
		}
		return !found
	})
	return found
}
