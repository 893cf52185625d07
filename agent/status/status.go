// Package status turns the state of an agent into what people and programs read: the status of every Service and policy, the summary of
// all problems, and the reports to Kubernetes.
//
// Invariant: the loop only copies references (Capture); joining, sorting and formatting happens in the readers' goroutines.
package status

import (
	"time"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/counters"
	"github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/proof"
	"github.com/contiv-agent/contiv-agent/calico/felix"
)

// Status is the state of an agent, of every Service and of every policy; the status command shows it.
type Status struct {
	Node     string                   `json:"node"`
	InSync   bool                     `json:"inSync"`
	Waiting  string                   `json:"waiting,omitempty"`  // what is missing; "" when in sync
	Ready    bool                     `json:"ready"`              // as InSync, but a transaction may be running: the node can serve
	Healthy  bool                     `json:"healthy"`            // Ready, without Problems
	Summary  string                   `json:"summary,omitempty"`  // Problems counted by state: "2 FAILED, 16 REFUSED"; "": none
	Problems []Problem                `json:"problems,omitempty"` // all problems, most severe first
	VPP      VPP                      `json:"vpp"`
	Sources  []Source                 `json:"sources"`
	Settings map[string]string        `json:"settings,omitempty"` // flags that differ from their defaults
	Felix    *attachment.FelixStatus  `json:"felix,omitempty"`    // of an agent under Felix
	Driver   *attachment.DriverStatus `json:"driver,omitempty"`   // the external driver that enforces policies
	Ifs      *Interfaces              `json:"interfaces,omitempty"`
	NAT      *nattable.Status         `json:"natTable,omitempty"` // nil: not counted
	Services []Service                `json:"services"`
	Policies []Policy                 `json:"policies,omitempty"`
	Refused  []Refusal                `json:"refused,omitempty"` // refused objects
	Notes    []Note                   `json:"notes,omitempty"`   // remarks on other objects
	Values   int                      `json:"values"`            // desired values
	Mappings int                      `json:"mappings"`          // frontends among the values: NAT44 mappings of an address and port
	Unwell   []Value                  `json:"unwell,omitempty"`  // values that are not configured
	Foreign  []string                 `json:"foreign,omitempty"` // foreign objects in VPP; the agent does not change them
	Drift    []Drift                  `json:"drift,omitempty"`   // recent changes of other programs to the agent's values
	Spoofed  []counters.SourceDrops   `json:"spoofed,omitempty"` // packets that source checks dropped, by pod, most first
	History  []Transaction            `json:"history,omitempty"` // past transactions, oldest first; only on request
	Last     *Transaction             `json:"lastTransaction,omitempty"`
	// Busy is why this is an earlier state, not the present one; "": the present state.
	Busy string `json:"busy,omitempty"`

	Awaited
}

// Awaited is Waiting as fields, and the driver that the agent may wait for.
type Awaited struct {
	Awaits []Wait `json:"waitingFor,omitempty"`

	driver *felix.SupervisorStatus // the source of Driver and of the states of policies; nil: no driver
}

// VPP is the state of the connection to VPP.
type VPP struct {
	Connected   bool   `json:"connected"`
	Version     string `json:"version,omitempty"`
	Simulated   bool   `json:"simulated,omitempty"` // it is the simulated VPP
	Connections uint64 `json:"connections"`         // number of connections so far
	// Reclassify is whether VPP evaluates established flows again when policies change: "on", "off" or "unknown".
	Reclassify string `json:"reclassify"`
	Error      string `json:"error,omitempty"`
	// Proof is the result of the last comparison of VPP with the agent's objects; nil: none yet.
	Proof  *proof.Summary `json:"proof,omitempty"`
	Flows  []flows.Source `json:"flows,omitempty"`  // sources of flows that show a part of VPP's connections
	Rival  string         `json:"rival,omitempty"`  // another agent that does not see this agent's lock; "": none found
	Silent string         `json:"silent,omitempty"` // the time since VPP's last answer, and the unanswered request; "": it answers
}

