package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// maxListed bounds how many problems of one object an error lists: a slice may have a thousand wrong endpoints.
const maxListed = 8

// maxShown bounds how much of a wrong value an error shows, in bytes.
const maxShown = 48

// Problem is an error in one field.
type Problem struct {
	Field string // JSON path from the object's root: spec.ports[0].port
	Why   string // what it must be
	Value string // the wrong value, as shown to the reader; "" if none is shown
}

// String returns "field: why (value)".
func (p Problem) String() string {
	if p.Value == "" {
		return p.Field + ": " + p.Why
	}
	return p.Field + ": " + p.Why + " (" + p.Value + ")"
}

// Error holds all problems of one object.
type Error struct {
	Ref      model.Ref
	Problems []Problem // at least one, in the order in which fields are read
}

// Error returns "Kind namespace/name: field: why (value); field: why (value)". It cuts the list after maxListed problems
// and adds their number.
func (e *Error) Error() string { return e.Ref.String() + ": " + e.Text(Problem.String) }

// Text joins the problems as Error does, each formatted by show: a caller can add line numbers.
func (e *Error) Text(show func(Problem) string) string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i == maxListed {
			fmt.Fprintf(&b, "; and %d more problems", len(e.Problems)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(show(p))
	}
	return b.String()
}

// Unsupported reports whether all problems of an object are limits of this program's data planes, so that the object itself
// is valid.
func Unsupported(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && !slices.ContainsFunc(e.Problems, func(p Problem) bool { return !strings.HasPrefix(p.Why, "is not supported") })
}

// Problems collects the problems of one object.
type Problems struct {
	Ref  model.Ref
	List []Problem // in the order in which fields are read
	// For policies only: the paths under spec that did not fit their type or are no fields (they are missing from the
	// decoded object), and whether the whole policy is not understood.
	Broken     []string
	Distrusted bool
}

// Lost reports whether a field, or one that contains it, did not fit.
func (ps *Problems) Lost(field string) bool {
	return slices.ContainsFunc(ps.Broken, func(p string) bool { return InPath(field, p) })
}

// Spoilt reports whether a field is lost or something inside it did not fit.
func (ps *Problems) Spoilt(field string) bool {
	return ps.Lost(field) || slices.ContainsFunc(ps.Broken, func(p string) bool { return InPath(p, field) })
}

// InPath reports whether path equals outer or lies in it.
func InPath(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Add records a problem of a field. It shows value with %q if it is a string, shortened if long, and not at all if nil.
func (ps *Problems) Add(field, why string, value any) {
	shown := ""
	switch v := value.(type) {
	case nil:
	case string:
		shown = quote(v)
	default:
		shown = fmt.Sprint(v)
	}
	ps.List = append(ps.List, Problem{Field: field, Why: why, Value: shown})
}

// Err returns an *Error with all problems; nil: none.
func (ps *Problems) Err() error {
	if len(ps.List) == 0 {
		return nil
	}
	return &Error{Ref: ps.Ref, Problems: ps.List}
}

func quote(s string) string {
	if len(s) <= maxShown {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…, %d characters", strings.ToValidUTF8(s[:maxShown/2], ""), len(s))
}

// ElementPath returns the path of one element of a list.
func ElementPath(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// Nameless reports whether the object's name or namespace is invalid: no value can be kept under it.
func (ps *Problems) Nameless() bool {
	for i := range ps.List {
		if f := ps.List[i].Field; f == "metadata.name" || f == "metadata.namespace" {
			return true
		}
	}
	return false
}
