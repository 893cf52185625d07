// Package indices finds the interface indices in messages of the binary API.
//
// Invariant: every field of the type InterfaceIndex, and the interface of every path of a route, is visited.
package indices

import (
	"reflect"
	"sync"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
)

// indexFields are the positions of a struct type's fields that hold an interface index, and of the fields that may contain more.
type indexFields struct {
	own    []int
	nested []int
}

// indexCache remembers the fields per message type: reflection over types is far slower than over values.
var indexCache sync.Map // reflect.Type → *indexFields

func indexFieldsOf(t reflect.Type) *indexFields {
	if f, ok := indexCache.Load(t); ok {
		return f.(*indexFields)
	}
	f := &indexFields{}
	for i := range t.NumField() {
		switch ft := t.Field(i).Type; {
		case ft == reflect.TypeFor[interface_types.InterfaceIndex]():
			f.own = append(f.own, i)
		case ft == reflect.TypeFor[[]fib_types.FibPath]():
			f.nested = append(f.nested, i)
		case ft.Kind() == reflect.Struct:
			if in := indexFieldsOf(ft); len(in.own)+len(in.nested) > 0 {
				f.nested = append(f.nested, i)
			}
		}
	}
	indexCache.Store(t, f)
	return f
}

// Each visits the interface indices of a message.
func Each(m api.Message, visit func(uint32)) { forEachIndex(reflect.ValueOf(m).Elem(), visit) }

func forEachIndex(v reflect.Value, visit func(uint32)) {
	if v.Kind() == reflect.Slice {
		for _, p := range v.Interface().([]fib_types.FibPath) {
			visit(p.SwIfIndex)
		}
		return
	}
	f := indexFieldsOf(v.Type())
	for _, i := range f.own {
		visit(uint32(v.Field(i).Uint()))
	}
	for _, i := range f.nested {
		forEachIndex(v.Field(i), visit)
	}
}
