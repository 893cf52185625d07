// Package hostif turns Linux interfaces into those of a simulated VPP, by AF_PACKET sockets and the files of taps: frames that arrive go to sim/wire, and frames
// of sim/wire leave.
//
//	veth ─▶ socket ─▶ epoll ─▶ Run, one goroutine ─▶ VPP.Wired: wire.Edge ─▶ engine ─▶ wire.Edge ─▶ socket ─▶ veth
//
// Invariant: one goroutine reads, that of Run; frames of one interface keep their order. A round reads the frames of all interfaces before it
// processes the first, and processes all before the next round reads. VPP's lock guards everything else. Run ends with its context, and closes all sockets.
//
// As VPP's af_packet without the flag CKSUM_GSO does, it takes frames as they are: a veth pair leaves checksums unfinished unless its
// transmit checksum offload is off. With the flag, hostif finishes them. It cuts no large segments (GSO): switch them off, too.
package hostif
