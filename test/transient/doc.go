// Package transient asks what packets meet while a change is half done: whole agents on simulated VPPs, random clusters that
// change, and a look at every VPP after each message it gets.
//
//	World.Step ─▶ agents, one node after the other ─▶ message ─▶ VPP ─▶ packets of new connections, and of old ones
//
// Invariant: while one node changes and the others do not, no packet of a new connection arrives that does not arrive before, and
// not afterwards either.
//
// What is judged is the packet as it arrives: where, from whom, for whom. So a service whose backends change may reach
// the old or the new ones meanwhile, and nobody else. Nodes do not wait for each other: what one has opened already while another is
// still to close it passes, and no node can know.
//
// A pod whose interface has just been made has no lists until the agent has seen it: what is asked of such pods begins with
// the first message that gives their interface lists. Pods that are no more send nothing. What passes until then, and after a restart of
// VPP, TestStreamsAcrossRestarts and TestNewPodIsClosed count: packets before the first write to VPP, none after it.
//
// While VPP refuses requests, three things are let pass that are holes until the retry: what is sent to a service that goes may go on
// untranslated if VPP refuses the list that closes its address; a client that a service hides may get to a pod that only the pod
// itself may reach, if VPP refuses the list that tells them apart, or to take a mapping away that goes; and a new pod with the address
// of one that went may have its lists.
package transient
