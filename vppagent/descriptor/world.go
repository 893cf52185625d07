package descriptor

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/cost"
)

// none is VPP's "no such index": ~0.
const None = ^uint32(0)

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
	facts  *sync.Map // by type: what features know
}

// Facts are what one feature knows of VPP beside its values: handles that VPP assigned, and what is attached where. The World keeps them, so that
// no descriptor has state. Facts with a method Forget(gone func(swIfIndex uint32) bool) forget interfaces that VPP deleted.
type Facts interface {
	// Clone shares nothing that changes.
	Clone() Facts
}

// FactsOf returns the facts of type F, which fresh makes at the first call.
func FactsOf[F Facts](w *World, fresh func() F) F {
	key := reflect.TypeFor[F]()
	f, ok := w.facts.Load(key)
	if !ok {
		f, _ = w.facts.LoadOrStore(key, fresh())
	}
	return f.(F)
}

// forget makes all facts forget interfaces.
func (w *World) forget(gone func(swIfIndex uint32) bool) {
	for _, f := range w.facts.Range {
		if f, ok := f.(interface{ Forget(func(uint32) bool) }); ok {
			f.Forget(gone)
		}
	}
}

// CopyFrom makes w know what o knows, sharing nothing that changes.
func (w *World) CopyFrom(o *World) {
	w.Workers, w.Cost = o.Workers, o.Cost
	copies := map[*Iface]*Iface{}
	of := func(i *Iface) *Iface {
		if copies[i] == nil {
			c := *i
			copies[i] = &c
		}
		return copies[i]
	}
	w.byName, w.byIdx = map[string]*Iface{}, map[uint32]*Iface{}
	for n, i := range o.byName {
		w.byName[n] = of(i)
	}
	for n, i := range o.byIdx {
		w.byIdx[n] = of(i)
	}
	w.facts = &sync.Map{}
	for key, f := range o.facts.Range {
		w.facts.Store(key, f.(Facts).Clone())
	}
}

// Known returns the facts of all features, by the names of their types.
func (w *World) Known() map[string]Facts {
	out := map[string]Facts{}
	for key, f := range w.facts.Range {
		out[key.(reflect.Type).String()] = f.(Facts)
	}
	return out
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

	Sub          bool   // it is a sub-interface
	Parent, Vlan uint32 // of one of a single VLAN: sw_if_index and ID
}

// NewWorld returns a world without VPP.
func NewWorld(o Options, wanted func(key string) any) *World {
	w := &World{Options: o, Wanted: wanted, facts: &sync.Map{}}
	w.SetInterfaces(nil)
	return w
}

// Interface returns the interface values call name.
func (w *World) Interface(name string) (*Iface, bool) {
	i, ok := w.byName[name]
	return i, ok
}

// At returns the interface with an index, nil if there is none.
func (w *World) At(index uint32) *Iface { return w.byIdx[index] }

// Answers reports that a name is that of an interface, and of no other that has more right to it.
func (w *World) Answers(name string, i *Iface) bool { return w.byName[name] == i }

// Name returns what values call the interface with that index, "" if there is none.
func (w *World) Name(index uint32) string {
	if i, ok := w.byIdx[index]; ok {
		return i.Name
	}
	return ""
}

// Canonical is the name an interface has in dumps here, whatever of its names is given; "" if VPP has none of that name.
func (w *World) Canonical(name string) string {
	if i, ok := w.byName[name]; ok {
		return i.Name
	}
	return ""
}

