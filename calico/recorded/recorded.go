// Package recorded turns the conformance data into datastore changes and Felix's answers: the changes are those of Felix's
// own tests of its calculation graph, and the messages are what Felix v3.31.0 sent for them. Invariant: the package depends
// on the standard library alone, so that tests of any rank may use it. No product code does.
package recorded

import (
	"compress/gzip"
	_ "embed" // for the data
	"encoding/json"
	"strings"
)

//go:embed felix-calc.json.gz
var data string

// List is the sequence of states of one of Felix's tests, with its settings.
type List struct {
	Name             string
	UseNodeResources bool
	RouteSource      string // CalicoIPAM or WorkloadIPs
	Steps            []Step
}

// WorkloadRoutes reports whether routes are made from endpoints' addresses.
func (l *List) WorkloadRoutes() bool { return l.RouteSource == "WorkloadIPs" }

// Step is the transition to a state.
type Step struct {
	State    string            // its name
	KVs      []KV              // changes in the datastore
	Messages []json.RawMessage // the ToDataplane messages that Felix sent, as protojson, in its order
}

// KV is a change of the datastore. Its JSON is an input line of the calc command.
type KV struct {
	Key     string `json:"key"`
	Value   string `json:"value,omitempty"` // "" if deleted, and only then
	Deleted bool   `json:"deleted,omitempty"`
}

// Bytes returns the value's bytes; nil if the key is deleted.
func (kv KV) Bytes() []byte {
	if kv.Deleted {
		return nil
	}
	return []byte(kv.Value)
}

// Lists returns all 37 lists, fresh at each call, for a node called localhostname.
func Lists() []List {
	var lists []List
	z, err := gzip.NewReader(strings.NewReader(data))
	if err == nil {
		err = json.NewDecoder(z).Decode(&lists)
	}
	if err != nil {
		panic("recorded: felix-calc.json.gz: " + err.Error()) // cannot happen: embedded data
	}
	return lists
}
