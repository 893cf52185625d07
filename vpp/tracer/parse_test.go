package tracer

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// summary returns the facts of a packet's path that callers use.
func summary(k *Packet) string {
	var b strings.Builder
	h := k.Opening()
	fmt.Fprintf(&b, "%s:%d -> %s:%d proto %d ttl %d flags %d id %d, ended %t, session %t:", h.Source, h.SourcePort, h.Destination, h.DestinationPort, h.Protocol, h.TTL, h.Flags, h.Identifier, k.Ended(), k.Session())
	for _, s := range k.Steps {
		switch {
		case s.ACL != nil:
			fmt.Fprintf(&b, " acl@%d(output %t, list %d, rule %d, permit %t)", s.Interface, s.ACL.Output, s.ACL.List, s.ACL.Rule, s.ACL.Permit)
		case s.Sends:
			fmt.Fprintf(&b, " sends@%d", s.Interface)
		case strings.HasSuffix(s.Node, "-output"):
			fmt.Fprintf(&b, " %s(%s:%d -> %s:%d)", s.Node, s.Header.Source, s.Header.SourcePort, s.Header.Destination, s.Header.DestinationPort)
		case s.Node == "drop":
			fmt.Fprintf(&b, " drop(%s)", s.Text)
		}
	}
	return b.String()
}

// TestParse reads what three VPPs wrote about the same packets: requests to a Service, packets that lists deny, ICMP, IPv6, and a packet of a session.
func TestParse(t *testing.T) {
	want := map[int]string{
		1:  "10.1.1.2:2001 -> 10.96.0.10:80 proto 6 ttl 64 flags 2 id 0, ended true, session false: acl@1(output false, list 0, rule 1, permit true) sends@2 acl@2(output true, list 1, rule 1, permit true) pg1-output(10.1.1.2:2001 -> 10.1.2.2:8081)",
		2:  "10.1.1.2:2001 -> 10.96.0.10:80 proto 6 ttl 64 flags 16 id 0, ended true, session false: acl@1(output false, list 0, rule 1, permit true) sends@2 acl@2(output true, list 1, rule 1, permit true) pg1-output(10.1.1.2:2001 -> 10.1.2.2:8081)",
		3:  "10.1.1.2:2002 -> 10.1.2.2:9 proto 6 ttl 64 flags 2 id 0, ended true, session false: acl@1(output false, list 0, rule 0, permit false) drop(acl-plugin-in-ip4-fa: ACL deny packets)",
		4:  "10.1.1.2:2003 -> 10.1.2.2:7 proto 6 ttl 64 flags 2 id 0, ended true, session false: acl@1(output false, list 0, rule 1, permit true) sends@2 acl@2(output true, list 1, rule 0, permit false) drop(acl-plugin-out-ip4-fa: ACL deny packets)",
		9:  "10.1.1.2:0 -> 8.8.4.4:0 proto 1 ttl 64 flags 0 id 77, ended true, session false: acl@1(output false, list -1, rule -1, permit false) drop(acl-plugin-in-ip4-fa: ACL deny packets)",
		10: "10.1.1.2:2008 -> 240.0.0.1:53 proto 17 ttl 64 flags 0 id 0, ended true, session false: acl@1(output false, list 0, rule 2, permit true) drop(acl-plugin-in-ip4-fa: ACL permit packets)",
		12: "fd00::2:2010 -> fd00:1::2:80 proto 6 ttl 64 flags 2 id 0, ended true, session false: acl@1(output false, list -1, rule -1, permit false) drop(acl-plugin-in-ip6-fa: ACL deny packets)",
		15: "10.1.1.2:2001 -> 10.96.0.10:80 proto 6 ttl 64 flags 2 id 0, ended true, session true: acl@1(output false, list -1, rule 1, permit true) sends@2 acl@2(output true, list -1, rule 5, permit true) pg1-output(10.1.1.2:2001 -> 10.1.2.2:8081)",
	}
	for _, version := range []string{"2406", "2510", "2606"} {
		text, err := os.ReadFile("testdata/" + version + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		got := Parse(string(text))
		if len(got) != 15 {
			t.Fatalf("%s: %d packets, want 15", version, len(got))
		}
		for number, line := range want {
			line = strings.ReplaceAll(line, "8081", fmt.Sprint(backendPort(&got[0]))) // VPP draws the backend
			if s := summary(&got[number-1]); s != line {
				t.Errorf("%s, packet %d:\n got %s\nwant %s", version, number, s, line)
			}
		}
	}
}

// backendPort is the destination port with which a packet leaves.
func backendPort(k *Packet) uint16 {
	for _, s := range k.Steps {
		if strings.HasSuffix(s.Node, "-output") {
			return s.Header.DestinationPort
		}
	}
	return 0
}

// A trace of a packet that is still in VPP has no end.
func TestParseUnended(t *testing.T) {
	text, err := os.ReadFile("testdata/2510.txt")
	if err != nil {
		t.Fatal(err)
	}
	whole, _, _ := strings.Cut(string(text), "acl-plugin-out-ip4-fa")
	got := Parse(whole)
	if len(got) != 1 || got[0].Ended() || got[0].Opening() == nil || got[0].Opening().Destination != netip.MustParseAddr("10.96.0.10") {
		t.Errorf("%+v", got)
	}
	if got := Parse("------------------- Start of thread 0 vpp_main -------------------\nNo packets in trace buffer\n"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// Damaged text is read without a panic, and each header has both addresses.
func TestParseDamaged(t *testing.T) {
	text, err := os.ReadFile("testdata/2510.txt")
	if err != nil {
		t.Fatal(err)
	}
	text = text[:6000] // two packets
	for at := 0; at+211 < len(text); at += 97 {
		for _, damaged := range []string{string(text[:at]), string(text[at:]), string(text[:at]) + string(text[at+211:]), strings.ReplaceAll(string(text[at:at+211]), " ", "9")} {
			for _, k := range Parse(damaged) {
				if h := k.Opening(); h != nil && (!h.Source.IsValid() || !h.Destination.IsValid()) {
					t.Errorf("%+v", h)
				}
			}
		}
	}
}

// A rule that only permits makes no session; one that reflects does.
func TestParseReflects(t *testing.T) {
	for action, want := range map[string]bool{"0": false, "1": false, "2": true} {
		text := "Packet 1\n\n00:00:01:000001: acl-plugin-in-ip4-fa\n  acl-plugin: lc_index: 0, sw_if_index 1, next index 1, action: " + action + ", match: acl 0 rule 1 trace_bits 00000000\n"
		got := Parse(text)
		if len(got) != 1 || len(got[0].Steps) != 1 || got[0].Steps[0].ACL == nil || got[0].Steps[0].ACL.Reflect != want || got[0].Steps[0].ACL.Permit != (action != "0") {
			t.Errorf("action %s: %+v", action, got)
		}
	}
}
