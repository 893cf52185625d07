package kv_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
)

// drawnList is an access list, of which some rules are those of another one.
func drawnList(t *rapid.T, shared []*acl.ACL_Rule) *acl.ACL {
	a := &acl.ACL{Name: rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "name")}
	if rapid.IntRange(0, 3).Draw(t, "interfaces") == 0 {
		a.Interfaces = &acl.ACL_Interfaces{Ingress: rapid.SampledFrom([][]string{nil, {"x"}}).Draw(t, "ingress")}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "rules") {
		switch n := rapid.IntRange(0, 3).Draw(t, "rule"); {
		case i < len(shared) && n > 0:
			a.Rules = append(a.Rules, shared[i])
		case i < len(shared) && shared[i] != nil:
			a.Rules = append(a.Rules, proto.Clone(shared[i]).(*acl.ACL_Rule))
		default:
			a.Rules = append(a.Rules, &acl.ACL_Rule{Action: acl.ACL_Rule_Action(n % 2), IpRule: &acl.ACL_Rule_IpRule{Ip: &acl.ACL_Rule_IpRule_Ip{SourceNetwork: fmt.Sprintf("10.0.0.%d/32", n)}}})
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "unknown") == 0 {
		a.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 1})
	}
	return a
}

// TestEqualIsProtoEqual: access lists that share rules are equal if all their fields are.
func TestEqualIsProtoEqual(t *testing.T) {
	equal := 0
	rapid.Check(t, func(t *rapid.T) {
		a := drawnList(t, nil)
		b := drawnList(t, a.Rules)
		got, want := kv.Equal(a, b), proto.Equal(a, b)
		if got != want {
			t.Fatalf("%v is equal to %v: %v, want %v", a, b, got, want)
		}
		if got {
			equal++
		}
	})
	if equal == 0 && !testing.Short() { // fewer checks may have none
		t.Error("no lists were equal")
	}
	if n := (&acl.ACL{}).ProtoReflect().Descriptor().Fields().Len(); n != 3 {
		t.Errorf("an access list has %d fields, Equal compares 3", n)
	}
	var none *acl.ACL
	for _, other := range []proto.Message{none, &acl.ACL{}, nil} {
		if kv.Equal(none, other) != (other != nil && proto.Equal(none, other)) {
			t.Errorf("a nil list and %v: %v", other, kv.Equal(none, other))
		}
	}
}

// BenchmarkEqualLists compares two states of a list of thousands of rules, of which one differs in the end.
func BenchmarkEqualLists(b *testing.B) {
	x, y := &acl.ACL{Name: "a"}, &acl.ACL{Name: "a"}
	for i := range 5000 {
		x.Rules = append(x.Rules, &acl.ACL_Rule{IpRule: &acl.ACL_Rule_IpRule{Ip: &acl.ACL_Rule_IpRule_Ip{SourceNetwork: fmt.Sprint(i)}}})
	}
	y.Rules = append(append(y.Rules, x.Rules...), &acl.ACL_Rule{})
	x.Rules = append(x.Rules, &acl.ACL_Rule{Action: acl.ACL_Rule_PERMIT})
	b.ReportAllocs()
	for b.Loop() {
		if kv.Equal(x, y) {
			b.Fatal("equal")
		}
	}
}
