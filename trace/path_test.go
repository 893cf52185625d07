package trace

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/trace/hops"
)

// pathOf answers a question and returns its only path.
func pathOf(t *testing.T, c *Cluster, q Question) []hops.Hop {
	t.Helper()
	a := c.Answer(q)
	switch {
	case len(a.Outcomes) == 1:
		return a.Outcomes[0].Path
	case len(a.Outcomes) == 0:
		return a.Path
	}
	t.Fatalf("%v: %d outcomes, not one", q, len(a.Outcomes))
	return nil
}

// TestFieldsSayWhatTextSays compares the fields of all hops with their text, which the simulation makes separately.
func TestFieldsSayWhatTextSays(t *testing.T) {
	c := guestbook(t, Config{ToReply: true})
	seen := map[hops.Kind]int{}
	for _, q := range []Question{
		{"pod:guestbook/client", "service:guestbook/redis-leader:6379", "TCP"},
		{"pod:guestbook/redis-leader-0", "service:guestbook/redis-leader:6379", "TCP"},
		{"pod:guestbook/client", "pod:guestbook/frontend-1:8080", "TCP"},
		{"pod:guestbook/client", "8.8.8.8:53", "UDP"},
		{"pod:guestbook/client", "service:guestbook/admin:80", "TCP"},
		{"pod:kube-system/coredns-1", "pod:guestbook/redis-leader-0:6379", "TCP"},
	} {
		path := pathOf(t, c, q)
		if len(path) == 0 {
			t.Errorf("%v: no path", q)
		}
		for _, h := range path {
			seen[h.Kind]++
			if want := textOf(&h); want != "" && !strings.Contains(h.Text, want) {
				t.Errorf("%v: %s: %s\nfields say %q", q, h.Kind, h, want)
			}
		}
	}
	for _, k := range []hops.Kind{hops.Input, hops.AccessList, hops.NAT44, hops.Lookup, hops.Output} {
		if seen[k] == 0 {
			t.Errorf("no hop is of kind %s", k)
		}
	}
}

// textOf returns words that the text of a hop must contain according to its fields.
func textOf(h *hops.Hop) string {
	switch h.Kind {
	case hops.Input:
		return "from " + h.Interface + ": " + flowText(h.Packet)
	case hops.Output:
		return flowText(h.Packet)
	case hops.AccessList:
		action := map[bool]string{true: "permit", false: "deny"}[h.ACL.Permit]
		return fmt.Sprintf("acl %d (%s) rule %d %s", h.ACL.List, h.ACL.Tag, h.ACL.Rule, action)
	case hops.Lookup:
		if h.Route == nil || h.Route.Type != "forward" {
			return ""
		}
		return h.Route.Prefix + " via "
	case hops.NAT44:
		return natText(h)
	}
	return ""
}

func flowText(h *hops.Header) string {
	if h.Protocol == "ICMP" {
		return fmt.Sprintf("icmp %s -> %s", h.Source, h.Destination)
	}
	p, err := packet.Parse(fmt.Sprintf("udp %s:%d -> %s:%d", h.Source, h.SourcePort, h.Destination, h.DestinationPort))
	if err != nil {
		return err.Error()
	}
	_, ends, _ := strings.Cut(p.Flow(), " ")
	return strings.ToLower(h.Protocol) + " " + ends
}

func natText(h *hops.Hop) string {
	changed := strings.Contains(h.Text, "dnat ") || strings.Contains(h.Text, "snat ")
	if h.Translation == nil {
		if changed {
			return "a translation, which the fields lack"
		}
		return ""
	}
	var out []string
	b, a := h.Translation.Before, h.Translation.After
	if b.Destination != a.Destination || b.DestinationPort != a.DestinationPort {
		out = append(out, fmt.Sprintf("dnat %s:%d", a.Destination, a.DestinationPort))
	}
	if b.Source != a.Source || b.SourcePort != a.SourcePort {
		out = append(out, fmt.Sprintf("snat %s:%d", a.Source, a.SourcePort))
	}
	return strings.Join(out, " ")
}

func TestPathNamesPolicyAndReceiver(t *testing.T) {
	c := guestbook(t, Config{})
	denied := pathOf(t, c, Question{"pod:kube-system/coredns-1", "pod:guestbook/redis-leader-0:6379", "TCP"})
	last := denied[len(denied)-1]
	if last.Kind != hops.AccessList || !last.Dropped || last.ACL.Permit || last.Decision == nil ||
		last.Decision.Policy+last.Decision.Trigger != "NetworkPolicy guestbook/redis" || last.DeliveredTo != "" {
		text, _ := json.Marshal(last)
		t.Errorf("the last hop of a denied packet: %s", text)
	}
	passed := pathOf(t, c, Question{"pod:guestbook/client", "service:guestbook/redis-leader:6379", "TCP"})
	last = passed[len(passed)-1]
	if last.Kind != hops.Output || last.Dropped || last.DeliveredTo != "pod:guestbook/redis-leader-0" || last.Packet.DestinationPort != 6379 || last.Packet.TTL != 63 {
		text, _ := json.Marshal(last)
		t.Errorf("the last hop of a delivered packet: %s", text)
	}
	for _, h := range passed[:len(passed)-1] {
		if h.Dropped || h.DeliveredTo != "" {
			t.Errorf("a hop on the path ends it: %+v", h)
		}
	}
}
