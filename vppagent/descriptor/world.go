package descriptor

import (
	"fmt"
	"maps"
	"strings"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/cost"
)

// none is VPP's "no such index": ~0.
const none = ^uint32(0)

// Options are what the descriptors cannot find out.
type Options struct {
	// NATWorkers is the number of NAT worker threads; 0: as VPP says. With more than one, mappings are not padded.
	NATWorkers int
}

// World is what is known of VPP beside the values: handles VPP assigned, and facts of its start-up. The agent owns it.
type World struct {
	Options Options
	// Wanted returns the compiled form of a wanted value, nil if there is none.
	Wanted func(key string) any
	// Needing are the states of what VPP has that needs a key, or comes after it; Having those of all of a kind, by its prefix.
	// nil: nothing is known of that
	Needing, Having func(key string) []any

	// Workers is the number of NAT worker threads VPP has.
	Workers int
	// Cost is what requests cost the VPP that is connected.
	Cost cost.Model

	byName map[string]*Iface // by every name the interface answers to
	byIdx  map[uint32]*Iface
	// sockets are the memif sockets VPP has, name by ID.
	sockets map[uint32]string
	// bridges are the bridge domains of ours, bd_id by name.
	bridges map[string]uint32
	// proxied are the interfaces on which proxy ARP is ours to turn off.
	proxied map[string]bool
	// hostLinks are the host's interfaces values speak of, by logical name.
	hostLinks map[string]HostLink
	// policies are the ABF policies that are wanted or ours, and in VPP.
	policies map[uint32]bool
	// tried are the claims of interfaces we asked VPP to make, successfully or not.
	tried map[string]bool
	// acls are our ACLs, lists what interfaces have of ours and of others, by sw_if_index.
	acls aclTable
	// enforced: source ranges were when it was looked.
	enforced bool
	lists    map[uint32]attached
	cnat     cnatWorld
	class    classWorld
}

// Iface is an interface of VPP.
type Iface struct {
	Index   uint32 // sw_if_index; 0 is local0
	VPPName string // "tap0"
	Tag     string // as in VPP
	Name    string // what values call it: our name if we made it, VPP's otherwise
	Ours    bool
	Up      bool
	MTU     uint32
	MAC     [6]byte
	Own     bool   // it has an address, and is none of a pod: see LearnAddressed
	DevType string // "tap", "af_packet", "memif", "Loopback", …; of a sub-interface its parent's

	sub          bool   // it is a sub-interface
	parent, vlan uint32 // of one of a single VLAN: sw_if_index and ID
}

// NewWorld returns a world without VPP.
func NewWorld(o Options, wanted func(key string) any) *World {
	w := &World{Options: o, Wanted: wanted, tried: map[string]bool{}, lists: map[uint32]attached{}, bridges: map[string]uint32{}, proxied: map[string]bool{}, policies: map[uint32]bool{}, class: newClassWorld()}
	w.setInterfaces(nil)
	return w
}

// Interface returns the interface values call name.
func (w *World) Interface(name string) (*Iface, bool) {
	i, ok := w.byName[name]
	return i, ok
}

// Name returns what values call the interface with that index, "" if there is none.
func (w *World) Name(index uint32) string {
	if i, ok := w.byIdx[index]; ok {
		return i.Name
	}
	return ""
}

// canonical is the name an interface has in dumps here, whatever of its names is given; "" if VPP has none of that name.
func (w *World) canonical(name string) string {
	if i, ok := w.byName[name]; ok {
		return i.Name
	}
	return ""
}

// index is the sw_if_index of a named interface, or an error naming it.
func (w *World) index(name string) (interface_types.InterfaceIndex, error) {
	i, ok := w.byName[name]
	if !ok {
		return 0, fmt.Errorf("interface %q is not in VPP", name)
	}
	return interface_types.InterfaceIndex(i.Index), nil
}

// Names returns every name an interface answers to: its own, VPP's, and its tag.
func (w *World) Names() map[string]uint32 {
	out := make(map[string]uint32, len(w.byName))
	for n, i := range w.byName {
		out[n] = i.Index
	}
	return out
}

