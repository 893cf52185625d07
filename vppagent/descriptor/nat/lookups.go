package nat

import (
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"go.fd.io/govpp/binapi/vlib"
)

// natNodes are the graph nodes of the roles of an interface (nat44_ed_add_interface, nat44_ed_add_output_interface, VPP 25.10).
func natNodes(w *descriptor.World, have any) []descriptor.Node {
	i, many := have.(*natInterface), w.Workers > 1
	name := func(one, more string) string {
		if many {
			return more
		}
		return one
	}
	const like = "nat"
	in := func(name string) descriptor.Node { return descriptor.Node{Arc: "ip4-unicast", Name: name, Like: like} }
	switch {
	case i.output:
		out := descriptor.Node{Arc: "ip4-output", Name: name("nat-pre-in2out-output", "nat44-in2out-output-worker-handoff"), Like: like}
		return []descriptor.Node{in(name("nat-pre-out2in", "nat44-out2in-worker-handoff")), out}
	case i.inside && i.outside:
		return []descriptor.Node{in(name("nat44-ed-classify", "nat44-handoff-classify"))}
	case i.inside:
		return []descriptor.Node{in(name("nat-pre-in2out", "nat44-in2out-worker-handoff"))}
	}
	return []descriptor.Node{in(name("nat-pre-out2in", "nat44-out2in-worker-handoff"))}
}

// MappingCount returns the number of mappings that VPP has of a DNat44; 0 for other states.
func MappingCount(have any) int {
	if d, ok := have.(*dnat); ok {
		return len(d.mappings)
	}
	return 0
}

// AskLookups asks for the number of entries in the table in which VPP looks up NAT44 mappings and sessions, and for the number of sessions.
func AskLookups() []vpp.Call {
	return []vpp.Call{{Msg: &vlib.CliInband{Cmd: "show nat44 hash tables"}}, {Msg: &vlib.CliInband{Cmd: "show nat44 summary"}}}
}

// LookupsLack reports, from the answers to AskLookups, that the table lacks lookups of the mappings: each mapping and each session has
// an entry, and the table has fewer entries (VPP 25.10). False: the table may be complete, or VPP does not report it.
func LookupsLack(mappings int, replies []vpp.Reply) bool {
	number := func(r vpp.Reply, before, after string) (n int, ok bool) {
		text, err := descriptor.CLIText(r)
		_, rest, there := strings.Cut(text, before)
		if err != nil || !there {
			return 0, false
		}
		_, err = fmt.Sscanf(strings.TrimSpace(rest), after, &n)
		return n, err == nil
	}
	entries, known := number(replies[0], "'ed-flow-hash'", "%d active elements")
	sessions, counted := number(replies[1], "total sessions:", "%d")
	return known && counted && entries < mappings+sessions
}
