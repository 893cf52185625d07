// Package question turns a packet of a counterexample into the line that asks the trace command about it.
//
// Invariant: a line has the fields that trace reads, and trace sends the packet. For other packets the line is "".
package question

import (
	"bytes"
	"encoding/json"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/space"
)

// Pod and External are senders, for Line.
func Pod(name string) string { return "pod:" + name }

// External is a host outside whose packets arrive at the uplink of a node.
func External(addr netip.Addr, node string) string { return "external:" + addr.String() + "@" + node }

// line has the fields in the order of their names.
type line struct {
	From          string `json:"from"`
	Protocol      string `json:"protocol"`
	SourceAddress string `json:"sourceAddress,omitempty"`
	SourcePort    uint16 `json:"sourcePort,omitempty"`
	To            string `json:"to"`
}

// Line is the question about a header that a sender sends; "": trace sends only the first packets of connections of TCP, datagrams of UDP between
// ports from 1 on, and echo requests. Forged says that the sender does not own the source address.
func Line(from string, h space.Header, forged bool) string {
	q := line{From: from, SourcePort: h.SrcPort, To: netip.AddrPortFrom(h.Dst, h.DstPort).String()}
	ports := h.SrcPort > 0 && h.DstPort > 0
	switch {
	case h.Protocol == space.TCP && ports && h.Flags&(space.SYN|space.ACK|space.RST|space.FIN) == space.SYN:
		q.Protocol = "TCP"
	case h.Protocol == space.UDP && ports:
		q.Protocol = "UDP"
	case h.Protocol == space.ICMP && h.SrcPort == 8 && h.DstPort == 0, h.Protocol == space.ICMPv6 && h.SrcPort == 128 && h.DstPort == 0:
		q.Protocol, q.SourcePort, q.To = "ICMP", 0, h.Dst.String()
	default:
		return ""
	}
	if forged {
		q.SourceAddress = h.Src.String()
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // the line is pasted into a shell
	if enc.Encode(q) != nil {
		return ""
	}
	return string(bytes.TrimSpace(text.Bytes()))
}
