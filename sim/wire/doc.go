// Package wire turns Ethernet frames into packets of the sim's engine and the engine's packets into frames: the edge at which a VPP speaks
// Ethernet, ARP, neighbour discovery, VXLAN and layer 2.
//
//	Device ─▶ Receive ─▶ port of a bridge? ─ yes ─▶ sim/bridge: ports, the BVI ─┐
//	                         │ no                                               │
//	                         ├─▶ ARP, neighbour discovery: answered, learned    │
//	                         └─▶ IP: sim/frame.Read ─▶ engine ◀─────────────────┘
//	                                                     │ outputs
//	Device ◀─ Ethernet header ◀─ neighbour known? ◀──────┘ (a tunnel's packet ─▶ Receive of its inner frame)
//	                                   └ no: asked for; the packet is lost, as in VPP
//
// Invariant: a frame that comes from a Device ends in frames for Devices, or in one drop that Drops counts by reason; the configuration of
// VPP does not change by it, except for learned neighbours and addresses. An Edge is not safe for concurrent use: the VPP's lock guards it.
//
// BUGS. Neighbours do not age. VPP does not answer ARP for others (proxy ARP). No router advertisements, MLD, GSO, MSS clamping, LLDP.
package wire
