// Package ifaces turns interfaces of VPP, their addresses and their tables into requests: loopback, tap, af_packet, memif, VXLAN tunnel and
// sub-interface.
//
// Invariant: an interface that another client made is never changed or deleted.
package ifaces
