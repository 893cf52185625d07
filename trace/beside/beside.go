// Package beside turns a predicted path of a packet and its path through a running VPP into rows, and marks the first difference.
//
// Invariant: the rows before the mark say the same on both sides. Ports that NAT draws, sessions and the life time of a packet make no difference.
package beside

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/trace/hops"
)

// Row is one act of both paths.
type Row struct {
	Predicted string `json:"predicted"` // "": the path has ended
	VPP       string `json:"vpp"`       // "": the path has ended
	Differs   bool   `json:"differs,omitempty"`
}

// fact is one act, in words and as it is compared.
type fact struct {
	text, key string
	reason    string // of an access list's verdict
	rule      string // the place of the rule that gave it
	session   bool
}

// Compare compares a predicted path through a node with VPP's, up to where the packet leaves the node or ends. Equal: no row differs.
func Compare(node string, predicted, vpp []hops.Hop) (rows []Row, equal bool) {
	a, b := factsOf(node, predicted), factsOf(node, vpp)
	equal = true
	for i := range max(len(a), len(b)) {
		var r Row
		if i < len(a) {
			r.Predicted = a[i].text
		}
		if i < len(b) {
			r.VPP = b[i].text
		}
		if equal && (i >= len(a) || i >= len(b) || !isSame(&a[i], &b[i])) {
			equal, r.Differs = false, true
		}
		rows = append(rows, r)
	}
	return rows, equal
}

// Agree returns how many acts of two paths are the same before the first difference.
func Agree(node string, predicted, vpp []hops.Hop) int {
	rows, _ := Compare(node, predicted, vpp)
	for i, r := range rows {
		if r.Differs {
			return i
		}
	}
	return len(rows)
}

// isSame reports whether two facts say the same. The verdicts of two lists do if the same policy or the same rule gave them.
func isSame(a, b *fact) bool {
	return a.key == b.key && (a.session || b.session || a.reason == b.reason || a.rule == b.rule)
}

// factsOf returns the acts of a path through a node that are compared.
func factsOf(node string, path []hops.Hop) (out []fact) {
	drawn := false // NAT has drawn the source port
	for i := range path {
		h := &path[i]
		if h.Node != node {
			continue
		}
		f, last := factOf(h, &drawn)
		if f.text != "" {
			out = append(out, f)
		}
		if last {
			return out
		}
	}
	return out
}

// factOf returns the act of a hop; without text, it is not compared. Last: the packet leaves the node, or ends.
func factOf(h *hops.Hop, drawn *bool) (f fact, last bool) {
	at := outside(h.Interface)
	switch {
	case strings.HasSuffix(h.GraphNode, "-icmp-error"):
		return fact{text: "VPP answers with an ICMP error", key: "icmp error"}, true
	case h.Kind == hops.Input && h.Packet != nil:
		return fact{text: "from " + h.Interface + ": " + ends(h.Packet, false), key: "from " + at + " " + ends(h.Packet, false)}, false
	case h.Kind == hops.AccessList && h.ACL != nil:
		verb := "denies"
		if h.ACL.Permit {
			verb = "permits"
		}
		f = fact{key: h.Direction + " " + at + " " + verb, session: h.ACL.Session, rule: fmt.Sprintf("%d:%d", h.ACL.List, h.ACL.Rule)}
		f.text, f.reason = fmt.Sprintf("%s list of %s %s", h.Direction, h.Interface, verb), ""
		switch {
		case h.Decision != nil:
			f.reason = h.Decision.Text
			f.text += ": " + f.reason
		case h.Text != "":
			f.text += ": " + h.Text
		}
		return f, !h.ACL.Permit
	case (h.Kind == hops.NAT44 || h.Kind == hops.CNAT) && h.Translation != nil:
		t := h.Translation
		*drawn = *drawn || t.Before.Source != t.After.Source
		return fact{text: fmt.Sprintf("%s: now %s", h.Kind, ends(&t.After, false)), key: string(h.Kind) + " " + ends(&t.After, *drawn)}, h.Dropped
	case h.Kind == hops.Output && h.Packet != nil:
		return fact{text: "to " + h.Interface + ": " + ends(h.Packet, false), key: "to " + at + " " + ends(h.Packet, *drawn)}, true
	case h.Dropped:
		return fact{text: h.GraphNode + " drops the packet: " + h.Text, key: "drop"}, true
	}
	return fact{}, h.GraphNode == "ip4-local" || h.GraphNode == "ip6-local"
}

// outside returns the name of an interface. VPP's overlay may be the uplink, so the two have one name.
func outside(name string) string {
	if name == cni.Overlay {
		return cni.Uplink
	}
	return name
}

// ends returns protocol and ends of a header; with masked, the source's port is left out.
func ends(h *hops.Header, masked bool) string {
	from, to := h.Source, h.Destination
	if h.SourcePort != 0 && !masked {
		from = net.JoinHostPort(from, strconv.Itoa(int(h.SourcePort)))
	}
	if h.DestinationPort != 0 {
		to = net.JoinHostPort(to, strconv.Itoa(int(h.DestinationPort)))
	}
	return h.Protocol + " " + from + " -> " + to
}
