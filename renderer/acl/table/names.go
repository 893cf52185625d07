package table

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
)

// Names of the tables without a policy.
const (
	StaticIn   = "static-input"
	StaticOut  = "static-output"
	FromNode   = "from-node"
	FromPool   = "from-pool"   // addresses of the node that NAT gives to other senders
	FromHidden = "from-hidden" // the same, for lists with rules about peers
	HairpinAll = "hairpin"     // for pods that hidden clients reach: hairpin-<interface>
	KeptOuter  = "services"    // outer addresses that keep their clients
	Barred     = "barred"      // per program: outer addresses that it does not allow
	Led        = "led"         // per program: outer addresses that it allows although it would deny the dialled address
	DenyAll    = "deny-all"
	ServedHigh = "served" // high ports of local pods, for packets from elsewhere
	// PermitEgress and PermitIngress permit everything, each under the law of its direction.
	PermitEgress  = "permit-all-egress"
	PermitIngress = "permit-all-ingress"
	GroupPrefix   = "egress-" // of residueGroups
	ClosedPrefix  = "closed-" // of refusalGroups
)

// The tables of host endpoints that depend on the node alone.
const (
	Tunnels  = "tunnels"  // packets of the overlay itself
	Inward   = "inward"   // destinations that are always open to the node itself
	Outgoing = "outgoing" // packets of the node
)

// NoSCTP is the table that denies SCTP.
const NoSCTP = "no-sctp"

// The tables of a source check, without the interface's name.
const (
	SourceOnly  = "source-only-"  // permits the pod's prefixes, and denies the rest
	SourceFirst = "source-check-" // denies all but the pod's prefixes
)

// The tables of the check of packets from outside. Those of the overlay's input have the suffix.
const (
	OutsideOnly   = "outside-only"  // denies the node's own sources, and permits the rest
	OutsideFirst  = "outside-check" // denies the node's own sources
	OverlaySuffix = "-overlay"
)

// InvitedPrefix is the prefix of the tables of invitations.
const InvitedPrefix = "invited-"

// The tables that deny SCTP to Services and to nodes. All pods share them.
const (
	ServiceFronts = "service-fronts"
	NodeFronts    = "node-fronts"
)

// Lawless reports whether a table has one name under every law: it permits nothing by policy, so each law writes it alike.
func Lawless(table string) bool {
	switch table {
	case StaticIn, StaticOut, DenyAll, NoSCTP, FromPool, FromHidden, ServiceFronts, NodeFronts:
		return true
	}
	_, reserved := kv.NeedsSCTPPorts(table)
	return reserved || IsSource(table) || strings.HasPrefix(table, GroupPrefix) || strings.HasPrefix(table, ClosedPrefix) || strings.HasPrefix(table, Barred+"-")
}

// WireName returns VPP's name of a table at interfaces with these served ports. Almost no pod serves high ports, so pods share
// tables.
func WireName(table string, served *law.Ports) string {
	if served == nil || Lawless(table) {
		return table
	}
	if name := table + "." + NameOf(served.Key())[:8]; len(name) <= mostName {
		return name
	}
	return "served-" + NameOf(table+"\x00"+served.Key())
}

// mostName is the longest name that VPP's tags can hold.
const mostName = 40

// NameOf returns the name of a segment's tables from its role, the same in every process.
func NameOf(role string) string {
	sum := sha256.Sum256([]byte(role))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15]))
}

// PermitAll returns the name of the table that permits all packets that pods, or the node, send (egress) or receive.
func PermitAll(egress bool) string {
	if egress {
		return PermitEgress
	}
	return PermitIngress
}

// PermitsAll reports whether a table is one of PermitAll.
func PermitsAll(table string) bool { return table == PermitEgress || table == PermitIngress }

// IsSource reports whether a table belongs to a source check.
func IsSource(table string) bool {
	return strings.HasPrefix(table, SourceOnly) || strings.HasPrefix(table, SourceFirst) || strings.HasPrefix(table, OutsideOnly) || strings.HasPrefix(table, OutsideFirst)
}
