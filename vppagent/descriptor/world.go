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
	"go.fd.io/govpp/codec"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/cost"
)

// none is VPP's "no such index": ~0.
const None = ^uint32(0)

// Options are facts that the descriptors cannot ask VPP for.
type Options struct {
	// NATWorkers is the number of NAT worker threads; 0: ask VPP. With more than one, mappings are not padded.
	NATWorkers int
	// NATSessions is the number of NAT44 sessions when they were last counted; false, or nil: not known.
	NATSessions func() (int, bool)
	// NATDrained counts endpoints of NAT44 that VPP drains since a change, and those that it could not drain and removed; nil: nobody counts.
	NATDrained func(drained, lost int)
	// NATBegan is called when NAT44 was enabled in a VPP that had lost everything: connections that NAT44 translated before are dead. The requests after it
	// are not sent before it returns. nil: nobody ends them.
	NATBegan func()
}

// World has the agent's knowledge of VPP beside the values: handles that VPP assigned, and facts of its start-up. The agent owns it.
type World struct {
	Options Options
	// Wanted returns the compiled form of a wanted value, nil if there is none.
	Wanted func(key string) any
	// Needing returns the actual states of the values that need a key or are put after it; Having those of all values of a kind,
	// by its prefix. nil: not known
	Needing, Having func(key string) []any

	// Stated: the desired state is known as a whole, so that a value that is not wanted is unwanted.
	Stated bool

	// Workers is the number of NAT worker threads VPP has.
	Workers int
	// Cost is the cost of requests for the connected VPP.
	Cost cost.Model

	byName map[string]*Iface // by every name of the interface
	byIdx  map[uint32]*Iface
	facts  *sync.Map // by type
}

// Facts are the knowledge of one feature beside its values: handles that VPP assigned, and attachments. The World keeps them, so that no
// descriptor has state. Facts with a method Forget(gone func(swIfIndex uint32) bool) forget interfaces that VPP deleted.
type Facts interface {
	// Clone returns a copy that shares only immutable data.
	Clone() Facts
}

// FactsOf returns the facts of type F; fresh makes them at the first call.
func FactsOf[F Facts](w *World, fresh func() F) F {
	key := reflect.TypeFor[F]()
	f, ok := w.facts.Load(key)
	if !ok {
		f, _ = w.facts.LoadOrStore(key, fresh())
	}
	return f.(F)
}

// forgetInterfaces makes all facts forget interfaces.
func (w *World) forgetInterfaces(gone func(swIfIndex uint32) bool) {
	for _, f := range w.facts.Range {
		if f, ok := f.(interface{ Forget(func(uint32) bool) }); ok {
			f.Forget(gone)
		}
	}
}

// CopyFrom copies o's knowledge into w; they share only immutable data.
func (w *World) CopyFrom(o *World) {
	w.Stated, w.Workers, w.Cost = o.Stated, o.Workers, o.Cost
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
	Name    string // the name in values: our name if we made it, VPP's otherwise
	Ours    bool
	Up      bool
	MTU     uint32
	MAC     [6]byte
	Own     bool   // it has an address and is not a pod's: see LearnAddressed
	DevType string // "tap", "af_packet", "memif", "Loopback", …; a sub-interface has its parent's

	Sub          bool   // it is a sub-interface
	Parent, Vlan uint32 // of a sub-interface with a single VLAN: sw_if_index and ID
}

// NewWorld returns a world without VPP.
func NewWorld(o Options, wanted func(key string) any) *World {
	w := &World{Options: o, Wanted: wanted, facts: &sync.Map{}}
	w.SetInterfaces(nil)
	return w
}

// NATSessions is the number of NAT44 sessions when they were last counted; false: not known.
func (w *World) NATSessions() (int, bool) {
	if w.Options.NATSessions == nil {
		return 0, false
	}
	return w.Options.NATSessions()
}

// NATDrained counts endpoints of NAT44 that VPP drains since a change, and those that it could not drain.
func (w *World) NATDrained(drained, lost int) {
	if w.Options.NATDrained != nil && drained+lost > 0 {
		w.Options.NATDrained(drained, lost)
	}
}

// Interface returns the interface with a name in values.
func (w *World) Interface(name string) (*Iface, bool) {
	i, ok := w.byName[name]
	return i, ok
}

// Owns reports that a name is that of an interface of ours.
func (w *World) Owns(name string) bool { i, ok := w.byName[name]; return ok && i.Ours }

// At returns the interface with an index, nil if there is none.
func (w *World) At(index uint32) *Iface { return w.byIdx[index] }

// Answers reports that a name refers to this interface, and that no other interface has precedence for the name.
func (w *World) Answers(name string, i *Iface) bool { return w.byName[name] == i }

// Name returns the name in values of the interface with that index, "" if VPP has none.
func (w *World) Name(index uint32) string {
	if i, ok := w.byIdx[index]; ok {
		return i.Name
	}
	return ""
}