// Source is the state of a source.
type Source struct {
	Name   string `json:"name"`
	Status string `json:"status"` // wait-for-ready, resync, in-sync
	Error  string `json:"error,omitempty"`
	Note   string `json:"note,omitempty"` // what it ignores by configuration
}

// Interfaces are the interfaces that the agent found in VPP.
type Interfaces struct {
	Uplink  string            `json:"uplink,omitempty"`
	Overlay string            `json:"overlay,omitempty"`
	Host    string            `json:"host,omitempty"`
	Pods    map[string]string `json:"pods,omitempty"` // address → interface
}

// Service is the state of one Service.
type Service struct {
	Name    string   `json:"name"`  // namespace/name
	State   string   `json:"state"` // CONFIGURED, PENDING, …; SKIPPED: another proxy serves it; PARTIAL, REFUSED: see Reasons
	Reasons []string `json:"reasons,omitempty"`
	Causes  []Cause  `json:"causes,omitempty"` // Reasons as fields, in the same order
	Text    string   `json:"text,omitempty"`   // addresses, ports and endpoints in one line
	Serves  *Served  `json:"serves,omitempty"` // Text as fields
}

// Refusal is a refused object.
type Refusal struct {
	Object string `json:"object"`
	Origin string `json:"origin,omitempty"`
	Error  string `json:"error"`
}

// Note is a remark on an object.
type Note struct {
	Object string `json:"object"`
	Reason string `json:"reason"`
	// State is PARTIAL, REFUSED, PENDING, … if Reason keeps a part from being served or enforced; "": only a remark.
	State string `json:"state,omitempty"`
}

// Drift is a key whose value in VPP recently differed from what the agent had made.
type Drift struct {
	Key      string    `json:"key"`
	What     string    `json:"what"`  // missing, changed, extra
	Times    int       `json:"times"` // since the agent started
	Last     time.Time `json:"last"`
	Repaired bool      `json:"repaired"`
	Contest  string    `json:"contest,omitempty"` // the known reason why another program changes it again and again
	Error    string    `json:"error,omitempty"`   // why it is not repaired, from the last two rounds
}

// Value is a value that is not configured.
type Value struct {
	Key     string   `json:"key"`
	State   string   `json:"state"`
	Error   string   `json:"error,omitempty"`
	Waiting []string `json:"waitingFor,omitempty"`
}

// Policy is the state of one policy on this node.
type Policy struct {
	Object  string   `json:"object"` // "NetworkPolicy prod/web"
	Tier    string   `json:"tier,omitempty"`
	State   string   `json:"state"` // CONFIGURED, PENDING, …; IDLE: it applies to nothing here; PARTIAL: a part of it fails closed; REFUSED: it is not enforced at all
	Reasons []string `json:"reasons,omitempty"`
	Causes  []Cause  `json:"causes,omitempty"` // Reasons as fields, in the same order
	Text    string   `json:"text,omitempty"`   // its scope, in one line

	Kind      string   `json:"kind"`                // of Object, as its namespace and name
	Namespace string   `json:"namespace,omitempty"` // "": it has none
	Name      string   `json:"name"`
	Endpoints []string `json:"endpoints,omitempty"` // of this node that it applies to
}

// Problem is an object, or a part of the node, that is not in its desired state.
type Problem struct {
	Object string `json:"object"` // "Service prod/web", "VPP", the key of a value, …
	State  string `json:"state"`
	Text   string `json:"text,omitempty"` // the reason, in one line
}

// String returns "Service prod/web is REFUSED: …".
func (p Problem) String() string { return withReason(p.Object+" is "+p.State, p.Text) }

// Transaction is a transaction that ended.
type Transaction struct {
	At     time.Time     `json:"at,omitzero"`
	Seq    uint64        `json:"seq"` // 0: a retry or repair by the agent
	Cause  string        `json:"cause"`
	Kind   string        `json:"kind"`
	Add    int           `json:"add"`
	Mod    int           `json:"mod"`
	Del    int           `json:"del"`
	Writes int           `json:"writes"`
	Took   time.Duration `json:"tookNanoseconds"`
	Error  string        `json:"error,omitempty"`
	Ops    []string      `json:"operations,omitempty"` // only in the history: "create <key>", in order of execution
}
