// Package outer turns addresses that hide clients or pods into tables: addresses of Services outside the ranges of the cluster, and those from
// which nat44 sends packets of protocols that it does not translate.
//
//	outer address ─┬─ keeps its clients ─▶ evaluated where the packets lead
//	               └─ hides them ─┬─▶ the dialling pod: its program for all backends
//	                              └─▶ the backend: not taken for the pod itself at these ports
//
// Invariant: the tables depend on the node, the programs and the sets alone.
package outer
