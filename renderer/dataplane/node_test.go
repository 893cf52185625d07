package dataplane

import (
	"net/netip"
	"reflect"
	"testing"
)

// Equal must compare every field: a driver gets no update for a field that Equal ignores.
func TestEqualComparesEveryField(t *testing.T) {
	for _, zero := range []any{Node{}, Outer{}} {
		typ := reflect.TypeOf(zero)
		for i := range typ.NumField() {
			changed := reflect.New(typ)
			fill(changed.Elem().Field(i))
			var same, itself bool
			switch c := changed.Interface().(type) {
			case *Node:
				same, itself = c.Equal(&Node{}), c.Equal(c)
			case *Outer:
				same, itself = c.Equal(&Outer{}), c.Equal(c)
			}
			if same || !itself {
				t.Errorf("%s with another %s: equal to zero %v, to itself %v", typ.Name(), typ.Field(i).Name, same, itself)
			}
		}
	}
}

// fill sets v to something other than its zero value.
func fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[netip.Addr]() {
		v.Set(reflect.ValueOf(netip.IPv6LinkLocalAllNodes()))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	default:
		panic(v.Type().String())
	}
}

func TestSameOuter(t *testing.T) {
	list := func(ports ...uint16) (out []Outer) {
		for _, p := range ports {
			out = append(out, Outer{Proto: 6, Port: p, Backends: []netip.AddrPort{netip.AddrPortFrom(netip.IPv6LinkLocalAllNodes(), p)}})
		}
		return out
	}
	one := list(80, 443)
	for _, c := range []struct {
		a, b []Outer
		want bool
	}{
		{nil, nil, true},
		{nil, one, false},
		{one, one, true},
		{one, one[:1], false},
		{one, list(80, 443), true},
		{one, list(443, 80), false},
	} {
		if got := SameOuter(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %v", c.a, c.b, got)
		}
	}
}
