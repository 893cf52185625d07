package descriptor

import (
	"context"
	"fmt"
	"strings"

	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Node is a node on an arc of an interface that packets must meet, or what VPP's records have of the interface means nothing. No dump
// shows whether they do: feature_enable_disable, or `set interface feature`, takes a node off the arc and leaves the records as they are.
type Node struct {
	Arc, Name string
	Like      string // any node of the arc whose name begins so will do; "": Name alone
}

// aclNodes are those of the lists an interface has (acl_fa_enable_disable, VPP 25.10).
func aclNodes(w *World, have any) (out []Node) {
	idx, err := w.index(have.(*accessLists).iface)
	if err != nil {
		return nil
	}
	has := w.lists[uint32(idx)]
	if len(has.in) > 0 {
		out = append(out, Node{Arc: "ip4-unicast", Name: "acl-plugin-in-ip4-fa"}, Node{Arc: "ip6-unicast", Name: "acl-plugin-in-ip6-fa"})
	}
	if len(has.out) > 0 {
		out = append(out, Node{Arc: "ip4-output", Name: "acl-plugin-out-ip4-fa"}, Node{Arc: "ip6-output", Name: "acl-plugin-out-ip6-fa"})
	}
	return out
}

// natNodes are those of the roles of an interface (nat44_ed_add_interface, nat44_ed_add_output_interface, VPP 25.10).
func natNodes(w *World, have any) []Node {
	i, many := have.(*natInterface), w.Workers > 1
	name := func(one, more string) string {
		if many {
			return more
		}
		return one
	}
	const like = "nat"
	in := func(name string) Node { return Node{Arc: "ip4-unicast", Name: name, Like: like} }
	switch {
	case i.output:
		out := Node{Arc: "ip4-output", Name: name("nat-pre-in2out-output", "nat44-in2out-output-worker-handoff"), Like: like}
		return []Node{in(name("nat-pre-out2in", "nat44-out2in-worker-handoff")), out}
	case i.inside && i.outside:
		return []Node{in(name("nat44-ed-classify", "nat44-handoff-classify"))}
	case i.inside:
		return []Node{in(name("nat-pre-in2out", "nat44-in2out-worker-handoff"))}
	}
	return []Node{in(name("nat-pre-out2in", "nat44-out2in-worker-handoff"))}
}

// AskNodes asks for the nodes on the arcs of an interface; false: VPP has no such interface.
func AskNodes(w *World, name string) (vpp.Call, bool) {
	i, ok := w.Interface(name)
	if !ok {
		return vpp.Call{}, false
	}
	return vpp.Call{Msg: showFeatures(i.VPPName)}, true
}

// MissingNodes are those of want that the answer to AskNodes does not have. The error is that the answer says nothing.
func MissingNodes(r vpp.Reply, want []Node) (out []Node, _ error) {
	text, err := cliText(r)
	if err != nil {
		return nil, err
	}
	has := map[string][]string{}
	arc := ""
	for line := range strings.Lines(text) {
		if word := strings.TrimSpace(line); strings.HasSuffix(word, ":") {
			arc = strings.TrimSuffix(word, ":")
			has[arc] = nil
		} else if arc != "" {
			has[arc] = append(has[arc], word)
		}
	}
	for _, n := range want {
		nodes, shown := has[n.Arc]
		there := !shown // this VPP does not show the arc: nothing is known
		for _, name := range nodes {
			there = there || name == n.Name || n.Like != "" && strings.HasPrefix(name, n.Like)
		}
		if !there {
			out = append(out, n)
		}
	}
	return out, nil
}

// PutNode puts a node back on its arc. It must be missing: VPP would have packets meet it twice.
func PutNode(w *World, iface string, n Node) (vpp.Call, bool) {
	idx, err := w.index(iface)
	if err != nil {
		return vpp.Call{}, false
	}
	return write(&feature.FeatureEnableDisable{SwIfIndex: idx, Enable: true, ArcName: n.Arc, FeatureName: n.Name}), true
}

// SetReclassify makes VPP judge established flows again when access lists change; there is a command for it alone (VPP 24.06 to 26.06).
func SetReclassify(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply) error {
	_, err := cliText(do(ctx, vpp.Call{Msg: &vlib.CliInband{Cmd: "set acl-plugin reclassify-sessions 1"}})[0])
	return err
}

// MappingCount is how many mappings VPP has of a DNat44; 0: it is none.
func MappingCount(have any) int {
	if d, ok := have.(*dnat); ok {
		return len(d.mappings)
	}
	return 0
}

// AskLookups asks how many entries the table has in which VPP looks up NAT44 mappings and sessions, and how many sessions there are.
func AskLookups() []vpp.Call {
	return []vpp.Call{{Msg: &vlib.CliInband{Cmd: "show nat44 hash tables"}}, {Msg: &vlib.CliInband{Cmd: "show nat44 summary"}}}
}

// LookupsLack tells, by the answers to AskLookups, that the table cannot have the lookups of so many mappings: each has an entry, and so
// has each session, and there are fewer (VPP 25.10). False: it may have them, or VPP does not say.
func LookupsLack(mappings int, replies []vpp.Reply) bool {
	number := func(r vpp.Reply, before, after string) (n int, ok bool) {
		text, err := cliText(r)
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
