package acl

import (
	"github.com/contiv-agent/contiv-agent/renderer/acl/source"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// SourceCheck states from which addresses a pod may send (ADR 13).
type SourceCheck = source.Mode

// The source checks.
const (
	SourceStrict  = source.Strict  // drops a pod's packets from any address but the pod's
	SourceAllowed = source.Allowed // also lets a pod send from the prefixes that its endpoint allows (allow_spoofed_source_prefixes)
	SourceOff     = source.Off     // checks nothing
)

// IsSourceCheck reports whether an ACL of that name is a source check: its denying rules drop packets that are not from the pod, or packets
// from outside with an address of the node's.
func IsSourceCheck(acl string) bool { return table.IsSource(acl) }
