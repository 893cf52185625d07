// Package transient checks the fate of packets during a change: whole agents on simulated VPPs, random clusters that change,
// and a check of every VPP after each message to it.
//
//	World.Step ─▶ agents, one node after the other ─▶ message ─▶ VPP ─┬─▶ packets of new connections: their sessions are undone
//	                                                                  └─▶ packets of connections that live on: their sessions stay
//
// Invariant: while one node changes and the others do not, no packet of a new connection arrives that arrives neither before
// nor after the change, and each one arrives that arrives before and after it. So do the packets of a connection that lives on, if a new one like
// it would be allowed before and after the change. Drops that VPP's messages leave no way around are counted by kind, each with a bound
// (exceptions_test.go, ADR 32).
//
// The test evaluates the packet as it arrives: place, source, destination. So the packet for a Service whose backends change
// may reach the old or the new ones meanwhile, and no other. Nodes do not wait for each other: a packet passes if one node
// has already opened and another has not yet closed, and no node can know that.
//
// Probes of new connections must not help each other, so the test restores the sessions after each. Connections that live on have other ports, their
// packets are sent for good, and they last for as many changes as they are allowed. VPP's sessions do not distinguish ports of SCTP: a world has either new
// associations or some that live on.
//
// A pod whose interface is new has no lists until the agent has seen it: the checks of such pods begin with the first
// message that gives their interface lists. Deleted pods send nothing. TestStreamsAcrossRestarts and TestNewPodIsClosed
// count the packets that pass until then, and after a restart of VPP: they pass before the first write to VPP, none after
// it.
//
// While VPP refuses requests, the test accepts three holes until the retry, and any drop. A packet to a removed Service may pass
// untranslated if VPP refuses the list that closes its address. A client that a Service hides may reach a pod that only the
// pod itself may reach, if VPP refuses the list that distinguishes them, or the removal of a mapping. And a new pod with the
// address of a deleted one may have its lists. Packets that pass when the rest of a change no longer waits for an interim state that VPP refuses, after 30 s, are
// counted, and bounded: five in a thousand changes of a node.
package transient
