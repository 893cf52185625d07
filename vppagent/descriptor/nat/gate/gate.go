// Package gate turns a change of a DNat44 into the kinds of values that must precede it.
//
// Invariant: a change that leads packets to an endpoint by an address where nothing led to it before, or that hides other clients, follows the access
// lists. A change that only removes endpoints follows nothing: they may no longer exist.
package gate

import (
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/translation"
)

// Kind is the name of the kind whose changes this is about.
const Kind = "dnat44"

// Behind returns the names of the kinds whose values must not be missing when VPP gets the state want, if it has have; nil: it has nothing. message returns
// the message of a state.
func Behind(message func(state any) proto.Message, have, want any) []string {
	var before proto.Message
	if have != nil {
		before = message(have)
	}
	if len(translation.Without(message(want), before)) == 0 {
		return nil
	}
	return []string{"acl", "interface-acls"}
}
