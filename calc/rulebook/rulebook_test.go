package rulebook

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv-agent/contiv-agent/model"
)

// fill sets every field of v to a different value, so that a forgotten or swapped field shows.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("text-", *n))
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(uint64(*n%250 + 1))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[netip.Prefix]() {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(*n)})
			if *n%2 == 0 {
				a = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(*n)})
			}
			v.Set(reflect.ValueOf(netip.PrefixFrom(a, *n%32)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic("fill: " + v.Kind().String())
	}
}

func TestRulebookKeepsEveryField(t *testing.T) {
	full := make([]model.Rule, 3)
	n := 0
	for i := range full {
		fill(reflect.ValueOf(&full[i]).Elem(), &n)
	}
	var scratch []model.Rule
	var room []byte
	for name, c := range map[string]struct{ in, out []model.Rule }{
		"none": {}, "empty": {[]model.Rule{{}}, []model.Rule{{}, {}}}, "all": {full[:1], full[1:]}, "outbound": {nil, full[:1]},
	} {
		book := Pack(c.in, c.out, &room)
		in, out := book.Unpack(&scratch)
		same := []cmp.Option{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
		if diff := cmp.Diff(c.in, in, same...); diff != "" {
			t.Errorf("%s, inbound:\n%s", name, diff)
		}
		if diff := cmp.Diff(c.out, out, same...); diff != "" {
			t.Errorf("%s, outbound:\n%s", name, diff)
		}
		if again := Pack(in, out, &room); again != book {
			t.Errorf("%s: packing it again gives another rulebook", name)
		}
	}
}

// A change of any field changes the rulebook.
func TestAnyFieldChangesTheRulebook(t *testing.T) {
	var full model.Rule
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n)
	seen := map[Rulebook]string{}
	var vary func(path string, v reflect.Value, rule *model.Rule)
	vary = func(path string, v reflect.Value, rule *model.Rule) {
		if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[netip.Prefix]() {
			for i := range v.NumField() {
				vary(path+"."+v.Type().Field(i).Name, v.Field(i), rule)
			}
			return
		}
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.SetZero()
		book := Pack([]model.Rule{*rule}, nil, new([]byte))
		if other, ok := seen[book]; ok {
			t.Errorf("without %s the rulebook is the same as without %s", path, other)
		}
		seen[book] = path
		v.Set(old)
	}
	rule := full
	vary("rule", reflect.ValueOf(&rule).Elem(), &rule)
	if len(seen) < 30 {
		t.Errorf("only %d fields", len(seen))
	}
}
