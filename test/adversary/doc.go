// Package adversary turns a seed into a cluster, packets that pods send to break its policies, and everything that happens meanwhile, and
// evaluates each packet that arrives.
//
//	NewGame(seed) ─▶ objects of test/oracle/policy, Services, a trace.Cluster (agents and simulated VPPs)
//	attacker: packets (own and forged sources, any flags and ports, answers, pushes), changed objects, restarts, time ─▶ Event
//	Event ─▶ trace.Cluster.Inject ─▶ Arrival ─▶ law: may its true sender reach its receiver?
//	finding ─▶ shrunk, and printed as questions of contiv-agent trace --stateful with their manifests
//
// Invariant: the law knows senders by their interface, never by the source address of a packet, and shares no code with the agent.
//
// The law. A packet that arrives is allowed if the policies of now allow its true sender to open a connection to that address and port, or if it is an
// answer: the policies of now allow its receiver to open a connection to the port that it was sent from, and it opens nothing itself (TCP without SYN or
// with ACK, no INIT of SCTP, no echo request). ICMP errors pass, as test/oracle/policy says. A client that is outside, or is a node, may be hidden behind
// an address of a node; a pod may be hidden from itself alone. Between the first and the last message of a change, the policies before it count as well.
//
// Packets are also sent between two messages to a VPP (CONTIV_BETWEEN=no: not). Agents stay away while objects change. A VPP that restarts gets its
// interfaces and routes back in random order, while its agent writes. After a change, recent flows continue.
//
// Extra packets follow one in four events. They are fragments (all, some, in another order, with a second first fragment that has other ports), and
// packets that enter by an uplink under an address of the cluster. They have a separate random stream and the attacker does not remember them, so that a
// seed draws the same other events with and without them (CONTIV_EXTRAS=no); sessions that they make may change what arrives. A first fragment is
// evaluated like a whole packet: without it no kernel makes a datagram whole. Later fragments are counted. A packet from outside has the rights of who has
// its address, unless that is the receiver's node or of its pods: then it has its true sender's. A connection with the same ports need not go on behind
// it: NAT makes a session of the packet, and translates the owner's next one by it (renderer/acl, BUGS).
//
// Packets that must arrive. After each sequence and a settling time, new connections arrive exactly where the policies allow them. A connection between
// pods that the policies allowed ever since it began continues in both directions: directly, whatever happened; by a Service, as long as no VPP restarted,
// no time passed and no Service changed.
//
// An answer to a client that a node's address hides may reach that node itself, after its VPP lost the translation, or the translation expired. The law
// takes it for an answer to that client: for the session at the server's interface, which knows the client by that address and port. So does a pod that
// reached itself by a node. A VPP that dies of a packet breaks the law, too.
//
// The law counts its excuses by name, and TestAdversary prints them. A test bounds each at one in 50 arrivals, from 200 sequences on. Where and until when each holds:
//
//	answer without a request   an answer as above that nobody asked for: whoever got it sent nothing to that port before. A list of access
//	                           rules knows ports, not whether a connection was opened. For ever; it opens nothing
//	the receiver's own attempt whoever got a packet had sent one the other way before, from and to the same ports, and its own egress
//	                           allows that: where the other side's ingress drops it, nobody reports that to the list that let it out. A
//	                           kernel's connection tracking does the same on two nodes (simultaneous open)
//	the receiver's own attempt, revoked, and the receiver is silent since   the same after its egress was revoked: until its next packet
//	                           of that connection, and its answer is one. Of packets that open something only a SYN of TCP, from the
//	                           same port, is part of it, which has a name: the receiver's own attempt, revoked, and the other side sends a SYN
//	revoked, and nothing of the client came since   the server of a connection that is not allowed any more still reaches its client: until
//	                           a packet of the client comes to the server's interface and is dropped there (ADR 12)
//	revoked, and another pod has the client's address   the same where the client is gone: at the server's interface nothing ended the session
//	revoked, by a Service      the same where the client goes on and dialled a Service: at its own interface nothing is denied, only at
//	                           the server's (ADR 12). TCP ends as nothing acknowledges it, UDP when the server is silent
//	revoked, to a port of 32768 or more   the server's port is one that clients have, and its egress allows the client (ADR 12)
//	revoked, from a port below 32768   the client's port is one that servers have, its ingress allows the server, and the server sent
//	                           something to it (ADR 12)
//	revoked, and a packet of the other side made a session anew   one of the above, or one by an interface that nobody had closed, came to a receiver whose ingress allows it, or that had dialled a Service by another node, and was a
//	                           request there: a SYN, or to a port below 32768. Answers to it pass, until both are silent (ADR 12)
//	a client that a frontend hides   a pod dialled a node port or a load balancer's address, and the endpoint sees a node's address, which its ingress allows
//	the port of a client that a frontend hides   a node or a client outside dialled such a frontend, and the endpoint's ingress asks for a source port: it sees the
//	                           translated one, as with kube-proxy's masquerade
//	a client with another node's address, since a Service led there   the same packet sent to the endpoint itself, from the same port, with nat44 (ADR 13)
//	egress to a frontend, not to its endpoint   such a frontend is translated by another node: the pod's egress allows the frontend
//	left the cluster for an address of pods   nobody has the address any more, a pod's or a NAT loopback's, and the uplink is the way there
//	SCTP of no association, which begins none   neither side sent an INIT that arrived (ADR 11)
//	SCTP of a revoked association, between addresses that may have others   at other ports (ADR 11)
//	SCTP of a revoked association, where policies ask for ports of SCTP   until a side begins anew: an interface with a filter lets through
//	                           what begins nothing (ADR 11)
//	SCTP by a session of the receiver's, who is silent since   it sent SCTP to that address before policies changed (ADR 11)
//	SCTP from outside by a session of the node's   the node sent SCTP to that address before, or a sender behind
//	                           its address did; it has a host endpoint (ADR 11)
//	between two nodes, of which one has changed already   the sender's egress and the receiver's ingress allow it, one as before a change
//	                           and one as after it: until the change ends
//	an answer to a port that its receiver serves   an allowed connection fails: its client uses a port from 32768 on that its containers, an
//	                           EndpointSlice or a rule for its ingress declares, and its ingress does not allow the server (ADR 12)
//	an answer whose session ended with an older one between the same ends   an allowed connection fails: the server's egress allowed its answers by
//	                           itself once, and does not now. Such an answer makes a session; the client's has the same key for answers, and the
//	                           end of the older one removes it (ADR 12)
//	a policy that is too big for VPP, and says so   an allowed connection fails: negations are too many rules on a VPP that compares whole
//	                           bytes of IPv6 addresses (24.06, which the simulated one is)
//	an agent is away, and the policies are those of before   until it starts
//	an interface that no agent has closed yet   until its lists, or the first write of the agent to that VPP that is no list; where
//	                           interfaces come while the agent writes, until their lists (ADR 14)
//	an outsider under the address of another node, or of its pod   for ever; the network outside has to drop such packets
//	an outsider under the address of a node, to which the receiver sent   or of VPP as its router; from and to the same ports, as the
//	                           receiver's own attempt; the network outside has to drop such packets, too
//	a pod by the session of an outsider's forged packet   the outsider sent it between the same ends, where no list stopped it; the network
//	                           outside has to drop such packets. With cnat the pod may have the address there that the outsider dialled
//	a pod under the address that a forged packet dialled   the pod itself may reach the receiver. A pod or an outsider dialled that address from the
//	                           receiver's, and cnat has a session of that packet, which a list dropped (ADR 13)
//	(counted apart) a connection that a forged packet may have ended   NAT has a session of that packet: from outside, between the same ends; or of a
//	                           pod of the server's node, from the client's address and port to a Service, which cnat translates before the source
//	                           check (ADR 13)
//	a second first fragment, which nat44 gives the ports of the first one   what arrives is what the first one would have brought, which is allowed
//	not sent: to a Service with affinity, when an interface has one of its two roles   a VPP dies of such a packet from there. Only workers forward
//	                           packets between the two messages (ADR 14)
//	a host endpoint at an uplink without lists yet   from a restart of VPP until the uplink gets its lists: an agent never closes an uplink
//	                           first, as that cuts off its node (ADR 14)
//
// Each fix that the law asks for, taken out, is found again. TestFixesAreNeeded (make adversary-fixes) takes them out by go test -overlay, and has
// the adversary look for one class of breaches, from seed 1. A sequence takes 10 ms of one core; two worlds are played at a time:
//
//	fix                                                          found after            class
//	answers make no sessions                                     1,145 sequences  12 s  a connection that was allowed once
//	the node's traffic has an address that NAT gives to nobody   6,364 sequences  46 s  a client behind another address
//	no forwarding under half a NAT, and nothing closed first       497 sequences   7 s  an allowed connection that fails
//	interfaces are closed before anything else                     202 sequences   2 s  an open door
//	pods send from their own addresses                              30 sequences   1 s  a forged source
//	SCTP that nothing tracks is denied                             796 sequences  12 s  SCTP
//	SCTP that nat44 hides is denied                                262 sequences   4 s  SCTP
//	host endpoints are enforced                                    222 sequences   3 s  an open door
//	no packet from outside has an address of this node              15 sequences   1 s  a forged source
//
// BUGS. Extra packets are not sent between messages. No kernel joins fragments of two senders. On real VPPs no fragment is sent behind which VPP would
// report several that waited, between different addresses. Of host endpoints only what comes in from outside, and not by a Service, is evaluated. On real
// VPPs nothing is sent between messages, interfaces exist before the agent when a VPP restarts, an agent that is away starts before its VPP restarts, and
// minutes are seconds in which only sessions of NAT44 end. A question of trace --stateful has no field for a packet between messages, for an agent that is
// away, or for the order in which interfaces come: a finding says it in a line of comment.
package adversary
