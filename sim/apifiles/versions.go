// Package apifiles turns the bindings of the API files that the sim implements into the answer of api_versions.
//
// Invariant: the versions are those of the bindings.
package apifiles

import (
	"fmt"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/classify"
	"go.fd.io/govpp/binapi/cnat"
	featureapi "go.fd.io/govpp/binapi/feature"
	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
)

// Versions are the versions of the API files that the sim implements.
func Versions() *memclnt.APIVersionsReply {
	files := [][2]string{
		{memclnt.APIFile, memclnt.APIVersion},
		{vpe.APIFile, vpe.APIVersion},
		{vlib.APIFile, vlib.APIVersion},
		{interfaces_.APIFile, interfaces_.APIVersion},
		{ip.APIFile, ip.APIVersion},
		{ip_neighbor.APIFile, ip_neighbor.APIVersion},
		{tapv2.APIFile, tapv2.APIVersion},
		{af_packet.APIFile, af_packet.APIVersion},
		{memif.APIFile, memif.APIVersion},
		{nat44_ed.APIFile, nat44_ed.APIVersion},
		{acl.APIFile, acl.APIVersion},
		{cnat.APIFile, cnat.APIVersion},
		{classify.APIFile, classify.APIVersion},
		{featureapi.APIFile, featureapi.APIVersion},
	}
	reply := &memclnt.APIVersionsReply{Count: uint32(len(files))}
	for _, f := range files {
		m := memclnt.ModuleVersion{Name: f[0] + ".api"}
		_, _ = fmt.Sscanf(f[1], "%d.%d.%d", &m.Major, &m.Minor, &m.Patch)
		reply.APIVersions = append(reply.APIVersions, m)
	}
	return reply
}
