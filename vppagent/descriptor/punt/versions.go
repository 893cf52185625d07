package punt

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/punt"
)

// Differences between the releases of VPP from 24.06 to 26.06:
//
//	nothing is known that differs

// Needs are the messages of this package, for the check at connect.
func Needs() []api.Message {
	return []api.Message{
		&punt.PuntSocketRegister{}, &punt.PuntSocketDeregister{}, &punt.PuntSocketDump{}, &punt.PuntReasonDump{},
		&ip.AddDelIPPuntRedirectV2{}, &ip.IPPuntRedirectV2Dump{},
	}
}
