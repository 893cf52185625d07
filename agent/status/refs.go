package status

import (
	"encoding/json"

	"github.com/contiv-agent/contiv-agent/fields"
)

// named is the object that a part of the status is about; nil: it is about none.
type named struct {
	Ref *fields.Object `json:"objectRef,omitempty"`
}

func namedBy(text string) named { return named{fields.ObjectOf(text)} }

// MarshalJSON adds the fields of the object.
func (p Problem) MarshalJSON() ([]byte, error) {
	type plain Problem
	return json.Marshal(struct {
		plain
		named
	}{plain(p), namedBy(p.Object)})
}

// MarshalJSON adds the fields of the object.
func (r Refusal) MarshalJSON() ([]byte, error) {
	type plain Refusal
	return json.Marshal(struct {
		plain
		named
	}{plain(r), namedBy(r.Object)})
}

// MarshalJSON adds the fields of the object.
func (n Note) MarshalJSON() ([]byte, error) {
	type plain Note
	return json.Marshal(struct {
		plain
		named
	}{plain(n), namedBy(n.Object)})
}

// MarshalJSON adds the fields of the Service.
func (s Service) MarshalJSON() ([]byte, error) {
	type plain Service
	return json.Marshal(struct {
		plain
		named
	}{plain(s), namedBy("Service " + s.Name)})
}
