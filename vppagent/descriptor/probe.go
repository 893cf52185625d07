package descriptor

import (
	"strings"

	"go.fd.io/govpp/binapi/feature"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Node is a node on an arc of an interface that packets must meet, or what VPP's records have of the interface means nothing. No dump
// shows whether they do: feature_enable_disable, or `set interface feature`, takes a node off the arc and leaves the records as they are.
type Node struct {
	Arc, Name string
	Like      string // any node of the arc whose name begins so will do; "": Name alone
}

// AskNodes asks for the nodes on the arcs of an interface; false: VPP has no such interface.
func AskNodes(w *World, name string) (vpp.Call, bool) {
	i, ok := w.Interface(name)
	if !ok {
		return vpp.Call{}, false
	}
	return vpp.Call{Msg: ShowFeatures(i.VPPName)}, true
}

// MissingNodes are those of want that the answer to AskNodes does not have. The error is that the answer says nothing.
func MissingNodes(r vpp.Reply, want []Node) (out []Node, _ error) {
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
	idx, err := w.Index(iface)
	if err != nil {
		return vpp.Call{}, false
	}
	return Write(&feature.FeatureEnableDisable{SwIfIndex: idx, Enable: true, ArcName: n.Arc, FeatureName: n.Name}), true
}
