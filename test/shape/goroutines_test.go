package shape

import (
	"slices"
	"testing"
)

// Code and tests count, calls that start a goroutine as well as go statements; packages without tests do not.
func TestWithGoroutines(t *testing.T) {
	files := treeOf(t, map[string]string{
		"statement/a.go":      "package a\n\nfunc f() { go f() }\n",
		"statement/a_test.go": "package a\n",
		"group/a.go":          "package a\n\nfunc f() { var w sync.WaitGroup; w.Go(f) }\n",
		"group/a_test.go":     "package a\n",
		"parallel/a.go":       "package a\n",
		"parallel/a_test.go":  "package a\n\nfunc TestX(t *testing.T) { t.Parallel() }\n",
		"timer/a_test.go":     "package a\n\nvar t = time.AfterFunc(1, nil)\n",
		"untested/a.go":       "package a\n\nfunc f() { go f() }\n",
		"none/a.go":           "package a\n\n// go f()\nfunc f() { f() }\n",
		"none/a_test.go":      "package a\n\nvar Go = 1\n",
	})
	if got := WithGoroutines(files); !slices.Equal(got, []string{"group", "parallel", "statement", "timer"}) {
		t.Errorf("%q", got)
	}
}
