package controller

import (
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// Processor turns Kubernetes objects into input for the renderers. plugins/service and plugins/policy implement it.
type Processor interface {
	// Apply handles one change of an object. With both Err and Object set, Object holds the parts of the refused object that remain
	// usable: see event.Change. Apply only changes the processor's private state, so several processors may apply their changes in
	// parallel.
	Apply(event.Change)
	// Located receives the locations of interfaces in VPP.
	Located(*event.Located)
	// Flush hands everything that changed to the renderers.
	Flush() error
	// Resync hands everything to the renderers.
	Resync() error
}

// Locator is a processor that needs lookups in VPP. Locate returns everything the processor needs, or nil if that equals its last
// request. The controller sends VPP the union of all requests.
type Locator interface {
	Locate(now time.Time) *event.Locate
}

// Stepwise is a processor that may reach a new state through interim states. While Again is true, Flush has more to hand over, for a
// separate transaction after the present one. The controller sends that transaction when VPP has acknowledged the present one, or
// when VPP keeps refusing it.
type Stepwise interface {
	Again() bool
}

// Watcher is a processor whose output depends on the version of VPP.
type Watcher interface {
	VPP(*event.VPPStatus)
}

// Config configures a controller. The zero value waits for no source.
type Config struct {
	Sources  []string // each of them, external ones too, must be in sync once before the controller programs anything
	Observer Observer // receives every step; the zero value observes nothing
}

// Observer holds callbacks for logs and metrics. The loop calls them, so they must not block. Each may be nil.
type Observer struct {
	Event     func(event.Event)      // everything that the loop received, before it is handled
	Changed   func(event.Change)     // an object was added, changed, removed or refused
	Sent      func(*event.Txn)       // a transaction was sent, with all changes so far
	Refused   func(event.Change)     // an object was refused
	Committed func(*event.Committed) // a transaction ended
	Source    func(*event.SyncStatus)
	VPP       func(*event.VPPStatus)
	Trouble   func(error) // a renderer reported an error, or external configuration was refused
	Idle      func()      // VPP has acknowledged every request and no request is pending; or VPP is away
}

// phase is the progress of the start.
type phase uint8

const (
	waiting  phase = iota // some source is not in sync yet
	locating              // the first Locate is under way
	running               // the first full resync was sent
)

// Controller is the event loop's state. It is not safe for concurrent use: Run is the only goroutine that may call Step.
type Controller struct {
	cfg        Config
	processors []Processor
	asks       []*event.Locate // last request of each processor to VPP; nil: none
	values     *Values
	queries    chan func()
	ended      chan struct{} // closed when Run returns

	phase    phase
	sources  map[string]*event.SyncStatus
	inSync   map[string]bool // was in sync once
	vpp      event.VPPStatus
	located  *event.Located
	statuses map[string]event.ValueStatus // of every value whose state is not CONFIGURED
	refused  map[model.Ref]event.Change
	trouble  error

	ahead
	asked
	fair
	interims
	left      map[string]struct{} // keys that the VPP agent writes later: see event.Committed
	seq       uint64
	inFlight  uint64 // 0: none
	sentAt    time.Time
	causes    causes
	triggered triggers
	now       time.Time
	last      *event.Committed
	done      bool // VPP has the first full resync

	published
}

// published is the state that readers outside the loop see.
type published struct {
	health atomic.Pointer[Health]
	beat   heartbeat
	steps  atomic.Uint64
	said   bool // health is what it was after the last event, which was a Tick; for the loop alone
}

// fair holds the lanes. The zero value has none.
type fair struct {
	lanes  map[string]*lane       // by namespace; none is empty
	spent  map[string]int         // by namespace, in the next transaction
	seen   map[model.Ref]struct{} // the objects that spent it: repeated changes of one object count once
	waited bool                   // lanes waited for the previous transaction
	behind bool                   // VPP has not acknowledged all of the ended transactions
	fresh  bool                   // something happened since the last turn that may lead to a transaction
	rests  bool                   // the last turn left nothing that time alone changes, but lookups in VPP
	turns  turns
	load   load
}

// asked are the external events whose senders wait for a result.
type asked struct {
	due      []question // their values are in no transaction yet
	underWay []question // their values are in the transaction in flight
}

type question struct {
	result chan<- *event.ExternalResult
	keys   []string // sorted
}

func (q *question) sendResult(r *event.ExternalResult) {
	select {
	case q.result <- r:
	default: // the receiver is gone
	}
}

// ahead is the work of the first sync that is not done yet.
type ahead struct {
	prepared bool
	portions []func()
	rest     chan map[string]proto.Message // nil: nothing is left
}
