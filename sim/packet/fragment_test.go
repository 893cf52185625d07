package packet

import (
	"strings"
	"testing"
)

// TestReassembly: a datagram is whole when each byte has come, in whatever order; what overlaps voids it.
func TestReassembly(t *testing.T) {
	p := parse(t, "udp 10.1.1.2:40000 -> 10.1.1.3:53 ttl 63")
	parts := Split(&p, 3, 7)
	late := parts[1]
	late.Fragment.Offset += 8
	other := parts[0]
	other.SrcPort = 1
	for _, c := range []struct {
		name  string
		parts []Packet
		want  string
	}{
		{"in order", parts, p.String()},
		{"the last one first", []Packet{parts[2], parts[1], parts[0]}, p.String()},
		{"twice", []Packet{parts[0], parts[0], parts[1], parts[2]}, p.String()},
		{"another first one", []Packet{parts[0], other, parts[1], parts[2]}, p.String()},
		{"another first one, first", []Packet{other, parts[0], parts[1], parts[2]}, "udp 10.1.1.2:1 -> 10.1.1.3:53 ttl 63"},
		{"no first one", parts[1:], ""},
		{"no last one", parts[:2], ""},
		{"overlapping", []Packet{parts[1], late, parts[0], parts[2]}, ""},
	} {
		var r Reassembly
		var got []string
		for _, f := range c.parts {
			if err := f.Validate(); err != nil {
				t.Errorf("%s: %s: %v", c.name, f, err)
			}
			var whole Packet
			var done bool
			if r, whole, done = r.Add(f); done {
				got = append(got, whole.String())
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: got %q want %q", c.name, got, c.want)
		}
	}
}

func TestFragmentsThatCannotBe(t *testing.T) {
	for _, line := range []string{
		"udp 10.1.1.2:1 -> 10.1.1.3:2 fragment 7 offset 0 length 24", "udp 10.1.1.2:1 -> 10.1.1.3:2 fragment 7 offset 0 length 20 more",
		"udp 10.1.1.2:1 -> 10.1.1.3:2 fragment 7 offset 4 length 24", "udp 10.1.1.2:1 -> 10.1.1.3:2 fragment 7 offset 8 length 4",
		"tcp 10.1.1.2:1 -> 10.1.1.3:2 [S] fragment 7 offset 0 length 16 more", "tcp 10.1.1.2:1 -> 10.1.1.3:2 [S] fragment 7 offset 24 length 24",
		"udp 10.1.1.2:1 -> 10.1.1.3:2 fragment 7 offset 65528 length 24", "udp 10.1.1.2:1 -> 10.1.1.3:2 fragment 7",
		"icmp 10.1.1.1 -> 10.1.1.2 type 3 code 1 fragment 1 offset 0 length 24 more about (udp 10.1.1.2:1 -> 10.1.1.3:2)",
	} {
		if p, err := Parse(line); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", line, p)
		}
	}
}
