package hubble

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/contiv-agent/contiv-agent/proto/hubble/flow"
)

// compileSelectors compiles selectors of labels as Kubernetes has them, whose keys may have a source: "k8s:app in (a, b), !tier".
func compileSelectors(texts []string, of func(*flow.Flow) []string) (match, error) {
	var list []labels.Selector
	for _, t := range texts {
		s, err := labels.Parse(qualify(t))
		if err != nil {
			return nil, fmt.Errorf("selector %q: %w", t, err)
		}
		list = append(list, s)
	}
	return func(f *flow.Flow) bool {
		have := sourced(of(f))
		return slices.ContainsFunc(list, func(s labels.Selector) bool { return s.Matches(have) })
	}, nil
}

// Sources of keys that match labels of all sources: that of a key without one, and another name for it.
const anySource, unspecified = "any", "unspec"

// qualify writes SOURCE:KEY as SOURCE.KEY, which is a key for Kubernetes, and KEY as any.KEY.
func qualify(selector string) string {
	var out, key strings.Builder
	inKey, depth := true, 0
	flush := func() {
		if source, rest, found := strings.Cut(key.String(), ":"); found {
			out.WriteString(source + "." + rest)
		} else if key.Len() > 0 {
			out.WriteString(anySource + "." + key.String())
		}
		key.Reset()
	}
	for _, r := range selector {
		separates := unicode.IsSpace(r) || strings.ContainsRune("=!,", r)
		if inKey && !separates {
			key.WriteRune(r)
			continue
		}
		if key.Len() > 0 {
			flush()
			inKey = false
		}
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			inKey = true
		}
		out.WriteRune(r)
	}
	flush()
	return out.String()
}

// sourced are labels SOURCE:KEY=VALUE, which Kubernetes' selectors find by SOURCE.KEY.
type sourced []string

// Lookup implements labels.Labels.
func (s sourced) Lookup(key string) (value string, exists bool) {
	source, name, _ := strings.Cut(key, ".")
	for _, l := range s {
		is, rest, _ := strings.Cut(l, ":")
		if has, value, _ := strings.Cut(rest, "="); has == name && (source == anySource || source == unspecified || source == is) {
			return value, true
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (s sourced) Has(key string) bool {
	_, exists := s.Lookup(key)
	return exists
}

// Get implements labels.Labels.
func (s sourced) Get(key string) string {
	value, _ := s.Lookup(key)
	return value
}
