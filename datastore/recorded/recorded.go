// Package recorded turns the conformance data into the datastore's changes that Felix's own tests of its calculation graph make
// and the messages that Felix v3.31.0 sent for them. Invariant: it is data and the standard library alone, so that tests of any
// rank may use it; no product code does.
package recorded

import (
	"compress/gzip"
	_ "embed" // for the data
	"encoding/json"
	"strings"
)

//go:embed felix-calc.json.gz
var data string

// List is a list of states that one of Felix's tests walks through, and the settings it does that with.
type List struct {
	Name             string
	UseNodeResources bool
	RouteSource      string // CalicoIPAM or WorkloadIPs
	Steps            []Step
}

// WorkloadRoutes tells whether routes are made from endpoints' addresses.
func (l *List) WorkloadRoutes() bool { return l.RouteSource == "WorkloadIPs" }

// Step leads to a state.
type Step struct {
	State    string            // its name
	KVs      []KV              // what changes in the datastore
	Messages []json.RawMessage // the ToDataplane messages Felix sent for that, as protojson, in its order
}

// KV is a change of the datastore. Its JSON is a line of the calc command's.
type KV struct {
	Key     string `json:"key"`
	Value   string `json:"value,omitempty"` // "" if deleted, and only then
	Deleted bool   `json:"deleted,omitempty"`
}

// Bytes is the value as the datastore has it; nil if the key is deleted.
func (kv KV) Bytes() []byte {
	if kv.Deleted {
		return nil
	}
	return []byte(kv.Value)
}

// Lists are all 37 lists, fresh at each call, for a node called localhostname.
func Lists() []List {
	var lists []List
	z, err := gzip.NewReader(strings.NewReader(data))
	if err == nil {
		err = json.NewDecoder(z).Decode(&lists)
	}
	if err != nil {
		panic("recorded: felix-calc.json.gz: " + err.Error()) // it is part of the program
	}
	return lists
}
