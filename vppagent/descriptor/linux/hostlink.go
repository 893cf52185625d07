package linux

import (
	"maps"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// hostLinks are the host's interfaces that values name, by logical name.
type hostLinks map[string]hostLink

// hostLink is the location of an interface of the host.
type hostLink struct {
	namespace string // name in values; "": the agent's
	name      string
	from      string // its former name in the agent's namespace; "": it was not in that namespace
}

func hostLinksOf(w *descriptor.World) hostLinks {
	return descriptor.FactsOf(w, func() hostLinks { return hostLinks{} })
}

// LinkName returns the kernel's name of an interface of the agent's host, by its logical name.
func LinkName(w *descriptor.World, iface string) (name string, ok bool) {
	l, ok := hostLinksOf(w)[iface]
	return l.name, ok
}

// Clone implements descriptor.Facts.
func (l hostLinks) Clone() descriptor.Facts { return maps.Clone(l) }
