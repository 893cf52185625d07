package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Driver programs what Felix's messages say: a dataplane driver in Felix's sense. All calls come from one goroutine.
type Driver interface {
	// OnUpdate takes one message; nothing happens before Apply.
	OnUpdate(*felix.ToDataplane)
	// SetNode takes what is known about the node beside the messages, complete each time.
	SetNode(Node)
	// Apply programs what the messages so far say. Again is true if that was a state on the way: it is to be called once
	// more when that state is there.
	Apply() (again bool)
	// Resync hands over again everything there is.
	Resync()
	// Cause tells what a rule of what was programmed stands for: that at a place of the list of an interface (output:
	// what leaves through it), by its number; -1 is the end of the list. False: the driver has no such list.
	Cause(iface string, output bool, place, rule int) (Cause, bool)
}

// Node is what a driver has to know about the node.
type Node struct {
	Interfaces map[netip.Addr]string // addresses of local pods → their interfaces in VPP, as far as they were found
	Isolated   []string              // interfaces nothing may pass through yet: their pods have no address, and policies apply to them; sorted
	Uplink     string                // interface to the outside; "" unknown
	Overlay    string                // interface to the other nodes' pods; "" if that is the uplink
	Host       string                // interface to the node's own network stack; "" if there is none
	Addrs      []netip.Addr          // the node's own addresses, sorted
	Hairpin    []netip.Addr          // addresses that stand in for clients of services: a pod that reached itself, or whoever dialled an Outer that hides him
	Frontends  []netip.Prefix        // destinations that may still be translated and keep their clients, sorted: cluster IPs
	Outer      []Outer               // ports of services at other addresses, sorted
	ByteMatch6 bool                  // VPP matches IPv6 prefixes by whole bytes only (before 25.06)
}

// Outer is a port of a service at an address that is no cluster IP: an external one, or a node's.
type Outer struct {
	Addr     netip.Addr
	Proto    uint8 // TCP or UDP, as a number
	Port     uint16
	Hides    bool             // whoever dials it gets a Hairpin address as source, whichever backend it is led to
	Backends []netip.AddrPort // at least one
}

func (o Outer) equal(p Outer) bool {
	return o.Addr == p.Addr && o.Proto == p.Proto && o.Port == p.Port && o.Hides == p.Hides && slices.Equal(o.Backends, p.Backends)
}

func sameOuter(a, b []Outer) bool {
	if len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] {
		return true
	}
	return slices.EqualFunc(a, b, Outer.equal)
}

func (n *Node) equal(o *Node) bool {
	return maps.Equal(n.Interfaces, o.Interfaces) && slices.Equal(n.Isolated, o.Isolated) && n.Uplink == o.Uplink && n.Overlay == o.Overlay && n.Host == o.Host &&
		slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.Hairpin, o.Hairpin) && slices.Equal(n.Frontends, o.Frontends) && sameOuter(n.Outer, o.Outer) &&
		n.ByteMatch6 == o.ByteMatch6
}

// CauseKind says what kind of thing decides.
type CauseKind uint8

// The kinds of causes.
const (
	CauseStatic      CauseKind = iota // something that holds whatever the policies are; Cause.Text names it
	CauseRule                         // a rule of a policy
	CauseEndOfTier                    // a tier whose policies apply, none of which decides
	CauseProfileRule                  // a rule of a profile: no policy decides
	CauseNoMatch                      // neither policy nor profile decides
	CauseIsolated                     // the endpoint's policies are not known yet
	CauseDown                         // the endpoint is administratively down
)

// Cause is what stands behind a rule of what was programmed, in Felix's words.
type Cause struct {
	Kind     CauseKind
	Egress   bool   // direction, as the endpoint sees it
	Endpoint string // whose policies they are: "namespace/name" of a pod, the name of a host endpoint; "" nobody's
	Host     bool   // it is a host endpoint
	Tier     string // of rule and end of tier
	Policy   string // Felix's name, of a rule
	Profile  string // of a profile's rule
	Rule     int    // index in the rules of the policy or profile as the message has them
	Denied   bool   // what happens then
	Text     string // of a static cause: "addresses of the node itself"
}
