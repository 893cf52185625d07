// Package owner keeps two agents off the same part of a VPP: by the kinds of values that an agent may remove, by a lock, and by a look at
// the clients that VPP lists.
//
// Invariant: two agents whose shares differ have no kind of value in common.
package owner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/cnat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/l3"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/pool"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/sctp"
)

// Share is the part of VPP's configuration that one agent owns.
type Share int

// The shares. An agent that enforces no policies has All, too: it removes the access lists of an earlier run.
const (
	All      Share = iota
	Services       // an external driver owns the access lists
	Policies       // the agent is a Felix's driver of policies, and another agent serves Services
)

// The parts with one owner each.
const (
	services = "services"
	policies = "policies"
)

// Parts returns the names of the parts that belong to a share.
func (s Share) Parts() []string {
	switch s {
	case Services:
		return []string{services}
	case Policies:
		return []string{policies}
	}
	return []string{services, policies}
}

// Kinds returns the kinds of values that an agent keeps in VPP; nil: all kinds. Two agents on one VPP must not remove each other's
// values.
func (s Share) Kinds() []*descriptor.Descriptor {
	var foreign []string
	switch s {
	case Services:
		foreign = []string{
			acl.ACL().Name, acl.DenyACL().Name, acl.InterfaceACLs().Name, sctp.Ports().Name, sctp.Filter().Name,
			acl.RangesACL().Name, acl.PermitACL().Name, acl.SourceRangesEnforced().Name, acl.SourceRanges().Name,
		}
	case Policies:
		foreign = []string{
			nat.Nat44Global().Name, nat.Nat44Settings().Name, pool.Nat44AddressPool().Name,
			nat.Nat44Interface().Name, nat.DNat44().Name, l3.RejectRoute().Name,
			cnat.SnatPolicy().Name, cnat.CnatInterface().Name, cnat.CnatTranslation().Name,
		}
	default:
		return nil
	}
	return slices.DeleteFunc(all.All(), func(d *descriptor.Descriptor) bool { return slices.Contains(foreign, d.Name) })
}

// ClientName is an agent's name in VPP's list of clients: agents with the same share have the same name.
func (s Share) ClientName() string {
	if parts := s.Parts(); len(parts) == 1 {
		return vpp.DefaultClientName + "/" + parts[0]
	}
	return vpp.DefaultClientName
}

// Lock returns the lock of a share, for the agent of a node; nil if path is "".
func (s Share) Lock(path, node string) *vpp.Lock {
	if path == "" {
		return nil
	}
	l := &vpp.Lock{Owner: vpp.Owner{PID: os.Getpid(), Node: node, Command: commandName()}}
	for _, part := range s.Parts() {
		l.Paths = append(l.Paths, lockFile(path, part))
	}
	return l
}

// LockFiles returns the files of the lock at a path, by the part of VPP that each locks.
func LockFiles(path string) map[string]string {
	out := map[string]string{}
	if path != "" {
		for _, part := range All.Parts() {
			out[part] = lockFile(path, part)
		}
	}
	return out
}

func lockFile(path, part string) string { return path + "-" + part }

// commandName returns the program and its subcommand: "contiv-agent run".
func commandName() string {
	name := filepath.Base(os.Args[0])
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		name += " " + os.Args[1]
	}
	return name
}
