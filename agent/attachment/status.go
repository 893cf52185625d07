package attachment

import (
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/calico/felix"
)

// FelixStatus is the state of the session with Felix.
type FelixStatus struct {
	State     string            `json:"state"`             // the reason it waits, or in-sync
	Dialect   string            `json:"dialect,omitempty"` // its form of policy names: v3.31, v3.32
	Sequence  uint64            `json:"sequence"`          // number of its last message
	Messages  map[string]uint64 `json:"messages,omitempty"`
	Endpoints []Endpoint        `json:"endpoints,omitempty"`
}

// felixWaits is the prefix of the state of a Felix that has not sent everything yet.
const felixWaits = "waiting for "

// Endpoint is the reported state of an endpoint.
type Endpoint struct {
	Name   string `json:"name"`   // "prod/web-0 eth0", or the name of a host endpoint
	Status string `json:"status"` // up, down, error
	Reason string `json:"reason,omitempty"`
}

// Waits reports whether Felix has not sent everything yet.
func (f *FelixStatus) Waits() bool { return strings.HasPrefix(f.State, felixWaits) }

// DriverStatus is the state of an external driver.
type DriverStatus struct {
	Path      string     `json:"path"`
	PID       int        `json:"pid,omitempty"` // 0: not running
	Starts    uint64     `json:"starts"`
	InSync    bool       `json:"inSync"`            // it has received in-sync
	Behind    int        `json:"behind,omitempty"`  // objects whose latest state it has not received
	Sequence  uint64     `json:"sequence"`          // messages sent to it
	Alive     string     `json:"alive,omitempty"`   // time of its last sign of life
	Trouble   string     `json:"trouble,omitempty"` // why it last ended, or does not start
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// ShowDriver returns the state of a driver for readers.
func ShowDriver(st *felix.SupervisorStatus) *DriverStatus {
	out := &DriverStatus{
		Path: st.Path, PID: st.PID, Starts: st.Starts, InSync: st.InSync, Behind: st.Behind, Sequence: st.Sequence, Alive: st.Alive, Trouble: st.Trouble,
	}
	for id, health := range st.Endpoints {
		out.Endpoints = append(out.Endpoints, Endpoint{Name: id.String(), Status: string(health)})
	}
	slices.SortFunc(out.Endpoints, func(a, b Endpoint) int { return strings.Compare(a.Name, b.Name) })
	return out
}
