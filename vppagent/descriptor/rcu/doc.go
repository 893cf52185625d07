// Package rcu turns requests for VPP, and VPP's process, into the kernel's switch that ends waits for RCU grace periods early.
//
// Invariant: the switch is on only while VPP makes or removes an interface of the kernel, or ends; and a switch that another program has set stays as it is.
package rcu
