package kv

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
)

// Equal reports whether two messages are the same: same type, same fields set to the same values, lists in the same
// order. Two nil messages are equal.
func Equal(a, b proto.Message) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	// Compare pointers first: most values of a resync are shared.
	if a == b {
		return true
	}
	x, isList := a.(*acl.ACL)
	y, both := b.(*acl.ACL)
	if isList && both && x != nil && y != nil {
		return equalLists(x, y)
	}
	return proto.Equal(a, b)
}

// equalLists compares access lists. Two states of a list of thousands of rules share most rules, and proto.Equal would compare each of them.
func equalLists(a, b *acl.ACL) bool {
	same := func(x, y *acl.ACL_Rule) bool { return x == y || proto.Equal(x, y) }
	return a.GetName() == b.GetName() && slices.EqualFunc(a.GetRules(), b.GetRules(), same) && proto.Equal(a.GetInterfaces(), b.GetInterfaces()) &&
		bytes.Equal(a.ProtoReflect().GetUnknown(), b.ProtoReflect().GetUnknown())
}
