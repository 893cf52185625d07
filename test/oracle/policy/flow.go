package policy

import (
	"fmt"
	"net/netip"
)

// Protocol is a protocol by its IANA number.
type Protocol uint8

// The protocols flows have.
const (
	ICMP   Protocol = 1
	TCP    Protocol = 6
	UDP    Protocol = 17
	ICMPv6 Protocol = 58
	SCTP   Protocol = 132
)

// String is the name Kubernetes or Calico give it.
func (p Protocol) String() string {
	switch p {
	case ICMP:
		return "ICMP"
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case ICMPv6:
		return "ICMPv6"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprint(uint8(p))
}

// Ports reports that the protocol has ports.
func (p Protocol) Ports() bool { return p == TCP || p == UDP || p == SCTP }

// LowestClientPort is the port from which on access lists take a port that nobody declares for a client's.
const LowestClientPort = 32768

// Undeclared reports whether no object declares the flow's port. If the receiver's policies do not allow the answers as a
// separate flow, UDP answers are lost, and TCP answers after a change of lists; if they do, a revoked flow may continue. No
// pod of a World declares a port that high.
func (f *Flow) Undeclared() bool {
	return (f.Proto == UDP || f.Proto == TCP) && f.DstPort >= LowestClientPort
}

// Flow is the first packet of a connection as it travels behind any service: its destination is the pod, not the cluster IP.
type Flow struct {
	Node             string // where it comes into the cluster: the pod's node, the node that sends, or a node with an uplink
	Src, Dst         netip.Addr
	Proto            Protocol
	SrcPort, DstPort uint16 // TCP, UDP, SCTP
	Type, Code       uint8  // ICMP, ICMPv6
}

// String is "10.1.1.2 -> 10.1.2.2 TCP 80 at node-1".
func (f Flow) String() string {
	what := fmt.Sprintf("%d", f.DstPort)
	if !f.Proto.Ports() {
		what = fmt.Sprintf("type %d code %d", f.Type, f.Code)
	}
	return fmt.Sprintf("%s -> %s %s %s at %s", f.Src, f.Dst, f.Proto, what, f.Node)
}
