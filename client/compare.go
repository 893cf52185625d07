package client

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/contiv-agent/contiv-agent/kv"
)

// Difference describes how one item differs.
type Difference struct {
	Key    string
	Fields []Field // none if one side lacks the item
	Only   Side    // the only side that has the item, if any
}

// Field is a field with another value than it should have.
type Field struct {
	Path string `json:"field"` // as in the .proto: "mtu", "ip_addresses[1]", "tap.version"
	// Is and Shall are JSON: a scalar as it is, an enum by name, a message or a map as an object. Is nil: the field is not set, or the list of this
	// name lacks the element Shall. Shall nil: the field should not be set.
	Is    json.RawMessage `json:"is,omitempty"`
	Shall json.RawMessage `json:"shall,omitempty"`
	// Lacks means that Path is a list, and Shall an element that it lacks.
	Lacks bool `json:"lacks,omitempty"`
}

// String is "mtu: 1500, not 9000", or `ip_addresses: lacks "10.0.0.2/24"`.
func (f Field) String() string {
	if f.Lacks {
		return f.Path + ": lacks " + wordOf(f.Shall)
	}
	return fmt.Sprintf("%s: %s, not %s", f.Path, wordOf(f.Is), wordOf(f.Shall))
}

// wordOf returns a value for people.
func wordOf(value json.RawMessage) string {
	if value == nil {
		return "unset"
	}
	return string(value)
}

// Side is a side of a comparison.
type Side string

// Sides of a comparison.
const (
	Both  Side = ""
	File  Side = "file"
	Agent Side = "agent"
)

// Compare returns how a file's items differ from this client's items in the agent, sorted by key. An item that the file
// names without a value differs if the agent has it. With everything (a resync), items that the file does not name differ,
// too.
func Compare(docs []Document, wanted []Item, everything bool) []Difference {
	have := map[string]proto.Message{}
	for _, item := range wanted {
		have[item.Key] = item.Message
	}
	var out []Difference
	for _, d := range docs {
		switch there := have[d.Key]; {
		case there == nil && d.Message == nil:
		case there == nil:
			out = append(out, Difference{Key: d.Key, Only: File})
		case d.Message == nil:
			out = append(out, Difference{Key: d.Key, Only: Agent})
		default:
			if fields := fieldsOf(there, d.Message); len(fields) > 0 {
				out = append(out, Difference{Key: d.Key, Fields: fields})
			}
		}
		delete(have, d.Key)
	}
	if everything {
		for _, key := range slices.Sorted(maps.Keys(have)) {
			out = append(out, Difference{Key: key, Only: Agent})
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// fieldsOf returns the fields in which two messages differ.
func fieldsOf(is, shall proto.Message) (out []Field) {
	a, b := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	flatten(a, "", is.ProtoReflect())
	flatten(b, "", shall.ProtoReflect())
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if string(a[path]) != string(b[path]) {
			out = append(out, Field{Path: path, Is: a[path], Shall: b[path]})
		}
	}
	return out
}

// flatten adds every set field under its path.
func flatten(into map[string]json.RawMessage, prefix string, m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := prefix + string(f.Name())
		one := func(path string, v protoreflect.Value) {
			if f.Message() == nil {
				into[path] = scalar(f, v)
				return
			}
			into[path] = json.RawMessage("{}")
			flatten(into, path+".", v.Message())
		}
		switch {
		case f.IsList():
			for i := range v.List().Len() {
				one(fmt.Sprintf("%s[%d]", path, i), v.List().Get(i))
			}
		case f.IsMap():
			into[path] = mapValue(v)
		default:
			one(path, v)
		}
		return true
	})
}

// Lacks returns the fields of shall that has lacks or has differently. has may have more fields: other owners' values are
// merged into it.
func Lacks(has, shall proto.Message) []Field {
	return lacks("", has.ProtoReflect(), shall.ProtoReflect())
}

func lacks(prefix string, has, shall protoreflect.Message) (out []Field) {
	shall.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := prefix + string(f.Name())
		switch is := has.Get(f); {
		case f.IsList():
			for i := range v.List().Len() {
				if e := v.List().Get(i); !contains(is.List(), e) {
					out = append(out, Field{Path: path, Shall: scalar(f, e), Lacks: true})
				}
			}
		case f.IsMap():
			if !is.Equal(v) {
				out = append(out, Field{Path: path, Is: mapValue(is), Shall: mapValue(v)})
			}
		case f.Message() == nil:
			if !is.Equal(v) {
				out = append(out, Field{Path: path, Is: scalar(f, is), Shall: scalar(f, v)})
			}
		default:
			out = append(out, lacks(path+".", is.Message(), v.Message())...)
		}
		return true
	})
	slices.SortFunc(out, func(a, b Field) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func contains(list protoreflect.List, e protoreflect.Value) bool {
	for i := range list.Len() {
		if list.Get(i).Equal(e) {
			return true
		}
	}
	return false
}

// scalar returns a value of a field, or an element of its list, as JSON.
func scalar(f protoreflect.FieldDescriptor, v protoreflect.Value) json.RawMessage {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		text, err := kv.MarshalJSON(v.Message().Interface())
		if err != nil {
			return quoted(err.Error())
		}
		return text
	case protoreflect.EnumKind:
		if value := f.Enum().Values().ByNumber(v.Enum()); value != nil {
			return quoted(string(value.Name()))
		}
		return json.RawMessage(v.String())
	case protoreflect.StringKind:
		return quoted(v.String())
	case protoreflect.BytesKind:
		return quoted(hex.EncodeToString(v.Bytes()))
	}
	return json.RawMessage(v.String()) // a number or a bool
}

// mapValue returns a map as text: the messages of models have none.
func mapValue(v protoreflect.Value) json.RawMessage { return quoted(fmt.Sprint(v.Interface())) }

func quoted(text string) json.RawMessage {
	out, _ := json.Marshal(text) // a string has no error
	return out
}
