package linux

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/ifaces"
)

// typeTap is netlink's type of a tap. A tap lives as long as VPP has its file: it vanishes with VPP, from whatever namespace it is in.
const typeTap = "tuntap"

// freshTap reports that VPP's tap is in the agent's namespace, where VPP made it, and not at its place yet.
func (r *PutLink) freshTap(h *handles) (bool, error) {
	own, err := h.handleOf("")
	if err != nil || r.From == "" || r.Namespace == "" && r.Name == r.From {
		return false, err
	}
	switch _, err = own.LinkByName(r.From); {
	case none(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("link %s: %w", r.From, err)
	}
	return true, nil
}

// clearTap makes room for a tap that VPP has just made: the tap of a VPP that ended is still at its place while the kernel ends that process.
func (r *PutLink) clearTap(h *handles, nl *handle) error {
	fresh, err := r.freshTap(h)
	if err != nil || !fresh {
		return err
	}
	var l netlink.Link
	switch l, err = nl.LinkByName(r.Name); {
	case none(err):
		return nil
	case err != nil:
		return fmt.Errorf("link %s: %w", r.Name, err)
	case l.Type() != typeTap:
		return fmt.Errorf("link %s is no tap of VPP's: remove it", r.Name)
	}
	return Wrap("remove the tap of a former VPP "+r.Name, nl.LinkDel(l))
}

// atPlace reports that a tap that was found is that of the present VPP: VPP has it, and it is not where VPP made it any more.
func (i *iface) atPlace(w *descriptor.World, d *descriptor.Dump, l *Link) (bool, error) {
	from, _ := ifaces.TapHost(w, i.tap)
	if _, ok := w.Interface(i.tap); !ok || l.Kind != typeTap {
		return false, nil
	}
	if i.namespace == "" && i.host == from {
		return true, nil
	}
	links, err := descriptor.Details[*Link](d, linksOf("").ID)
	for _, o := range links {
		if o.Name == from {
			return false, err
		}
	}
	return true, err
}
