package policy

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// A number in a message that exceeds the model's range does not become another valid number: port 65,616 is not shown as port 80.
func TestNumbersOfMessagesDoNotWrap(t *testing.T) {
	r := written(&felix.Rule{
		IpVersion: 260, Protocol: &felix.Protocol{NumberOrName: &felix.Protocol_Number{Number: 262}},
		DstPorts: []*felix.PortRange{{First: -1, Last: 65616}}, Icmp: &felix.Rule_IcmpType{IcmpType: 264},
	})
	if p := r.Destination.Ports[0]; p.First != 0 || p.Last != 65535 || r.IPVersion != 255 || r.Protocol.Number != 255 || r.ICMP.Type != 255 {
		t.Errorf("%+v, %+v", r, *r.ICMP)
	}
}
