// Package interopcni compares contiv-cni with the reference implementation of CNI: the real libcni and cnitool call it, the real host-local
// gives it addresses, and real plugins stand behind it in a chain.
//
// Invariant: the plugin and the others are built programs; only the node behind the agent's socket is modelled (plugins/cni/cnitest).
package interopcni
