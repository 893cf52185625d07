package dataplane

// CauseKind is the kind of rule that decided about a packet.
type CauseKind uint8

// PortsPlace is the place number of a decision about ports of SCTP, which is made beside the lists of an interface.
const PortsPlace = -1

// The kinds of causes.
const (
	CauseStatic      CauseKind = iota // a fixed rule that does not depend on policies; Cause.Text names it
	CauseRule                         // a rule of a policy
	CauseEndOfTier                    // the end of a tier: policies of the tier apply, and none of them decides
	CauseProfileRule                  // a rule of a profile; no policy decides
	CauseNoMatch                      // no policy and no profile decides
	CauseIsolated                     // the endpoint's policies are not known completely
	CauseDown                         // the endpoint is administratively down
	CauseSource                       // the packet's source is not an address of the endpoint
)

// Cause is the reason for one programmed rule, in Felix's terms.
type Cause struct {
	Kind     CauseKind
	Egress   bool   // the endpoint's direction, not VPP's
	Endpoint string // the owner of the policies: a pod as "namespace/name", or the name of a host endpoint; "" for none
	Host     bool   // Endpoint is a host endpoint
	Tier     string // for CauseRule and CauseEndOfTier
	Policy   string // for CauseRule: the name on Felix's wire
	Profile  string // for CauseProfileRule
	Rule     int    // index in the rules of the policy or profile, as the message lists them
	Denied   bool   // the packet is dropped
	Text     string // for CauseStatic: "addresses of the node itself"
}
