package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
)

// Fit compares a tree of JSON values with the Go type to decode it into. Decoders stop at the first mismatch and do not say
// in which list element it was; fit finds all mismatches, with their paths. It sets them to null in the tree, so that the
// rest can be decoded.
type Fit struct {
	Wrong   []Problem
	Unknown []string // paths of fields the type does not have
}

// CheckType compares v with t. Null fits every type: it means that the field is absent.
func (s *Fit) CheckType(path string, t reflect.Type, v any) {
	if v == nil {
		return
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		s.custom(path, t, v)
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		s.CheckType(path, t.Elem(), v)
	case reflect.Struct:
		s.object(path, t, v)
	case reflect.Map:
		s.mapping(path, t, v)
	case reflect.Slice:
		s.list(path, t, v)
	case reflect.String:
		if _, ok := v.(string); !ok {
			s.notString(path, v)
		}
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			s.mismatch(path, "true or false", v)
		}
	case reflect.Int32, reflect.Int64, reflect.Int:
		s.integer(path, t.Bits(), v)
	case reflect.Float64:
		if _, ok := v.(json.Number); !ok {
			s.mismatch(path, "a number", v)
		}
	}
}

// misfit checks v, and reports whether v itself does not fit, as opposed to something inside it.
func (s *Fit) misfit(path string, t reflect.Type, v any) bool {
	known := len(s.Wrong)
	s.CheckType(path, t, v)
	return len(s.Wrong) > known && s.Wrong[known].Field == path
}

func (s *Fit) object(path string, t reflect.Type, v any) {
	m, ok := v.(map[string]any)
	if !ok {
		s.mismatch(path, "a mapping", v)
		return
	}
	fields := map[string]reflect.Type{}
	jsonFields(t, fields)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if f, ok := fields[k]; ok {
			if s.misfit(joinPath(path, k), f, m[k]) {
				m[k] = nil
			}
		} else {
			s.Unknown = append(s.Unknown, joinPath(path, k))
		}
	}
}

// jsonFields collects the fields of a struct by their JSON names, with those of embedded structs.
func jsonFields(t reflect.Type, into map[string]reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			jsonFields(f.Type, into)
		case name == "-" || !f.IsExported():
		case name != "":
			into[name] = f.Type
		}
	}
}

func (s *Fit) mapping(path string, t reflect.Type, v any) {
	m, ok := v.(map[string]any)
	if !ok {
		s.mismatch(path, "a mapping", v)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if s.misfit(path+"["+k+"]", t.Elem(), m[k]) {
			m[k] = nil
		}
	}
}

func (s *Fit) list(path string, t reflect.Type, v any) {
	if t.Elem().Kind() == reflect.Uint8 {
		if _, ok := v.(string); !ok {
			s.mismatch(path, "a base64 string", v)
		}
		return
	}
	l, ok := v.([]any)
	if !ok {
		s.mismatch(path, "a list", v)
		return
	}
	for i, e := range l {
		if s.misfit(fmt.Sprintf("%s[%d]", path, i), t.Elem(), e) {
			l[i] = nil
		}
	}
}

func (s *Fit) integer(path string, bits int, v any) {
	n, ok := v.(json.Number)
	if !ok {
		s.mismatch(path, "a whole number", v)
		return
	}
	if _, err := strconv.ParseInt(n.String(), 10, bits); err != nil {
		s.mismatch(path, "a whole number of at most "+strconv.Itoa(bits)+" bits", v)
	}
}

// custom lets a type with its own decoder check v.
func (s *Fit) custom(path string, t reflect.Type, v any) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err == nil {
		return
	}
	switch t {
	case reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[v3.Port](), reflect.TypeFor[v3.Protocol]():
		s.mismatch(path, "a whole number or a string", v)
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		s.mismatch(path, "a time such as 2026-01-31T12:00:00Z", v)
	case reflect.TypeFor[resource.Quantity]():
		s.mismatch(path, "a quantity such as 100m or 1Gi", v)
	default:
		s.Wrong = append(s.Wrong, Problem{Field: path, Why: "cannot be read: " + err.Error()})
	}
}

// notString explains how to write a string that YAML reads as another type: y, on, 1.10.
func (s *Fit) notString(path string, v any) {
	switch v.(type) {
	case bool, json.Number:
		s.mismatch(path, "a string, so it needs quotes", v)
	default:
		s.mismatch(path, "a string", v)
	}
}

func (s *Fit) mismatch(path, want string, v any) {
	shown := ""
	switch v := v.(type) {
	case string:
		if shown = strconv.Quote(v); len(shown) > 48 {
			shown = fmt.Sprintf("a string of %d characters", len(v))
		}
	case map[string]any:
		shown = "a mapping"
	case []any:
		shown = "a list"
	default:
		shown = fmt.Sprint(v)
	}
	s.Wrong = append(s.Wrong, Problem{Field: path, Why: "must be " + want, Value: shown})
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