func (w *World) setInterfaces(all []*Iface) {
	w.byName = make(map[string]*Iface, 2*len(all))
	w.byIdx = make(map[uint32]*Iface, len(all))
	// A name we gave wins over VPP's name, which wins over a foreign tag.
	for _, i := range all {
		if i.Tag != "" && !i.Ours {
			w.byName[i.Tag] = i
		}
	}
	for _, i := range all {
		w.byName[i.VPPName] = i
		w.byIdx[i.Index] = i
	}
	maps.DeleteFunc(w.lists, func(index uint32, _ attached) bool { return w.byIdx[index] == nil })
	maps.DeleteFunc(w.class.live, func(p classPlace, _ bool) bool { return w.byIdx[p.swIf] == nil })
	for _, i := range all {
		w.byName[i.Name] = i
	}
}

// add and remove keep the table true between dumps.
func (w *World) add(i *Iface) {
	w.byName[i.Name] = i
	if i.VPPName != "" {
		w.byName[i.VPPName] = i
	}
	w.byIdx[i.Index] = i
}

func (w *World) remove(i *Iface) {
	for _, n := range []string{i.Name, i.VPPName, i.Tag} {
		if w.byName[n] == i {
			delete(w.byName, n)
		}
	}
	if w.byIdx[i.Index] == i {
		delete(w.byIdx, i.Index)
		delete(w.lists, i.Index)
		maps.DeleteFunc(w.class.live, func(p classPlace, _ bool) bool { return p.swIf == i.Index })
	}
}

const (
	idInterfaces = "sw_interface_dump"
	idWorkers    = "nat_worker_dump"
)

// WorldDumps are asked before everything else: the questions of the other descriptors depend on the answers.
func WorldDumps() []Request {
	return []Request{
		{ID: idInterfaces, Call: vpp.Call{Dump: true, Msg: &interfaces.SwInterfaceDump{SwIfIndex: interface_types.InterfaceIndex(none)}}},
		{ID: idWorkers, Call: vpp.Call{Dump: true, Msg: &nat44_ed.NatWorkerDump{}}},
	}
}

// Learn takes the answers to WorldDumps.
func (w *World) Learn(d *Dump) error {
	ifs, err := details[*interfaces.SwInterfaceDetails](d, idInterfaces)
	if err != nil {
		return err
	}
	all := make([]*Iface, 0, len(ifs))
	for _, m := range ifs {
		all = append(all, w.iface(m))
	}
	w.setInterfaces(all)
	if workers, err := details[*nat44_ed.NatWorkerDetails](d, idWorkers); err == nil {
		w.Workers = len(workers)
	}
	return nil
}

func (w *World) iface(m *interfaces.SwInterfaceDetails) *Iface {
	i := &Iface{
		Index: uint32(m.SwIfIndex), VPPName: text(m.InterfaceName), Tag: text(m.Tag), MAC: m.L2Address,
		Up: m.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0, DevType: text(m.InterfaceDevType),
	}
	i.sub, i.parent, i.vlan = m.Type == interface_types.IF_API_TYPE_SUB, m.SupSwIfIndex, vlanOf(m)
	if len(m.Mtu) > 0 {
		i.MTU = m.Mtu[0]
	}
	i.Name = i.VPPName
	if name, ok := w.ownedInterface(i.Tag); ok {
		i.Name, i.Ours = name, true
	}
	return i
}

// padded tells how mappings with few backends are made: see dnat44.
func (w *World) padded() bool {
	n := w.Options.NATWorkers
	if n == 0 {
		n = w.Workers
	}
	return n <= 1
}

// text cuts a fixed-size string of the binary API at its first NUL.
func text(s string) string {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return s[:i]
	}
	return s
}

// write is a request that changes VPP.
func write(m api.Message) vpp.Call { return vpp.Call{Msg: m} }

// dump is a request answered by details.
func dump(id string, m api.Message) Request {
	return Request{ID: id, Call: vpp.Call{Msg: m, Dump: true}}
}

// ask is a request answered by one reply.
func ask(id string, m api.Message) Request { return Request{ID: id, Call: vpp.Call{Msg: m}} }