// index is the sw_if_index of a named interface, or an error naming it.
func (w *World) Index(name string) (interface_types.InterfaceIndex, error) {
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

// SetInterfaces makes the table of interfaces anew: what was attached to others is forgotten.
func (w *World) SetInterfaces(all []*Iface) {
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
	w.forget(func(index uint32) bool { return w.byIdx[index] == nil })
	for _, i := range all {
		w.byName[i.Name] = i
	}
}

// AddInterface keeps the table true between dumps.
func (w *World) AddInterface(i *Iface) {
	w.byName[i.Name] = i
	if i.VPPName != "" {
		w.byName[i.VPPName] = i
	}
	w.byIdx[i.Index] = i
}

// RemoveInterface forgets an interface and what was attached to it.
func (w *World) RemoveInterface(i *Iface) {
	for _, n := range []string{i.Name, i.VPPName, i.Tag} {
		if w.byName[n] == i {
			delete(w.byName, n)
		}
	}
	if w.byIdx[i.Index] == i {
		delete(w.byIdx, i.Index)
		w.forget(func(index uint32) bool { return index == i.Index })
	}
}

const (
	idInterfaces = "sw_interface_dump"
	idWorkers    = "nat_worker_dump"
)

// WorldDumps are asked before everything else: the questions of the other descriptors depend on the answers.
func WorldDumps() []Request {
	return []Request{
		{ID: idInterfaces, Call: vpp.Call{Dump: true, Msg: &interfaces.SwInterfaceDump{SwIfIndex: interface_types.InterfaceIndex(None)}}},
		{ID: idWorkers, Call: vpp.Call{Dump: true, Msg: &nat44_ed.NatWorkerDump{}}},
	}
}

// Learn takes the answers to WorldDumps.
func (w *World) Learn(d *Dump) error {
	ifs, err := Details[*interfaces.SwInterfaceDetails](d, idInterfaces)
	if err != nil {
		return err
	}
	all := make([]*Iface, 0, len(ifs))
	for _, m := range ifs {
		all = append(all, w.iface(m))
	}
	w.SetInterfaces(all)
	if workers, err := Details[*nat44_ed.NatWorkerDetails](d, idWorkers); err == nil {
		w.Workers = len(workers)
	}
	return nil
}

func (w *World) iface(m *interfaces.SwInterfaceDetails) *Iface {
	i := &Iface{
		Index: uint32(m.SwIfIndex), VPPName: FixedText(m.InterfaceName), Tag: FixedText(m.Tag), MAC: m.L2Address,
		Up: m.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0, DevType: FixedText(m.InterfaceDevType),
	}
	i.Sub, i.Parent, i.Vlan = m.Type == interface_types.IF_API_TYPE_SUB, m.SupSwIfIndex, vlanOf(m)
	if len(m.Mtu) > 0 {
		i.MTU = m.Mtu[0]
	}
	i.Name = i.VPPName
	if name, ok := w.ownedInterface(i.Tag); ok {
		i.Name, i.Ours = name, true
	}
	return i
}

// FixedText cuts a fixed-size string of the binary API at its first NUL.
func FixedText(s string) string {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return s[:i]
	}
	return s
}

// Write is a request that changes VPP.
func Write(m api.Message) vpp.Call { return vpp.Call{Msg: m} }

// DumpRequest is a request answered by details.
func DumpRequest(id string, m api.Message) Request {
	return Request{ID: id, Call: vpp.Call{Msg: m, Dump: true}}
}

// AskRequest is a request answered by one reply.
func AskRequest(id string, m api.Message) Request { return Request{ID: id, Call: vpp.Call{Msg: m}} }

// Interfaces returns all interfaces in order of their index.
func (w *World) Interfaces() []*Iface {
	out := make([]*Iface, 0, len(w.byIdx))
	for _, i := range w.byIdx {
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b *Iface) int { return cmp.Compare(a.Index, b.Index) })
	return out
}

// vlanOf is the VLAN of a sub-interface as CreateVlanSubif makes them, 0 if the interface is none.
func vlanOf(m *interfaces.SwInterfaceDetails) uint32 {
	const exact = interface_types.SUB_IF_API_FLAG_ONE_TAG | interface_types.SUB_IF_API_FLAG_EXACT_MATCH
	if m.Type != interface_types.IF_API_TYPE_SUB || m.SubIfFlags != exact || m.SubID != uint32(m.SubOuterVlanID) {
		return 0
	}
	return m.SubID
}
