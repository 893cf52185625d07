// Package adversary turns a seed into a cluster, packets that pods send to break its policies, and everything that happens meanwhile, and
// judges each packet that arrives.
//
//	NewGame(seed) ─▶ objects of test/oracle/policy, Services, a trace.Cluster (agents and simulated VPPs)
//	attacker: packets (own and forged sources, any flags and ports, answers, pushes), changed objects, restarts, time ─▶ Event
//	Event ─▶ trace.Cluster.Inject ─▶ Arrival ─▶ law: may whoever really sent it reach whoever got it?
//	finding ─▶ shrunk, and printed as questions of contiv-agent trace --stateful with their manifests
//
// Invariant: the law knows senders by their interface, never by the source address of a packet, and shares no code with the agent.
//
// The law. A packet that arrives is allowed if the policies of now allow its true sender to open a connection to that address and port, or
// if it is an answer: the policies of now allow whoever got it to open a connection to the port that it was sent from, and it opens nothing
// itself (TCP without SYN or with ACK, no INIT of SCTP, no echo request). ICMP errors pass, as test/oracle/policy says. A client that is
// outside, or is a node, may be hidden behind an address of a node; a pod may be hidden from itself alone. Between the first and the last
// message of a change, the policies before it count as well.
//
// What the law excuses is counted, by name, and printed:
//
//	answer without a request   an answer as above that nobody asked for: whoever got it sent nothing to that port before. A list of
//	                           access rules knows ports, not whether a connection was opened
//	the receiver's own attempt whoever got a packet had sent one the other way before, from and to the same ports, and its own egress
//	                           allows that: where the other side's ingress drops it, nobody says so to the list that let it out. A
//	                           kernel's connection tracking does the same on two nodes (simultaneous open)
//	revoked, and the client is silent since   the server of a connection that is not allowed any more still reaches its client, of which
//	                           nothing came to the server's node since the policies changed: a flow ends with its client's next packet
//	                           (ADR 12)
//	revoked, and another pod has the client's address   the same where the client is gone: at the server's interface nothing ended the session
//	revoked UDP by a Service   the same where the client goes on and dialled a Service: at its own interface nothing is denied (ADR 12)
//	revoked, to a port of 32768 or more   the server's port is one that clients have, and its egress allows the client (ADR 12)
//	a client that a frontend hides   a pod dialled a node port or a load balancer's address, and the endpoint sees a node's address, which
//	                           its ingress allows
//	egress to a frontend, not to its endpoint   such a frontend is translated by another node: the pod's egress allows the frontend
//	left the cluster for an address of pods   nobody has the address any more, a pod's or a NAT loopback's, and the uplink is the way there
//
// BUGS. Whoever is outside sends with own addresses only: what comes in by the uplink with the address of a pod or of a NAT loopback is not
// tried. The simulated VPP knows no fragments. Host endpoints are left out. A restart and a change end before the next
// packet: none is sent between two of their messages (test/transient does that for changes), and no agent stays away. SCTP is counted as known.
package adversary
