// Package frame turns the bytes of Ethernet frames and IP packets into what the sim's engine works with (packet.Packet), and the engine's
// result into bytes again.
//
//	bytes ─▶ Read ─▶ Load{Bytes, Header} ─▶ engine: Header changes ─▶ Load.As(header) ─▶ bytes with the new header
//	                       │                                       ├▶ Load.Error         an ICMP error that quotes them
//	                       └▶ Split: fragments                     └▶ Load.Reset
//
// Invariant: Load.Bytes never change. As corrects checksums by the difference, as VPP does: a wrong checksum of a transport header stays
// wrong. No input makes a function panic.
//
// BUGS. Read refuses IPv6 packets with extension headers other than the fragment header, and a quoted error in an ICMP error.
package frame
