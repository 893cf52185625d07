package mutation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Figures count results by kind of change.
type Figures map[string]map[string]int

// Add counts a change; one without a kind is none.
func (f Figures) Add(kind, result string) {
	if kind == "" {
		return
	}
	if f[kind] == nil {
		f[kind] = map[string]int{}
	}
	f[kind][result]++
}

// Count is the number of changes, and of those that verify found.
func (f Figures) Count() (made, found int) {
	for _, results := range f {
		for result, n := range results {
			if made += n; result == Found || result == FoundOnly {
				found += n
			}
		}
	}
	return made, found
}

// String has a line for each kind, and the sums.
func (f Figures) String() string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&b, "%-28s %v\n", kind, f[kind])
	}
	made, found := f.Count()
	fmt.Fprintf(&b, "%d mutations, %d found", made, found)
	return b.String()
}
