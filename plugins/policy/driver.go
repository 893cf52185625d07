package policy

import (
	"github.com/contiv-agent/contiv-agent/enforce"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Driver programs what Felix's messages say: a dataplane driver in Felix's sense. All calls come from one goroutine.
type Driver interface {
	// OnUpdate takes one message; nothing happens before Apply.
	OnUpdate(*felix.ToDataplane)
	// SetNode takes what is known about the node beside the messages, complete each time.
	SetNode(enforce.Node)
	// Apply programs what the messages so far say. Again is true if that was a state on the way: it is to be called once
	// more when that state is there.
	Apply() (again bool)
	// Resync hands over again everything there is.
	Resync()
	// Cause tells what a rule of what was programmed stands for: that at a place of the list of an interface (output:
	// what leaves through it), by its number; -1 is the end of the list. False: the driver has no such list.
	Cause(iface string, output bool, place, rule int) (enforce.Cause, bool)
}
