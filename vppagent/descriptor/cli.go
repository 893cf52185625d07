package descriptor

import (
	"fmt"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

const idFeaturesOf = "show interface features"

// CLIText returns the text that a command of VPP's command line printed.
func CLIText(r vpp.Reply) (string, error) {
	if r.Err != nil {
		return "", r.Err
	}
	m, ok := r.Msg.(*vlib.CliInbandReply)
	if !ok {
		return "", fmt.Errorf("cli_inband: got %T", r.Msg)
	}
	return m.Reply, nil
}

// ShowFeatures asks for the graph nodes on the arcs of an interface.
func ShowFeatures(vppName string) *vlib.CliInband {
	return &vlib.CliInband{Cmd: idFeaturesOf + " " + vppName}
}
