package record

import (
	"encoding/json"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
)

// Format is the version of the format. A reader refuses segments of another one.
const Format = 1

// Header is the body of the first line of a segment.
type Header struct {
	Format   int               `json:"format"`
	Node     string            `json:"node"`
	Version  string            `json:"version,omitempty"`  // of the program
	Settings map[string]string `json:"settings,omitempty"` // the agent's flags that differ from their defaults
	Sources  []string          `json:"sources"`            // that the agent waits for before it programs VPP
	// Begins says that an agent started: it knew no objects. Otherwise the next Kept lines are the state of the segment before.
	Begins bool `json:"begins,omitempty"`
	Kept   int  `json:"kept,omitempty"`
	// Synced says that all Sources were in sync once before this segment.
	Synced bool `json:"synced,omitempty"`
}

// Outcome is a transaction that ended, with what VPP did.
type Outcome struct {
	Seq      uint64        `json:"seq"` // 0: the agent's own retry, repair or recheck
	Cause    string        `json:"cause,omitempty"`
	Kind     string        `json:"kind"`
	Add      int           `json:"add,omitempty"`
	Mod      int           `json:"mod,omitempty"`
	Del      int           `json:"del,omitempty"`
	Writes   int           `json:"writes,omitempty"`
	Took     time.Duration `json:"tookNanoseconds,omitempty"`
	Error    string        `json:"error,omitempty"`
	Values   []Value       `json:"values,omitempty"`   // those with errors first; at most MostValues
	More     int           `json:"more,omitempty"`     // further values
	Messages []Messages    `json:"messages,omitempty"` // requests to VPP since the outcome before, by name
}

// Value is the state of one value after a transaction.
type Value struct {
	Key   string   `json:"key"`
	State string   `json:"state"`
	Error string   `json:"error,omitempty"`
	Waits []string `json:"waitingFor,omitempty"`
}

// Messages counts requests to VPP of one name.
type Messages struct {
	Name   string `json:"name"`
	Count  int    `json:"count"`
	Failed int    `json:"failed,omitempty"`
	Error  string `json:"error,omitempty"` // of the last one that failed
}

// Gap says what the journal lacks before it.
type Gap struct {
	Merged  int    `json:"merged,omitempty"`  // events of which the journal has only the last version of each object
	Dropped int    `json:"dropped,omitempty"` // outcomes and other events without state that the journal lacks
	Error   string `json:"error,omitempty"`   // why
}

// change is the body of a changed object.
type change struct {
	Source string    `json:"source,omitempty"`
	Ref    model.Ref `json:"ref"`
	Origin string    `json:"origin,omitempty"`
	UID    string    `json:"uid,omitempty"`
	Err    string    `json:"error,omitempty"`
	Type   string    `json:"type,omitempty"` // "": the object was removed, or refused
}

// written is a change with an object to encode, read is one whose object is decoded by its Type.
type written struct {
	change
	Object model.Object `json:"object,omitempty"`
}

type read struct {
	change
	Object json.RawMessage `json:"object"`
}

// state is the body of a source's state.
type state struct {
	Source string `json:"source"`
	Status string `json:"status"`
	Err    string `json:"error,omitempty"`
	Note   string `json:"note,omitempty"`
}

// external is the body of values of another program.
type external struct {
	Source string  `json:"source"`
	Resync bool    `json:"resync,omitempty"`
	Values []value `json:"values,omitempty"`
}

// value is a key with its value, or a key alone.
type value struct {
	Line    string `json:"line"`            // as kv.Format writes it
	Merge   string `json:"merge,omitempty"` // as event.Merge writes it
	Lacking string `json:"lacks,omitempty"` // why Line is not the whole value
}

// connection is the body of the state of the connection to VPP.
type connection struct {
	Connected  bool   `json:"connected"`
	Version    string `json:"version,omitempty"`
	Generation uint64 `json:"generation"`
	Err        string `json:"error,omitempty"`
}
