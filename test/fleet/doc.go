// Package fleet turns a folder of manifests into a fan-out server and many agents behind it, each with a simulated VPP, and lets
// the server die and come back while the manifests change. Its invariant: every VPP ends as if its agent read the manifests
// itself, with no other writes than that agent's.
//
// `go test ./test/fleet -nodes 200` takes as many nodes.
package fleet
