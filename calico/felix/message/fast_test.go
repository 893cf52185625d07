package message

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// everyRule returns encoded rules: for each field of Rule one with that field and the one before it.
func everyRule(t testing.TB) []raw {
	t.Helper()
	var out []raw
	fields := (&pb.Rule{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		r := &pb.Rule{}
		fill(r.ProtoReflect(), fields.Get(i), 2)
		if i > 0 {
			fill(r.ProtoReflect(), fields.Get(i-1), 1)
		}
		b, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, raw(b))
	}
	return out
}

// fill sets a field; n elements if it is a list.
func fill(m protoreflect.Message, f protoreflect.FieldDescriptor, n int) {
	one := func(message func() protoreflect.Value) protoreflect.Value {
		switch f.Kind() {
		case protoreflect.StringKind:
			return protoreflect.ValueOfString("text-" + string(f.Name()))
		case protoreflect.Int32Kind:
			return protoreflect.ValueOfInt32(int32(f.Number()) + 5)
		case protoreflect.EnumKind:
			return protoreflect.ValueOfEnum(6)
		case protoreflect.MessageKind:
			v := message()
			if below := v.Message().Descriptor().Fields(); below.Len() > 0 && !below.Get(0).IsMap() {
				fill(v.Message(), below.Get(below.Len()-1), n)
			}
			return v
		}
		panic(f.FullName())
	}
	if !f.IsList() {
		m.Set(f, one(func() protoreflect.Value { return m.NewField(f) }))
		return
	}
	list := m.Mutable(f).List()
	for range n {
		list.Append(one(list.NewElement))
	}
}

// Common policies are decoded by the fast decoder, with the same result as protobuf's.
func TestPoliciesAreReadFast(t *testing.T) {
	fields, rules := (&pb.Rule{}).ProtoReflect().Descriptor().Fields(), everyRule(t)
	id := raw{}.str(1, "default").str(2, "prod/knp.default.web")
	policy := func(rules ...raw) raw {
		p := raw{}.str(5, "prod")
		for i, r := range rules {
			p = p.msg(protowire.Number(1+i%2), r)
		}
		return raw{}.msg(7, raw{}.msg(1, id).msg(2, p))
	}
	tests := map[string]struct {
		b    raw
		slow bool
	}{
		"nothing":          {b: raw{}.msg(7, nil)},
		"number first":     {b: append(raw{}.num(15, 1<<40), policy(rules[0])...)},
		"number last":      {b: raw{}.msg(7, raw{}.msg(1, id)).num(15, 300)},
		"flags":            {b: raw{}.msg(7, raw{}.msg(2, raw{}.num(3, 1).num(4, 1).str(6, "a == 'b'").str(7, "Hint").str(7, "")))},
		"v3.32":            {b: policyUpdate(policyID("KubernetesNetworkPolicy", "prod", "web"), "default")},
		"unknown, of both": {b: raw{}.msg(7, raw{}.msg(1, raw{}.str(2, "x").num(77, 5)).msg(2, raw{}.num(8, 1).str(70, "x")))},
		"lists in turns": {b: policy(raw{}.str(4, "a").str(6, "b").str(4, "c").str(10, "d").str(10, "e").
			msg(5, raw{}.num(1, 1)).msg(7, raw{}.num(2, 2)).msg(5, raw{}.num(1, 3).num(2, 4)).msg(5, raw{}))},
		"unknown enum number":  {b: policy(raw{}.num(2, 77))},
		"protocols":            {b: policy(raw{}.msg(3, raw{}.str(2, "tcp")), raw{}.msg(3, raw{}.str(2, "tcp")).msg(102, raw{}.num(1, 132)))},
		"field unknown":        {b: policy(raw{}.num(77, 1)), slow: true},
		"text unknown":         {b: policy(raw{}.str(77, "x")), slow: true},
		"protocol of nothing":  {b: policy(raw{}.msg(3, nil)), slow: true},
		"protocol twice":       {b: policy(raw{}.msg(3, raw{}.str(2, "tcp")).msg(3, raw{}.num(1, 6))), slow: true},
		"protocol in protocol": {b: policy(raw{}.msg(3, raw{}.str(2, "tcp").num(1, 6))), slow: true},
		"large number":         {b: policy(raw{}.num(2, 1<<40)), slow: true},
		"two policies":         {b: append(policy(rules[0]), policy(rules[0])...), slow: true},
		"two names":            {b: raw{}.msg(7, raw{}.msg(1, id).msg(1, id)), slow: true},
		"no text":              {b: policy(raw{}.str(1, "\xff")), slow: true},
		"no text in a list":    {b: policy(raw{}.str(4, "\xff")), slow: true},
		"number for a text":    {b: policy(raw{}.num(1, 3)), slow: true},
		"text for a number":    {b: raw{}.msg(7, raw{}.msg(2, raw{}.str(3, "x"))), slow: true},
		"cut":                  {b: raw{}.msg(7, raw{}.msg(2, raw{}.msg(1, raw{0x0a, 9, 'x'}))), slow: true},
	}
	rare := []protoreflect.Name{"icmp", "not_icmp", "service_account", "http_match", "metadata"}
	for i, rule := range rules {
		slow := false
		for _, name := range rare {
			slow = slow || strings.Contains(string(fields.Get(i).Name()), string(name)) || i > 0 && strings.Contains(string(fields.Get(i-1).Name()), string(name))
		}
		tests[fmt.Sprintf("rule with %s", fields.Get(i).Name())] = struct {
			b    raw
			slow bool
		}{policy(rule, rule, rule), slow}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := NewDecoder()
			for range 2 { // the cache makes no difference
				got, want := d.hot.readMessage(test.b), &pb.ToDataplane{}
				err := proto.Unmarshal(test.b, want)
				if (got == nil) != test.slow || got != nil && (err != nil || !proto.Equal(got, want)) {
					t.Errorf("is %v, %v; read fast: %v", want, err, got)
				}
			}
		})
	}
}

// Lists cut from a shelf are independent: an append to one does not change another.
func TestShelf(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := newShelf[int](r.IntN(30))
		var lists, want [4][]int
		for i := range r.IntN(40) {
			k := r.IntN(4)
			s.appendTo(&lists[k], i)
			want[k] = append(want[k], i)
			if r.IntN(8) == 0 { // by who has it
				lists[k], want[k] = append(lists[k], -1), append(want[k], -1)
				s.last = nil
			}
		}
		for k := range lists {
			if fmt.Sprint(lists[k]) != fmt.Sprint(want[k]) {
				t.Fatalf("seed %d, list %d is %v, want %v", seed, k, lists[k], want[k])
			}
		}
	}
}
