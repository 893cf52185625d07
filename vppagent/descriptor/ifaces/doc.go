// Package ifaces turns interfaces of VPP, their addresses and their tables into requests: loopback, tap, af_packet, memif, VXLAN tunnel and
// sub-interface.
//
// Invariant: the agent never changes or deletes an interface that another client made.
package ifaces
