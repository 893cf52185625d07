package agent

import (
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// mappings counts the frontends of a value.
func mappings(msg proto.Message) int {
	switch m := msg.(type) {
	case *nat.DNat44:
		return len(m.StMappings)
	case *cnat.Translation:
		return 1
	}
	return 0
}
