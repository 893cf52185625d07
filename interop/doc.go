// Package interop compares this project with Calico v3.31 itself. It is a separate module, so that the product never depends
// on Calico; programs that need an older Go are in another module, peers.
//
//	differential_test.go  random changes → the real calculation graph, and ours, in one process
//	wire_test.go          the same as entries of the datastore → the real graph's frames, and `contiv-agent calc`
//	driver_test.go        etcd, Typha or our fan-out → a real Felix → our driver → the simulated VPP, and statuses back
//	twin_test.go          the same objects to an agent alone, and to one under a real Felix
//	external_test.go      our calculation → a driver written with Felix's own package
//	fanout_test.go        our fan-out → the real sync client
//	typha_test.go         the real sync server → our client
//	vectors_test.go       the output of Calico's converters, and of ours
//
// Invariant: both sides get the same objects in the same order, and the test compares their output in the same form: the
// protobuf bytes that Felix writes to a dataplane driver, the bytes that Typha serves, the packets that pass.
package interop

import _ "github.com/contiv-agent/contiv-agent/interop/early" // before any generated code
