package acl

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/vlib"
)

// Differences between the releases of VPP from 24.06 to 26.06:
//
//	nothing is known that differs; the cost of requests does (package cost)

// Needs are the messages of this package, for the check at connect.
func Needs() []api.Message {
	return []api.Message{
		&acl.ACLAddReplace{}, &acl.ACLDel{}, &acl.ACLDump{}, &acl.ACLInterfaceSetACLList{}, &acl.ACLInterfaceListDump{},
		&acl.ACLInterfaceEtypeWhitelistDump{}, &acl.ACLInterfaceSetEtypeWhitelist{}, &vlib.CliInband{},
	}
}
