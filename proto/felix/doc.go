// Package felix turns the messages between Felix's calculation graph and a dataplane driver into protobuf values and
// back; they are restated from Calico v3.31.0 (its RouteUpdate differs on the wire before v3.29). Invariant: names and
// numbers are an interface to other programs; they are added to when Felix adds to them, never changed.
package felix
