package alike

import (
	"fmt"
	"testing"
)

func TestDivide(t *testing.T) {
	names := []string{"shop/a", "shop/a-1", "10.1.1.2", "10.1.1.3"}
	for text, want := range map[string]string{
		"":                              "[] []",
		"no name":                       "[no name] []",
		"shop/a":                        "[ ] [0]",
		"pod:shop/a-1 gets 10.1.1.2:80": "[pod:  gets  :80] [1 2]",
		"shop/a-12, my-shop/a, shop/a.b, 10.1.1.23": "[shop/a-12, my-shop/a, shop/a.b, 10.1.1.23] []",
	} {
		parts, marks := divide(text, names)
		if got := fmt.Sprint(parts, marks); got != want {
			t.Errorf("%q: %q %v, want %s", text, parts, marks, want)
		}
	}
}
