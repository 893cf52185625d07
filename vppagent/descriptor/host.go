package descriptor

import (
	"github.com/contiv-agent/contiv-agent/kv"
)

// HostLink is where an interface of the host is.
type HostLink struct {
	Namespace string // as descriptor/linux writes it; "": the agent's
	Name      string
	From      string // what it was called before, in the agent's namespace; "": it was not there
}

// HostLink returns where the interface of the host is that values call name.
func (w *World) HostLink(name string) (HostLink, bool) {
	l, ok := w.hostLinks[name]
	return l, ok
}

// SetHostLink notes where an interface of the host is that is wanted or ours; nil: it is no more.
func (w *World) SetHostLink(name string, l *HostLink) {
	if l == nil {
		delete(w.hostLinks, name)
		return
	}
	if w.hostLinks == nil {
		w.hostLinks = map[string]HostLink{}
	}
	w.hostLinks[name] = *l
}

// TapHost returns what the host calls its side of a tap of VPP's that is wanted; false: there is no such tap, or VPP chooses.
func (w *World) TapHost(name string) (string, bool) {
	i, ok := w.Wanted(kv.InterfaceKey(name)).(*iface)
	if !ok {
		return "", false
	}
	t, ok := i.link.(tapLink)
	return t.host, ok && t.host != ""
}

// Details returns the details of a dump whose messages are D; the error is that the question was not answered.
func Details[D any](d *Dump, id string) ([]D, error) { return details[D](d, id) }
