package descriptor

import (
	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// WatchInterfaces calls changed whenever VPP reports an added interface or a new state, and gone with the index of a deleted one:
// VPP gives that index to the next interface. VPP sends events only on connections that asked for them: vpp.Config.OnConnect must
// contain OnConnect.
func WatchInterfaces(events interface {
	Events(msg api.Message, fn func(api.Message))
}, changed func(), gone func(swIfIndex uint32),
) {
	events.Events(&interfaces.SwInterfaceEvent{}, func(m api.Message) {
		if e := m.(*interfaces.SwInterfaceEvent); e.Deleted {
			gone(uint32(e.SwIfIndex))
		} else {
			changed()
		}
	})
}

// OnConnect are the requests that make VPP send the events of WatchInterfaces.
func OnConnect() []vpp.Call {
	return []vpp.Call{{Msg: &interfaces.WantInterfaceEvents{EnableDisable: 1}}}
}

// Needs are the messages of this package, for the check at connect.
func Needs() []api.Message {
	return []api.Message{
		&interfaces.SwInterfaceDump{}, &interfaces.WantInterfaceEvents{}, &nat44_ed.NatWorkerDump{}, &vlib.CliInband{},
	}
}
