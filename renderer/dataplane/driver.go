package dataplane

import "github.com/contiv-agent/contiv-agent/proto/felix"

// Driver programs the policies that Felix's messages carry. It is a dataplane driver in Felix's sense. All calls come from one goroutine.
type Driver interface {
	// OnUpdate records one message. It programs nothing before Apply.
	OnUpdate(*felix.ToDataplane)
	// SetNode replaces the facts about the node that the messages do not carry. Each call passes all of them.
	SetNode(Node)
	// Apply programs the state that the messages so far describe. Again is true if it programmed an interim state: the caller calls
	// Apply once more when that state is in VPP.
	Apply() (again bool)
	// Resync passes the whole programmed state to the sink again.
	Resync()
	// Cause returns the reason for a programmed rule. Place is the position of the list on the interface (output: packets that leave
	// through it), rule the number within that list; -1 is the end of the list. False: the driver has no such list.
	Cause(iface string, output bool, place, rule int) (Cause, bool)
}
