package linux

import (
	"maps"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// hostLinks are the host's interfaces that values speak of, by logical name.
type hostLinks map[string]hostLink

// hostLink is where an interface of the host is.
type hostLink struct {
	namespace string // as values name it; "": the agent's
	name      string
	from      string // what it was called before, in the agent's namespace; "": it was not there
}

func hostLinksOf(w *descriptor.World) hostLinks {
	return descriptor.FactsOf(w, func() hostLinks { return hostLinks{} })
}

// Clone implements descriptor.Facts.
func (l hostLinks) Clone() descriptor.Facts { return maps.Clone(l) }
