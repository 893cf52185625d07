package policer

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/policer"
)

// Differences between the releases of VPP from 24.06 to 26.06:
//
//	26.06   the policer is a plugin (policer_plugin.so) with the same messages; before, VPP itself has it. At the input of an interface it limits packets of
//	        IPv4 and IPv6 (arcs ip4-unicast and ip6-unicast); before, all frames (arc device-input)

// Needs are the messages of this package, for the check at connect.
func Needs() []api.Message {
	return []api.Message{&policer.PolicerAddDel{}, &policer.PolicerDump{}, &policer.PolicerInput{}, &policer.PolicerOutput{}}
}
