package event

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Merge says how one external value is merged over the value its key has before it: the agent's own, then those of
// sources whose names sort earlier. It does what proto.Merge cannot: unset a field, and leave out list elements. The
// zero value is plain proto.Merge.
type Merge struct {
	// Replace are fields that are cleared before the value is merged in: a field that the value sets is replaced, one
	// that it does not set is unset. Each is a path of field names as in the .proto, with dots: "mtu",
	// "tap.rx_ring_size". All is the whole value.
	Replace []string
	// Once leaves out list elements of the value that the list already has.
	Once bool
}

// All, as a path, is every field.
const All = "*"

// Words of the text of a Merge.
const (
	replaceWord = "replace"
	onceWord    = "once"
)

// String is the text that ParseMerge reads: words separated by a space, "replace=mtu,ip_addresses once". "replace"
// alone means all fields, and the zero value is "".
func (m Merge) String() string {
	var words []string
	switch {
	case m.replacesAll():
		words = append(words, replaceWord)
	case len(m.Replace) > 0:
		words = append(words, replaceWord+"="+strings.Join(m.Replace, ","))
	}
	if m.Once {
		words = append(words, onceWord)
	}
	return strings.Join(words, " ")
}

// ParseMerge is the inverse of String. It does not check that the fields exist: see Check.
func ParseMerge(text string) (m Merge, err error) {
	for _, word := range strings.Fields(text) {
		name, fields, given := strings.Cut(word, "=")
		switch {
		case word == onceWord:
			m.Once = true
		case word == replaceWord:
			m.Replace = append(m.Replace, All)
		case name == replaceWord && given:
			m.Replace = append(m.Replace, strings.Split(fields, ",")...)
		default:
			return Merge{}, fmt.Errorf("merge %q: %q: want %s, %s=<field>,… or %s", text, word, replaceWord, replaceWord, onceWord)
		}
	}
	return m, nil
}

// Zero says that m is plain proto.Merge.
func (m Merge) Zero() bool { return len(m.Replace) == 0 && !m.Once }

func (m Merge) replacesAll() bool {
	for _, path := range m.Replace {
		if path == All {
			return true
		}
	}
	return false
}

// Check fails for the first path that is no field of such messages, or that leads through a list.
func (m Merge) Check(message protoreflect.MessageDescriptor) error {
	for _, path := range m.Replace {
		if path == All {
			continue
		}
		at := message
		for name := range strings.SplitSeq(path, ".") {
			var field protoreflect.FieldDescriptor
			if at != nil {
				field = at.Fields().ByName(protoreflect.Name(name))
			}
			if field == nil {
				return fmt.Errorf("merge: %s has no field %q", message.FullName(), path)
			}
			if at = field.Message(); field.Cardinality() == protoreflect.Repeated {
				at = nil
			}
		}
	}
	return nil
}

// Into merges src into dst, which has the same type and is changed. Src is not changed, and dst shares nothing with src
// afterwards.
func (m Merge) Into(dst, src proto.Message) {
	if m.replacesAll() {
		proto.Reset(dst)
	}
	for _, path := range m.Replace {
		if path != All {
			unset(dst.ProtoReflect(), path)
		}
	}
	if m.Once {
		src = proto.Clone(src)
		onlyNew(dst.ProtoReflect(), src.ProtoReflect())
	}
	proto.Merge(dst, src)
}

func unset(m protoreflect.Message, path string) {
	name, rest, deeper := strings.Cut(path, ".")
	field := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	switch {
	case field == nil || !m.Has(field):
	case !deeper:
		m.Clear(field)
	case field.Message() != nil && field.Cardinality() != protoreflect.Repeated:
		unset(m.Mutable(field).Message(), rest)
	}
}

// onlyNew removes from the lists in m the elements that the same list in have has.
func onlyNew(have, m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case !have.Has(field):
		case field.IsList():
			there := map[any]bool{}
			for i := range have.Get(field).List().Len() {
				there[element(have.Get(field).List().Get(i))] = true
			}
			list := m.Mutable(field).List()
			kept := 0
			for i := range list.Len() {
				if e := list.Get(i); !there[element(e)] {
					list.Set(kept, e)
					kept++
				}
			}
			list.Truncate(kept)
		case field.Message() != nil && !field.IsMap():
			onlyNew(have.Get(field).Message(), m.Mutable(field).Message())
		}
		return true
	})
}

// element returns a comparable value that is equal for equal list elements only.
func element(v protoreflect.Value) any {
	switch x := v.Interface().(type) {
	case protoreflect.Message:
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(x.Interface())
		if err != nil {
			return x // text that is not UTF-8: equal to nothing else
		}
		return string(b)
	case []byte:
		return string(x)
	default:
		return x
	}
}
