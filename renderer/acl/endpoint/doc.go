// Package endpoint turns workload endpoints into the interfaces of local pods and their programs.
//
//	workloads, node ─▶ Iface: addresses, endpoints, served ports ─▶ Program: the steps of one direction, for all interfaces with one spec
//
// Pods also has what the later stages share: the tables, and the marks of what these stages have to do again.
//
// Invariant: interfaces whose endpoints have equal specs share a program. A program without an interface uses no segment.
package endpoint
