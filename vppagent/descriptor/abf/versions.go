package abf

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/abf"
)

// Differences between the releases of VPP from 24.06 to 26.06:
//
//	nothing is known that differs

// Needs are the messages of this package, for the check at connect.
func Needs() []api.Message {
	return []api.Message{
		&abf.AbfPolicyAddDel{}, &abf.AbfPolicyDump{}, &abf.AbfItfAttachAddDel{}, &abf.AbfItfAttachDump{},
	}
}
