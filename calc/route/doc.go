// Package route turns pools, blocks, nodes and workloads into the routes and VXLAN tunnel endpoints that one node needs, as Felix sends them to its data plane.
//
// Invariant: the routes depend on the present objects only. If several objects claim a network, the first in a fixed order counts, so that the order of
// arrival does not matter.
package route
