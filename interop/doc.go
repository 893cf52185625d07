// Package interop turns Calico v3.31 into a partner of our tests. It is a module of its own, so that nothing of Calico is
// ever a dependency of the product; what has to be built with an older Go is in a further one, peers.
//
//	differential_test.go  random changes → the real calculation graph, and ours, in one process
//	wire_test.go          the same as entries of the datastore → the real graph's frames, and `contiv-agent calc`
//	driver_test.go        etcd, Typha or our fan-out → a real Felix → our driver → the simulated VPP, and statuses back
//	twin_test.go          the same objects to an agent alone, and to one under a real Felix
//	external_test.go      our calculation → a driver written with Felix's own package
//	fanout_test.go        our fan-out → the real sync client
//	typha_test.go         the real sync server → our client
//	vectors_test.go       what Calico's converters write, and what ours write
//
// Invariant: both sides get the same objects in the same order, and what they say is compared in the same form: the
// protobuf bytes Felix would write to a dataplane driver, the bytes Typha would serve, the packets that pass.
package interop

import _ "github.com/contiv-agent/contiv-agent/interop/early" // before any generated code
