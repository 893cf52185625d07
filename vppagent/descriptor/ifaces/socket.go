package ifaces

import (
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/memif"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// VPP makes the socket of a memif before the interface, and forgets it after the interface, each by a separate request. A refusal, or the end of the
// agent, between the two leaves a socket without an interface. VPP has no tag for sockets. So the journal has each memif of ours from before its first
// request to after its last one, and a socket that remains is what VPP has of that interface.

// socket is the file of a memif's socket; "": it is VPP's default one, or the interface is no memif.
func (i *iface) socket() string {
	l, _ := i.link.(memifLink)
	return l.socket
}

// dropSocket makes VPP forget the socket, unless another interface is on it.
func (l memifLink) dropSocket(w *descriptor.World) []descriptor.Op {
	f := linksOf(w)
	id := f.socketID(l.socket)
	if id == 0 || isSocketUsed(w, id) {
		return nil
	}
	delete(f.sockets, id)
	return []descriptor.Op{{
		Call: descriptor.Write(&memif.MemifSocketFilenameAddDelV2{SocketID: id}),
		Else: func() []descriptor.Op { f.sockets[id] = l.socket; return nil },
	}}
}

func isSocketUsed(w *descriptor.World, id uint32) bool {
	return slices.ContainsFunc(w.Interfaces(), func(i *descriptor.Iface) bool { return strings.HasPrefix(i.VPPName, memifsOn(id)) })
}

// remainingSockets finds the sockets of interfaces that are ours and that VPP no longer has, or does not have yet. The agent removes such a
// socket, unless a wanted interface uses it.
func remainingSockets(w *descriptor.World, c descriptor.Candidates) (out []descriptor.Found) {
	left, names := map[string]*iface{}, map[string]bool{} // by socket, of which one interface suffices
	c.Each(func(_ string, state any, _ bool) {
		i := state.(*iface)
		id := linksOf(w).socketID(i.socket())
		if _, exists := w.Interface(i.name); exists || id == 0 || isSocketUsed(w, id) {
			return
		}
		if other := left[i.socket()]; other == nil || i.name < other.name {
			left[i.socket()] = i
		}
	})
	c.Each(func(_ string, state any, want bool) {
		if want {
			delete(left, state.(*iface).socket())
		}
	})
	for _, socket := range slices.Sorted(maps.Keys(left)) {
		if i := left[socket]; !names[i.name] {
			names[i.name] = true
			out = append(out, descriptor.Found{Key: kv.InterfaceKey(i.name), State: &iface{name: i.name, link: i.link, remains: true}, Ours: true})
		}
	}
	return out
}
