package cnat

import (
	"fmt"
	"net/netip"
	"time"
)

// None is ~0, VPP's index of nothing.
const None = ^uint32(0)

// Return codes (vnet/api_errno.h). Refused is an unnamed code of some handlers.
const (
	OK              int32 = 0
	Refused         int32 = 1
	NoSuchEntry     int32 = -6
	InvalidValue    int32 = -7
	InvalidProtocol int32 = -153
)

// The idle times of sessions, in startup.conf's default.
const (
	idleNew         = 30 * time.Second
	idleEstablished = time.Hour       // after SYN+ACK
	idleEnding      = 5 * time.Second // after FIN or RST
)

// FirstPort is where ports for source translation begin.
const FirstPort uint16 = 0xC000

// Flags of a translation. The first and the last are on the wire; Exclusive is is_real_ip = 0.
const (
	AllocPort       uint8 = 1 << 0 // allocates a port where a path has a source
	Exclusive       uint8 = 1 << 1 // packets to other ports of the address are dropped
	NoReturnSession uint8 = 1 << 2
)

// Flags of a path, as the plugin stores and dumps them. On the wire CNAT_EPT_NO_NAT is 1, which has no effect.
const (
	PathActive   uint8 = 1 << 0
	PathNoNAT    uint8 = 1 << 1
	PathDisabled uint8 = 1 << 7 // left out of Maglev
)

// LBType selects the choice of a backend.
type LBType uint8

// The types. VPP treats others as Default.
const (
	Default LBType = 0
	Maglev  LBType = 1
)

// Endpoint is an address and port, or an interface that stands for its first address.
type Endpoint struct {
	Addr     netip.Addr // of an interface: its address, once it has one; otherwise the unspecified one of the family
	SwIf     uint32     // None: Addr counts
	Port     uint16
	resolved bool
}

// Resolved reports whether the address is known.
func (e Endpoint) Resolved() bool { return e.resolved }

// endpointText uses ifName for interfaces.
func (e Endpoint) endpointText(ifName func(uint32) string) string {
	if e.SwIf == None {
		return netip.AddrPortFrom(e.Addr, e.Port).String()
	}
	fam := "ip4"
	if e.Addr.Is6() {
		fam = "ip6"
	}
	return fmt.Sprintf("%s(%s):%d", ifName(e.SwIf), fam, e.Port)
}

// Path is one backend of a translation.
type Path struct {
	Dst   Endpoint
	Src   Endpoint // the client as the backend sees it, at ip4-cnat-tx only; the unspecified address: the original client
	Flags uint8
}

// Translation is the content of cnat_translation_update, and of the dump (Flags and Hash are not in a dump).
type Translation struct {
	ID    uint32
	VIP   Endpoint
	Proto uint8
	Flags uint8
	LB    LBType
	Hash  uint32 // fields for the choice of a backend (ip_flow_hash_config_v2); 0: the five-tuple
	Paths []Path
}

// Location is the node that looks up a session.
type Location uint8

// The locations, as the API has them.
const (
	AtInput  Location = 0
	AtOutput Location = 1
	AtFIB    Location = 0xff
)

// String returns the node's place.
func (l Location) String() string {
	switch l {
	case AtInput:
		return "input"
	case AtOutput:
		return "output"
	case AtFIB:
		return "fib"
	}
	return fmt.Sprintf("location-%d", uint8(l))
}

// Tuple holds the two ends of a packet. Both ports of an echo are its identifier.
type Tuple struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
}

// Session is one direction of a flow at one node.
type Session struct {
	Match, New Tuple
	Proto      uint8
	Location   Location
	Idle       time.Duration // the session expires after it was idle for longer
	Seen       time.Duration // since VPP's boot
}

// String returns the session on one line.
func (s Session) String() string {
	at := func(a netip.Addr, p uint16) string { return netip.AddrPortFrom(a, p).String() }
	return fmt.Sprintf("%s %s %s -> %s => %s -> %s", s.Location, protoName(s.Proto), at(s.Match.Src, s.Match.SrcPort), at(s.Match.Dst, s.Match.DstPort),
		at(s.New.Src, s.New.SrcPort), at(s.New.Dst, s.New.DstPort))
}

// Action is what VPP does with a packet after a node.
type Action uint8

// The actions.
const (
	// Continue passes the packet to the next node of the arc, or at ip4-cnat-tx to the destination of the route below the plugin's.
	Continue Action = iota
	Drop
	// Lookup looks up the route again.
	Lookup
	// Forward sends the packet to Result.Backend, whatever the destination.
	Forward
)

// Result is the result of a node.
type Result struct {
	Action  Action
	Backend netip.Addr // Forward only
	Node    string
	Text    string // "": the node did nothing
	Flow    Flow
	// BadChecksum: that of an ICMPv6 error is wrong now.
	BadChecksum bool
}

// Flow is what VPP knows of a packet's flow where the packet comes in, at Input or FIB. The zero value: it has not looked for it.
type Flow struct{ Looked, known bool }

// Crash is a crash of VPP.
type Crash struct{ Why string }

func (c *Crash) Error() string { return "cnat: " + c.Why }
