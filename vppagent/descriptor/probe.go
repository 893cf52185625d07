package descriptor

import (
	"strings"

	"go.fd.io/govpp/binapi/feature"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Node is a graph node on an arc of an interface. If packets do not meet it, VPP's records of the interface mean nothing, and no dump
// shows that: feature_enable_disable, or `set interface feature`, takes a node off the arc and keeps the records.
type Node struct {
	Arc, Name string
	Like      string // any node of the arc whose name has this prefix will do; "": Name alone
}

// AskNodes asks for the nodes on the arcs of an interface; false: VPP has no such interface.
func AskNodes(w *World, name string) (vpp.Call, bool) {
	i, ok := w.Interface(name)
	if !ok {
		return vpp.Call{}, false
	}
	return vpp.Call{Msg: ShowFeatures(i.VPPName)}, true
}

// MissingNodes are the wanted nodes that are absent from the answer to AskNodes. The error says that the answer has no information.
func MissingNodes(r vpp.Reply, want []Node) (out []Node, _ error) {
	has, err := NodesOn(r)
	if err != nil {
		return nil, err
	}
	for _, n := range want {
		nodes, shown := has[n.Arc]
		there := !shown // this VPP does not show the arc: the answer is unknown
		for _, name := range nodes {
			there = there || name == n.Name || n.Like != "" && strings.HasPrefix(name, n.Like)
		}
		if !there {
			out = append(out, n)
		}
	}
	return out, nil
}

// NodesOn are the nodes on each arc, from the answer to ShowFeatures. A node that is on an arc twice is in the list twice.
func NodesOn(r vpp.Reply) (map[string][]string, error) {
	text, err := CLIText(r)
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
	return has, nil
}

// Nameable reports whether VPP's command line finds the interface by its name: VPP takes a dot and digits at the end for a sub-interface
// (unformat_vnet_sw_interface, VPP 24.06 to 26.06).
func (i *Iface) Nameable() bool {
	at := strings.LastIndexByte(i.VPPName, '.')
	return i.Sub || at < 0 || at == len(i.VPPName)-1 || strings.Trim(i.VPPName[at+1:], "0123456789") != ""
}

// PutNode puts a node back on its arc. The node must be missing, or packets would meet it twice.
func PutNode(w *World, iface string, n Node) (vpp.Call, bool) {
	idx, err := w.Index(iface)
	if err != nil {
		return vpp.Call{}, false
	}
	return Write(&feature.FeatureEnableDisable{SwIfIndex: idx, Enable: true, ArcName: n.Arc, FeatureName: n.Name}), true
}
