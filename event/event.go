// Package event turns everything that can happen to the agent into values: the only input of the controller's loop.
//
// Invariant: an event is immutable and complete; replaying the same events in the same order into a fresh controller
// yields the same transactions.
package event

import (
	"net/netip"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Event is one of *Update, *SyncStatus, *Dataplane, *External, *Located, *VPPStatus, *Committed, *Tick.
type Event interface{ event() }

// Update is a batch of changes of Kubernetes-side objects from one source, in order.
type Update struct {
	Source  string // name of the source: "kube", "manifest", …
	Changes []Change
	At      time.Time // when the source saw it; zero if unknown
}

// Change is one object put (Object not nil), removed (both nil), or refused (Err not nil: the object did not parse or
// validate). A refused object is kept out, and an earlier good version of it is removed: the object exists but cannot be
// served. A policy that is refused has an Object as well, which takes the place of earlier versions like any other: what is
// left of the policy when everything that was not understood fails closed.
type Change struct {
	Ref    model.Ref
	Object model.Object
	Err    error  // names the object and the field; from a manifest also file and line, so it can be shown alone
	Origin string // file:line or API server resource; for messages
	// Keys is the object as Calico's datastore has it ([]datastore.KV: every key it has, in order), from a source that was
	// asked for it; nil: it has none. It may be there without Object, and beside Err.
	Keys any
	// UID is who the object is to its API server, from a source that heard of it from somebody else; "": that was not told.
	UID string
}

// Sync is the state of a source.
type Sync uint8

// A source starts in WaitForReady, delivers its snapshot in ResyncInProgress and stays InSync until it loses its origin.
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
	Err    error  // why it is not in sync; nil if nothing is wrong
	Note   string // what it was told to leave out; "": nothing
}

// Dataplane is what somebody else's calculation graph says, in order: a Felix whose dataplane driver this is.
type Dataplane struct {
	Source   string // name of the source: "felix"
	Messages []*felix.ToDataplane
}

// Located tells where addresses are in VPP, as asked for by a transaction's Locate.
type Located struct {
	Pods      map[netip.Addr]string // interface behind the host route of the pod's address, or the one tagged with it
	Uplink    string                // interface to the outside: holds the node's address, or is behind the default route
	Overlay   string                // interface towards the other nodes' pods; "" or Uplink if there is no separate one
	Host      string                // interface towards the node's own network stack; "" if there is none
	UplinkIPs []netip.Prefix
	// HostIPs are the addresses at the other end of Host, sorted: those the node's own network stack may send from. Of VPP they are the
	// neighbours by Host.
	HostIPs []netip.Addr
	Node    []string          // all interfaces that addresses of nodes, other nodes' pods and the default route lead to
	Names   map[string]string // pods without an address, "namespace/name" → interface; nil: none
	// NoOverlay: no route but the default one leads to another node's pods. Overlay is a guess then; a CNI may yet add their routes, of
	// which VPP sends no event.
	NoOverlay bool
}

// VPPStatus tells that the connection to VPP came up or went away.
type VPPStatus struct {
	Connected  bool
	Version    string // "" unknown
	Generation uint64 // counts connections, from 1
	Err        error
}

// Tick is time, as far as the loop may know it.
type Tick struct{ Now time.Time }

func (*Update) event()     {}
func (*SyncStatus) event() {}
func (*Dataplane) event()  {}
func (*External) event()   {}
func (*Located) event()    {}
func (*VPPStatus) event()  {}
func (*Committed) event()  {}
func (*Tick) event()       {}
