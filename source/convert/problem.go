package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// maxListed bounds how many problems of one object are spelled out: a slice may have a thousand wrong endpoints.
const maxListed = 8

// maxShown bounds how much of a wrong value is repeated, in bytes.
const maxShown = 48

// Problem is one thing wrong with one field.
type Problem struct {
	Field string // JSON path from the object's root: spec.ports[0].port
	Why   string // what it must be
	Value string // what it is, as shown to the reader; "" if there is no value to show
}

// String is "field: why (value)".
func (p Problem) String() string {
	if p.Value == "" {
		return p.Field + ": " + p.Why
	}
	return p.Field + ": " + p.Why + " (" + p.Value + ")"
}

// Error is every problem of one object.
type Error struct {
	Ref      model.Ref
	Problems []Problem // at least one, in the order of the object's fields as they are read
}

// Error is "Kind namespace/name: field: why (value); field: why (value)", cut after a few problems with their number.
func (e *Error) Error() string { return e.Ref.String() + ": " + e.Text(Problem.String) }

// Text joins the problems, each printed by show, the way Error does: for readers who can add a line number.
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

// Unsupported tells that all there is to say against an object is that no data plane here can do what it asks for: others can.
func Unsupported(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && !slices.ContainsFunc(e.Problems, func(p Problem) bool { return !strings.HasPrefix(p.Why, "is not supported") })
}

// problems collects what is wrong with one object.
type problems struct {
	ref  model.Ref
	list []Problem
	// Of policies only: the paths under spec of what did not fit its type, or is no field at all (it is not in the decoded
	// object), and whether the policy as a whole is not understood.
	broken     []string
	distrusted bool
}

// lost tells that a field, or something it is in, did not fit.
func (ps *problems) lost(field string) bool {
	return slices.ContainsFunc(ps.broken, func(p string) bool { return within(field, p) })
}

// spoilt is lost, or that something inside the field did not fit.
func (ps *problems) spoilt(field string) bool {
	return ps.lost(field) || slices.ContainsFunc(ps.broken, func(p string) bool { return within(p, field) })
}

// within tells that path is outer, or lies in it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// add records a problem with a field; value is shown with %q if it is a string, shortened if long, not at all if nil.
func (ps *problems) add(field, why string, value any) {
	shown := ""
	switch v := value.(type) {
	case nil:
	case string:
		shown = quote(v)
	default:
		shown = fmt.Sprint(v)
	}
	ps.list = append(ps.list, Problem{Field: field, Why: why, Value: shown})
}

func (ps *problems) err() error {
	if len(ps.list) == 0 {
		return nil
	}
	return &Error{Ref: ps.ref, Problems: ps.list}
}

func quote(s string) string {
	if len(s) <= maxShown {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…, %d characters", strings.ToValidUTF8(s[:maxShown/2], ""), len(s))
}

// at is the path of one element of a list.
func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
