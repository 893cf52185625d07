// Package passthru turns objects that go to the data plane nearly unchanged into messages: addresses of nodes, pools, WireGuard, Services, BGP, and
// the labels of namespaces and service accounts, which arrive as profiles.
//
// Invariant: after a flush the messages sent so far describe the present objects and nothing else. The order of kinds is that of Felix.
package passthru