// Canonical returns the name that dumps here use for an interface, given any of its names; "" if VPP has no such interface.
func (w *World) Canonical(name string) string {
	if i, ok := w.byName[name]; ok {
		return i.Name
	}
	return ""
}

// index returns the sw_if_index of a named interface, or an error that names it.
func (w *World) Index(name string) (interface_types.InterfaceIndex, error) {
	i, ok := w.byName[name]
	if !ok {
		return 0, fmt.Errorf("interface %q is not in VPP", name)
	}
	return interface_types.InterfaceIndex(i.Index), nil
}

// Names returns every name of an interface: our name, VPP's, and its tag.
func (w *World) Names() map[string]uint32 {
	out := make(map[string]uint32, len(w.byName))
	for n, i := range w.byName {
		out[n] = i.Index
	}
	return out
}

// SetInterfaces replaces the table of interfaces, and forgets the attachments of all others.
func (w *World) SetInterfaces(all []*Iface) {
	w.byName = make(map[string]*Iface, 2*len(all))
	w.byIdx = make(map[uint32]*Iface, len(all))
	// Our name takes precedence over VPP's name, and VPP's name over a foreign tag.
	for _, i := range all {
		if i.Tag != "" && !i.Ours {
			w.byName[i.Tag] = i
		}
	}
	for _, i := range all {
		w.byName[i.VPPName] = i
		w.byIdx[i.Index] = i
	}
	w.forgetInterfaces(func(index uint32) bool { return w.byIdx[index] == nil })
	for _, i := range all {
		w.byName[i.Name] = i
	}
}

// AddInterface adds an interface between dumps.
func (w *World) AddInterface(i *Iface) {
	w.byName[i.Name] = i
	if i.VPPName != "" {
		w.byName[i.VPPName] = i
	}
	w.byIdx[i.Index] = i
}

// RemoveInterface removes an interface and its attachments between dumps.
func (w *World) RemoveInterface(i *Iface) {
	for _, n := range []string{i.Name, i.VPPName, i.Tag} {
		if w.byName[n] == i {
			delete(w.byName, n)
		}
	}
	if w.byIdx[i.Index] == i {
		delete(w.byIdx, i.Index)
		w.forgetInterfaces(func(index uint32) bool { return index == i.Index })
	}
}

const (
	idInterfaces = "sw_interface_dump"
	idWorkers    = "nat_worker_dump"
)

// WorldDumps are sent before all other dumps: the dumps of the descriptors depend on the answers.
func WorldDumps() []Request {
	return []Request{
		{ID: idInterfaces, Call: vpp.Call{Dump: true, Msg: &interfaces.SwInterfaceDump{SwIfIndex: interface_types.InterfaceIndex(None)}}},
		{ID: idWorkers, Call: vpp.Call{Dump: true, Msg: &nat44_ed.NatWorkerDump{}}},
	}
}

// Learn reads the answers to WorldDumps.
func (w *World) Learn(d *Dump) error {
	ifs, err := Details[*interfaces.SwInterfaceDetails](d, idInterfaces)
	if err != nil {
		return err
	}
	all := make([]*Iface, 0, len(ifs))
	for _, m := range ifs {
		all = append(all, w.iface(m))
	}
	w.nameCopies(all)
	w.SetInterfaces(all)
	if workers, err := Details[*nat44_ed.NatWorkerDetails](d, idWorkers); err == nil {
		w.Workers = len(workers)
	}
	return nil
}

// nameCopies finds interfaces of ours that have the same tag. One of them keeps the name: the one that had it before this dump, or the one with the
// smallest index. The others get VPP's name, which no value has, so that the agent removes them and what is on them.
func (w *World) nameCopies(all []*Iface) {
	holders := make(map[string]*Iface, len(all))
	for _, i := range all {
		if !i.Ours {
			continue
		}
		holder, was := holders[i.Name], w.byName[i.Name]
		switch {
		case holder == nil:
			holders[i.Name] = i
		case was != nil && was.Index == i.Index:
			holders[i.Name], holder.Name = i, holder.VPPName
		default:
			i.Name = i.VPPName
		}
	}
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

// Size returns the size of a request in bytes, without its header, which VPP reads as well; 0: it is no message of VPP's API.
func Size(m api.Message) int {
	if m, ok := m.(codec.Marshaler); ok {
		return m.Size()
	}
	return 0
}

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

// vlanOf returns the VLAN of a sub-interface as CreateVlanSubif makes them; 0 for other interfaces.
func vlanOf(m *interfaces.SwInterfaceDetails) uint32 {
	const exact = interface_types.SUB_IF_API_FLAG_ONE_TAG | interface_types.SUB_IF_API_FLAG_EXACT_MATCH
	if m.Type != interface_types.IF_API_TYPE_SUB || m.SubIfFlags != exact || m.SubID != uint32(m.SubOuterVlanID) {
		return 0
	}
	return m.SubID
}
