// Package fleet turns a folder of manifests into a fan-out server and many agents behind it, each with a simulated VPP. The
// server dies and restarts while the manifests change. Invariant: every VPP ends as if its agent read the manifests itself,
// with no other writes than that agent's.
//
// `go test ./test/fleet -nodes 200` sets the number of nodes.
package fleet
