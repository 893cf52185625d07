// Package realvpp turns a VPP binary into one more node for the tests and compares the simulated VPP with it. Its invariant:
// all that a test starts (processes, interfaces, sockets) lives in a separate network namespace and ends with the test.
//
//	    objects
//	  ┌────┴─────┐
//	agent      agent      both are told the same; their requests are compared
//	  │          │
//	 sim        VPP       both are plumbed by sim/cni
//	  └────┬─────┘
//	    packets           both get the same on the same interface; what leaves is compared
//
// Tests about connections rather than packets put hosts with separate network stacks behind VPP's interfaces: a client and
// endpoints that are added and removed (TestVPPConnections), and the guestbook's programs on several nodes (TestVPPDemo, which is `make vpp-demo`).
//
// TestVPPClients runs clients with open and new connections while pods of a Service are replaced and parts of a node end (docs/traffic.md).
// TestVPPPodNetworkKilled kills parts of a node at random times, TestVPPPodNetworkSteps at each step, and both compare what is left.
//
// TestVPPTraffic keeps flows between pods running while policies, endpoints, agents and VPPs change, and counts packets (docs/traffic.md).
//
// TestVPPBothSides sends datagrams between an agent's messages while policies and a Service's endpoint change: none is lost, and none passes, against the
// states before and after (ADR 32).
//
// Random clusters with policies have a VPP for each node, and what gets through is held against the specifications, too
// (test/oracle/policy).
//
// TestVPPSequences sends random clusters sequences of packets on top of the state that earlier packets left, while objects change and time
// passes. It compares each packet, and the sessions of NAT44 and of cnat, which also show the load
// balancer's choice for a packet that was dropped. Each excuse has a name, a count and a bound.
//
// The tests run when CONTIV_VPP names a vpp binary (24.06 to 26.06 with the nat, acl, cnat, af_packet and vxlan plugins) and the user is root;
// `make vpp-test` says so. With CONTIV_VPP=sim it is a process of the simulated VPP with host interfaces (package sim/hostif). docs/testing.md
// says which tests it serves; the others call realVPP with the reason. Those that compare then hold the sim's frames against its engine.
// CONTIV_VPP_CASES is how many random cases there are, CONTIV_VPP_SEED the first one's seed.
package realvpp
