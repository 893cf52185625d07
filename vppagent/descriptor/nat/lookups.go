package nat

import (
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/arrange"
	"go.fd.io/govpp/binapi/vlib"
)

// natNodes are the graph nodes of NAT44 on an interface; none if the agent's dumps show them.
func natNodes(w *descriptor.World, have any) []descriptor.Node {
	i := have.(*natInterface)
	if in, ok := w.Interface(i.name); ok && shown(in, i.Arrangement) {
		return nil
	}
	return i.NodesOf(w.Workers)
}

// MeetsBoth reports that packets of an interface meet the node of both roles, as the answer to descriptor.ShowFeatures says.
func MeetsBoth(r vpp.Reply) bool {
	nodes, err := arrange.NodesShown(r)
	return err == nil && nodes[arrange.Classify] > 0
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
