// Package event turns everything that can happen to the agent into values. Events are the only input of the
// controller's loop.
//
// Invariant: an event is immutable and complete; replaying the same events in the same order into a fresh controller
// yields the same transactions.
package event

import (
	"net/netip"
	"time"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Event is one of *Update, *SyncStatus, *Dataplane, *External, *Located, *VPPStatus, *Committed, *Tick.
type Event interface{ event() }

// Update is a batch of changes of Kubernetes-side objects from one source, in order.
type Update struct {
	Source  string // name of the source: "kube", "manifest", …
	Changes []Change
	At      time.Time // when the source saw the change; zero if unknown
}

// Change is one object that was put (Object is set), removed (Object and Err are nil) or refused (Err is set: the
// object did not parse or validate). A refused object replaces an earlier good version, which is removed: the object
// exists but cannot be served. A refused policy has an Object as well, which replaces earlier versions as usual. That
// Object is the policy with every part that was not understood failing closed.
type Change struct {
	Ref    model.Ref
	Object model.Object
	Err    error  // names the object and the field; from a manifest also file and line, so that it can be shown alone
	Origin string // file:line or API server resource, for messages
	// Keys is the object as Calico's datastore stores it: all its keys, in order. A source sets it only on request. Nil: the
	// object has no keys. Keys may be set without Object, and beside Err.
	Keys []calico.KV
	// UID is the object's metadata.uid, from a source that relays the objects of another server; "" if unknown.
	UID string
}

// Sync is the state of a source.
type Sync uint8

// A source starts in WaitForReady, delivers its snapshot in ResyncInProgress and stays InSync until it loses its
// origin.
const (
	WaitForReady Sync = iota
	ResyncInProgress
	InSync
)

// String is Felix' spelling: wait-for-ready, resync, in-sync.
func (s Sync) String() string {
	switch s {
	case ResyncInProgress:
		return "resync"
	case InSync:
		return "in-sync"
	}
	return "wait-for-ready"
}

// SyncStatus says how far a source is. Nothing is programmed before every source was InSync once.
type SyncStatus struct {
	Source string
	Status Sync
	Err    error  // why the source is not in sync; nil if nothing is wrong
	Note   string // what the source leaves out because of its configuration; "" for nothing
}

// Dataplane holds messages of another calculation graph, in order: of a Felix whose dataplane driver this agent is.
type Dataplane struct {
	Source   string // name of the source: "felix"
	Messages []*felix.ToDataplane
}

// Located says where addresses are in VPP. It answers a transaction's Locate.
type Located struct {
	Pods      map[netip.Addr]string // interface behind the host route of the pod's address, or the interface tagged with the pod
	Uplink    string                // interface that leads out of the node: holds the node's address, or is behind the default route
	Overlay   string                // interface that leads to other nodes' pods; "" or Uplink if the uplink does
	Host      string                // interface of the host link, to the node's own network stack; "" if the node has none
	ByHost    bool                  // Uplink is "", and Host is among Node: packets from and to the outside cross it
	UplinkIPs []netip.Prefix
	// HostIPs are the addresses at the other end of Host, sorted: the addresses the node's own network stack may send
	// from. They are VPP's neighbours on Host.
	HostIPs []netip.Addr
	Node    []string          // all interfaces that addresses of nodes, other nodes' pods and the default route lead to
	Names   map[string]string // pods without an address, "namespace/name" → interface; nil for none
	// NoOverlay says that only the default route leads to other nodes' pods, so that Overlay is a guess. A CNI may add
	// their routes later, and VPP sends no event then.
	NoOverlay bool
}

// VPPStatus says that the connection to VPP was made or lost.
type VPPStatus struct {
	Connected  bool
	Version    string // "" unknown
	Generation uint64 // number of the connection, from 1
	Err        error
}

// Tick is the loop's only source of time.
type Tick struct{ Now time.Time }

func (*Update) event()     {}
func (*SyncStatus) event() {}
func (*Dataplane) event()  {}
func (*External) event()   {}
func (*Located) event()    {}
func (*VPPStatus) event()  {}
func (*Committed) event()  {}
func (*Tick) event()       {}
