// Package interop turns one stream of cluster objects into two: what the real calculation graph of Felix v3.31.0 says, and
// what ours says. It is a module of its own, so that nothing of Calico is ever a dependency of the product.
//
// Invariant: both graphs get the same objects in the same order, and their messages are compared in the same form, the
// protobuf bytes Felix would write to a dataplane driver.
package interop

import _ "github.com/contiv-agent/contiv-agent/interop/early" // before any generated code
