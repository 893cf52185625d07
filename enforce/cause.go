package enforce

// CauseKind says what kind of thing decides.
type CauseKind uint8

// PortsPlace is the place, where one is asked about, of what decides about ports of SCTP beside the lists of an interface.
const PortsPlace = -1

// The kinds of causes.
const (
	CauseStatic      CauseKind = iota // something that holds whatever the policies are; Cause.Text names it
	CauseRule                         // a rule of a policy
	CauseEndOfTier                    // a tier whose policies apply, none of which decides
	CauseProfileRule                  // a rule of a profile: no policy decides
	CauseNoMatch                      // neither policy nor profile decides
	CauseIsolated                     // the endpoint's policies are not known yet, or not all of them
	CauseDown                         // the endpoint is administratively down
	CauseSource                       // the endpoint sends from an address that is not its own
)

// Cause is what stands behind a rule of what was programmed, in Felix's words.
type Cause struct {
	Kind     CauseKind
	Egress   bool   // direction, as the endpoint sees it
	Endpoint string // whose policies they are: the workload of a pod, "namespace/name", or the name of a host endpoint; "" nobody's
	Host     bool   // it is a host endpoint
	Tier     string // of rule and end of tier
	Policy   string // Felix's name, of a rule
	Profile  string // of a profile's rule
	Rule     int    // index in the rules of the policy or profile as the message has them
	Denied   bool   // what happens then
	Text     string // of a static cause: "addresses of the node itself"
}
