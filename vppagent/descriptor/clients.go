package descriptor

import (
	"fmt"
	"strings"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Clients asks VPP for the clients of its binary API. No message has them, so it uses a command.
func Clients() vpp.Call { return vpp.Call{Msg: &vlib.CliInband{Cmd: "show api clients"}} }

// ClientNames parses the answer to Clients: the names of clients by shared memory and by socket. Each kind is a table with a
// title and a line of headings (vl_api_client_command and vl_sock_api_dump_clients, VPP 24.06 to 25.10).
func ClientNames(r vpp.Reply) ([]string, error) {
	if r.Err != nil {
		return nil, r.Err
	}
	m, ok := r.Msg.(*vlib.CliInbandReply)
	if !ok {
		return nil, fmt.Errorf("show api clients: got %T", r.Msg)
	}
	var names []string
	table := false
	for line := range strings.Lines(m.Reply) {
		switch fields := strings.Fields(line); {
		case len(fields) == 0:
		case strings.HasSuffix(strings.TrimSpace(line), " clients"): // a title
			table = false
		case !table:
			table = fields[0] == "Name"
		default:
			names = append(names, fields[0])
		}
	}
	return names, nil
}
