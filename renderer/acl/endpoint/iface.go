package endpoint

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/index"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/note"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// Iface is the interface of a local pod.
type Iface struct {
	Name   string
	Addrs  []netip.Addr // sorted: the pod's
	Work   []*Workload  // endpoints of the interface, by ID: normally one
	Progs  [2]*Program  // in, out; nil: isolated
	Served *law.Ports   // high ports of the pod
}

// Notes returns one note for each endpoint of the interface.
func (i *Iface) Notes(reason string) (notes []model.Note) {
	for _, w := range i.Work {
		notes = append(notes, model.Note{Ref: w.Ref(), Reason: reason, Refused: true})
	}
	return notes
}

// World has what all stages read and write.
type World struct {
	Node  *node.Node
	Sets  match.Sets
	Book  *policy.Book
	Store *table.Store
	Segs  *table.Segments
	Notes *note.Book
}

// Flatten returns the steps of a spec, the last of which decides everything.
func (w *World) Flatten(s *policy.Spec) policy.Steps { return w.Book.Flatten(s, w.Node.ByteMatch6) }

// Pods has the local endpoints, their interfaces and programs.
type Pods struct {
	World
	Marks
	Ifaces   map[string]*Iface
	Programs map[string]*Program

	workloads map[ID]*Workload
	left      []*Program // programs that an interface stopped using
	bytes     bool       // programs are unfolded for a VPP that compares whole bytes

	// Indices from an object to its users.
	ofPolicy  index.Of[policy.ID, *Program]
	ofProfile index.Of[string, *Program]
	ofSegment index.Of[*table.Segment, *Program]
}

// Program is a spec as one list of steps, shared by the interfaces whose endpoints have it.
type Program struct {
	Key   string
	Spec  policy.Spec
	Steps policy.Steps
	Uses  []table.Use // the steps
	Users map[*Iface]struct{}
	Open  bool // everything is allowed
	Free  bool // host endpoints make all its denials
	part  int
}

// GroupKey is the program's key.
func (p *Program) GroupKey() string { return p.Key }

// Part is the part of the program among group.Parts.
func (p *Program) Part() int { return p.part }

// Closes reports whether a program restricts pods that may send; nil does not.
func (p *Program) Closes() bool { return p != nil && !p.Open && !p.Spec.Down }

// Marks are what changed, and so what later stages have to do again. A stage removes the marks that it has worked off.
type Marks struct {
	Facts   bool // addresses, interfaces or views of the node changed
	Places  bool // locations of endpoints changed
	Outer   bool // outer addresses changed, or what depends on them
	Hosts   bool // rules of host endpoints changed
	Senders bool // endpoints of interfaces changed, the ports that they serve, or source checks
	Leaving bool // lists of interfaces that are no pod's have to be made again

	Lists   map[*Iface]struct{}       // interfaces whose lists have to be made again
	Moved   map[*Iface]struct{}       // interfaces whose addresses changed
	Stale   map[*Program]struct{}     // programs to be flattened
	Changed map[*Program]struct{}     // programs whose steps or sources changed
	Members map[string][]netip.Prefix // addresses that joined or left a set
}

func newMarks() Marks {
	return Marks{
		Lists: map[*Iface]struct{}{}, Moved: map[*Iface]struct{}{}, Stale: map[*Program]struct{}{}, Changed: map[*Program]struct{}{},
		Members: map[string][]netip.Prefix{},
	}
}
