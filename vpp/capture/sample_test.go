package capture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// placed is from VPP 25.10: a session that an output made, and an interface's counts.
const placed = `    info: 0000000000000000 0000000000000000 0000000000000000 0100030a0201010a 00030006005003e9 0002000000000001
    sw_if_index: 3
    tcp_flags_seen: 2
    last active time: 215378779030453
    thread index: 0
    link enqueue time: 215378779030453
    link next index: 2
    link prev index: 0
    link list id: 3
`

// pool is a VPP whose threads have places; "": a free one.
type pool struct {
	threads [][]string
	asked   int
	err     error
}

func (p *pool) do(_ context.Context, calls ...vpp.Call) (out []vpp.Reply) {
	var thread, index int
	n, _ := fmt.Sscanf(calls[0].Msg.(*vlib.CliInband).Cmd, "show acl-plugin sessions thread %d index %d", &thread, &index)
	var b strings.Builder
	b.WriteString("Sessions total: add 7 - del 3 = 4\n\n\nPer-thread data:\n")
	for i, places := range p.threads {
		fmt.Fprintf(&b, "Thread #%d:\n", i)
		if n == 2 && i == thread && index < len(places) {
			p.asked++
			text := places[index]
			if text == "" {
				text = strings.Replace(placed, "list id: 3", "list id: 4", 1)
			}
			fmt.Fprintf(&b, "  session index %d:\n%s", index, text)
		}
		used := 0
		for _, text := range places {
			if text != "" {
				used++
			}
		}
		fmt.Fprintf(&b, "  connection add/del stats:\n    sw_if_index 3: add %d - del %d = 0; epoch chg: 0\n    sw_if_index 4: add 2 - del 0 = 2; epoch chg: 0\n", len(places), len(places)-used+2)
	}
	return []vpp.Reply{{Msg: &vlib.CliInbandReply{Reply: b.String()}, Err: p.err}}
}

// A place has the session as the list of all has it. One whose place is of IPv6 has the form of IPv4 as well, since VPP does not print which it is.
func TestPlaces(t *testing.T) {
	six := strings.Replace(placed, "info: 0000000000000000 0000000000000000 0000000000000000 0100030a0201010a 00030006",
		"info: 00000000000000fd 0100000000000000 00000000000000fd 0200000000000000 00030006", 1)
	ping := strings.Replace(placed, "00030006", "00030001", 1)
	for name, c := range map[string]struct {
		text string
		want []Session
	}{
		"IPv4": {placed, []Session{{Src: netip.MustParseAddr("10.1.1.2"), Dst: netip.MustParseAddr("10.3.0.1"), Protocol: 6, SrcPort: 1001, DstPort: 80, Interface: 3, ID: "0/0"}}},
		"IPv4 with an input": {
			strings.NewReplacer("00030006", "00030106", "0002000000000001", "8002000000000001").Replace(placed),
			[]Session{{Src: netip.MustParseAddr("10.1.1.2"), Dst: netip.MustParseAddr("10.3.0.1"), Protocol: 6, SrcPort: 1001, DstPort: 80, Interface: 3, ID: "0/0", Input: true}},
		},
		"the other direction": {strings.Replace(placed, "00030006", "00030106", 1), nil},
		"IPv6": {strings.Replace(six, "0200000000000000", "0200000000000001", 1), []Session{
			{Src: netip.MustParseAddr("1.0.0.0"), Dst: netip.MustParseAddr("0.0.0.2"), Protocol: 6, SrcPort: 1001, DstPort: 80, Interface: 3, ID: "0/0"},
			{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::100:0:0:2"), Protocol: 6, SrcPort: 1001, DstPort: 80, Interface: 3, ID: "0/0"},
		}},
		"IPv6 with zeros": {six, []Session{{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"), Protocol: 6, SrcPort: 1001, DstPort: 80, Interface: 3, ID: "0/0"}}},
		"ICMP":            {ping, []Session{{Src: netip.MustParseAddr("10.1.1.2"), Dst: netip.MustParseAddr("10.3.0.1"), Protocol: 1, SrcPort: 1001, DstPort: 80, Interface: 3, ID: "0/0"}}},
		"free":            {"", nil},
	} {
		got, exists, err := place(t.Context(), (&pool{threads: [][]string{{c.text}}}).do, 0, 0)
		if diff := cmp.Diff(c.want, got, addrs); diff != "" || !exists || err != nil {
			t.Errorf("%s: %v, %v (-want +got):\n%s", name, exists, err, diff)
		}
	}
	if forms, exists, err := place(t.Context(), (&pool{threads: [][]string{{strings.Replace(placed, "list id: 3", "list id: 0", 1)}}}).do, 0, 0); exists || err != nil || forms != nil {
		t.Errorf("a place that was never used: %v, %v", exists, err)
	}
	if _, exists, err := place(t.Context(), (&pool{threads: [][]string{{placed}}}).do, 0, 1); exists || err != nil {
		t.Errorf("a place behind the last one: %v, %v", exists, err)
	}
}

// A sample has sessions of all threads and of all places, also if the first places are free; each read asks for few.
func TestSampler(t *testing.T) {
	p := &pool{threads: [][]string{make([]string, 1000), nil, make([]string, 300)}}
	for i := 900; i < 1000; i++ {
		p.threads[0][i] = placed
	}
	for i := range p.threads[2] {
		p.threads[2][i] = placed
	}
	s := Sampler{random: rand.New(rand.NewPCG(1, 2))}
	seen, reads := map[string]int{}, 300
	for range reads {
		found, total, err := s.Read(t.Context(), p.do, 10)
		if err != nil || total != 400 || len(found) > 10 {
			t.Fatalf("%d of %d, %v", len(found), total, err)
		}
		for _, forms := range found {
			seen[forms[0].ID]++
		}
	}
	if p.asked > reads*(10+2*growths) {
		t.Errorf("%d places are read %d times", p.asked, reads)
	}
	first, second := 0, 0
	for id, n := range seen {
		if n > 40 {
			t.Errorf("session %s is seen %d times", id, n)
		}
		if strings.HasPrefix(id, "0/") {
			first++
		} else {
			second++
		}
	}
	if first < 70 || second < 220 {
		t.Errorf("%d of 100 and %d of 300 sessions are seen", first, second)
	}
	p.err = errors.New("gone")
	if _, _, err := s.Read(t.Context(), p.do, 10); !errors.Is(err, p.err) {
		t.Errorf("an error of VPP: %v", err)
	}
}
