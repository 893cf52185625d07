package event

import (
	"maps"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
)

// ResyncKind says what a transaction is compared with.
type ResyncKind uint8

// The kinds of ligato's scheduler.
const (
	NoResync   ResyncKind = iota
	Full                  // Values is the whole desired state; VPP is dumped and made equal
	Upstream              // Values is the whole desired state; it is compared with what the agent remembers of VPP
	Downstream            // Values is ignored; VPP is dumped and repaired
)

// String is the word used in logs and history.
func (k ResyncKind) String() string {
	return [...]string{"update", "full-resync", "upstream-resync", "downstream-resync"}[k]
}

// Txn is one transaction from the controller to the VPP agent: a set of values by key.
type Txn struct {
	Seq    uint64 // counts from 1
	Cause  string // why, as the log line shows it: "service/default/web", "resync", …
	Resync ResyncKind
	Values map[string]proto.Message // a nil message deletes
	// Rest are the further portions of a Full resync. They arrive while the first ones are carried out, and the channel
	// is closed after the last. A later portion may replace values of an earlier one. Nil: Values is everything.
	Rest   <-chan map[string]proto.Message
	Locate *Locate // what to look up in VPP after this transaction; nil for nothing
	// Triggered are the last-change-trigger-times of the EndpointSlices behind this transaction, for the latency
	// metric; nil if none.
	Triggered []time.Time
	// Awaited: another program waits for the result, so the transaction ends when VPP has all of it. Otherwise see Committed.Left.
	Awaited bool
}

// Empty says that the transaction changes, checks and looks up nothing.
func (t *Txn) Empty() bool {
	return t == nil || (len(t.Values) == 0 && t.Resync == NoResync && t.Locate == nil)
}

// Whole waits for Rest and returns the transaction with everything in Values.
func (t *Txn) Whole() *Txn {
	if t.Rest == nil {
		return t
	}
	whole := *t
	whole.Values, whole.Rest = maps.Clone(t.Values), nil
	for portion := range t.Rest {
		if whole.Values == nil {
			whole.Values = map[string]proto.Message{}
		}
		for key, m := range portion {
			if whole.Values[key] = m; m == nil {
				delete(whole.Values, key)
			}
		}
	}
	return &whole
}

// Locate asks where things are in VPP. The answer is one Located event.
type Locate struct {
	Pods     map[netip.Addr]string // address of a local pod → "namespace/name" (to match an interface tag)
	NodeIPs  []netip.Addr          // addresses of this node: the interface that holds one is the uplink
	Remote   []netip.Prefix        // pod CIDRs of other nodes: the interface that leads there is the overlay
	Names    []string              // "namespace/name" of local pods that have no address yet, found by interface tag; and names of interfaces, found by tag or as they are
	Override Located               // names from the configuration; they replace what is found
}

// State is the state of a value in VPP; names and numbers are ligato.kvscheduler.ValueState.
type State uint8

// The states a value can be in.
const (
	Nonexistent   State = 0
	Unimplemented State = 2 // the model exists, but no descriptor puts it into VPP; it stays desired, and Err says so
	Removed       State = 3
	Configured    State = 4
	Pending       State = 7 // a dependency is missing; Details names it
	Invalid       State = 8 // Validate or the guard refused the value; Err names the field
	Failed        State = 9 // VPP refused the value and no retry is planned
	Retrying      State = 10
)

// String is ligato's spelling.
func (s State) String() string {
	switch s {
	case Unimplemented:
		return "UNIMPLEMENTED"
	case Removed:
		return "REMOVED"
	case Configured:
		return "CONFIGURED"
	case Pending:
		return "PENDING"
	case Invalid:
		return "INVALID"
	case Failed:
		return "FAILED"
	case Retrying:
		return "RETRYING"
	}
	return "NONEXISTENT"
}

// ValueStatus is the state of one value after a transaction.
type ValueStatus struct {
	Key     string
	State   State
	Err     string   // "" if none
	Details []string // of a PENDING value: the keys it waits for
}

// Line returns "<key> is <state>: <error>, waiting for <keys>", as far as there are an error and keys.
func (v ValueStatus) Line() string {
	line := v.Key + " is " + v.State.String()
	if v.Err != "" {
		line += ": " + v.Err
	}
	if len(v.Details) > 0 {
		line += ", waiting for " + strings.Join(v.Details, ", ")
	}
	return line
}

// Value is a desired value and its state.
type Value struct {
	ValueStatus
	Message proto.Message // the desired value, merged from all owners; not to be modified
	Since   time.Time     // when the state began
}

// Committed is the result of a transaction, or of the VPP agent's own retry or repair (Seq 0).
type Committed struct {
	Seq           uint64
	Cause         string
	Resync        ResyncKind
	Add, Mod, Del int           // numbers of values
	Writes        int           // binary-API messages that change VPP
	Statuses      []ValueStatus // every value touched, and every value whose state changed; sorted by key
	Took          time.Duration
	Cost          time.Duration // Took without its pauses, which come from earlier requests, and the pause that its own requests need
	Triggered     []time.Time   // copied from the transaction
	Drift         []Drift       // of a recheck: what other programs changed in VPP; sorted by key
	// Left are the keys that VPP does not have as desired yet, because the VPP agent pauses between their requests, and the keys that those
	// requests need; sorted. Transactions must not change them until a later result no longer names them. Nil: none.
	Left []string
	Err  error // the transaction could not run at all (VPP away); it is kept and repeated
}
