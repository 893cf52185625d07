package sctp

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/classify"
	"go.fd.io/govpp/binapi/vlib"
)

// Differences between the releases of VPP from 24.06 to 26.06: none is known.

// Needs are the messages of this package, for the check at connect.
func Needs() []api.Message {
	return []api.Message{
		&classify.ClassifyAddDelTable{}, &classify.ClassifyAddDelSession{}, &classify.InputACLSetInterface{}, &classify.OutputACLSetInterface{},
		&classify.ClassifyTableIds{}, &classify.ClassifyTableInfo{}, &classify.ClassifySessionDump{},
		&vlib.CliInband{},
	}
}
