package status

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// Wait is one thing that an agent which is not in sync waits for.
type Wait struct {
	For   string `json:"for"`             // one of the words below
	Name  string `json:"name,omitempty"`  // the source, or the driver
	State string `json:"state,omitempty"` // of the source: wait-for-ready, resync
	Count uint64 `json:"count,omitempty"` // the transaction's number, or the number of values
	Error string `json:"error,omitempty"`
}

// The values of Wait.For.
const (
	awaitSource      = "source"
	awaitOwner       = "owner"      // another agent owns this VPP
	awaitVPP         = "vpp"        // a connection
	awaitAnswer      = "answer"     // the connection is up, and VPP is silent
	awaitFirstSync   = "first-sync" // has not begun
	awaitTransaction = "transaction"
	awaitValues      = "values"    // pauses between requests
	awaitRetry       = "retry"     // the last transaction failed
	awaitNATTable    = "nat-table" // it is full
	awaitDriver      = "driver"
)

// String returns it in words.
func (w Wait) String() string {
	switch w.For {
	case awaitSource:
		return withReason("source "+w.Name+" is "+w.State, w.Error) // e.g. a missing right: the administrator looks here first
	case awaitVPP:
		return "VPP is not connected"
	case awaitFirstSync:
		return "the first sync has not begun"
	case awaitTransaction:
		return fmt.Sprintf("transaction %d is running", w.Count)
	case awaitValues:
		return fmt.Sprintf("%d values wait for pauses between requests", w.Count)
	case awaitRetry:
		return "the last transaction failed: " + w.Error
	case awaitNATTable:
		return "NAT session table: " + w.Error
	case awaitDriver:
		return withReason("the dataplane driver", w.Error)
	}
	return w.Error
}

// Waiting returns what an agent that is not in sync waits for, in words; "" if it is in sync.
func Waiting(st *controller.Status) string { return waitText(waits(st)) }

func waitText(list []Wait) string {
	var out []string
	for _, w := range list {
		out = append(out, w.String())
	}
	return strings.Join(out, "; ")
}

// waits returns what the controller waits for.
func waits(st *controller.Status) (out []Wait) {
	if st.Synced() {
		return nil
	}
	for _, src := range st.Sources {
		if src.Status != event.InSync {
			out = append(out, Wait{For: awaitSource, Name: src.Source, State: src.Status.String(), Error: errorText(src.Err)})
		}
	}
	switch {
	case errors.Is(st.VPP.Err, vpp.ErrOwned):
		out = append(out, Wait{For: awaitOwner, Error: st.VPP.Err.Error()})
	case !st.VPP.Connected:
		out = append(out, Wait{For: awaitVPP, Error: errorText(st.VPP.Err)})
	case !st.Started:
		out = append(out, Wait{For: awaitFirstSync})
	case st.InFlight != 0:
		out = append(out, Wait{For: awaitTransaction, Count: st.InFlight})
	case st.Left > 0:
		out = append(out, Wait{For: awaitValues, Count: uint64(st.Left)}) //nolint:gosec // it is a length
	case st.Last != nil && st.Last.Err != nil:
		out = append(out, Wait{For: awaitRetry, Error: st.Last.Err.Error()})
	}
	return out
}

// alsoAwaits adds something to wait for, in fields and in words.
func (s *Status) alsoAwaits(first bool, w Wait) {
	if first {
		s.Awaits = slices.Insert(s.Awaits, 0, w)
	} else {
		s.Awaits = append(s.Awaits, w)
	}
	s.Waiting = waitText(s.Awaits)
}

// Served is what a node serves of a Service.
type Served struct {
	ClusterIPs      []netip.Addr `json:"clusterIPs,omitempty"`
	ExternalIPs     []netip.Addr `json:"externalIPs,omitempty"` // with the addresses of load balancers
	AffinitySeconds uint32       `json:"affinitySeconds,omitempty"`
	ExternalLocal   bool         `json:"externalLocal,omitempty"` // externalTrafficPolicy: Local
	InternalLocal   bool         `json:"internalLocal,omitempty"` // internalTrafficPolicy: Local
	Ports           []ServedPort `json:"ports,omitempty"`
}

// ServedPort is a port of a Service with its endpoints.
type ServedPort struct {
	Name      string           `json:"name,omitempty"`
	Protocol  string           `json:"protocol"`
	Port      uint16           `json:"port"`
	NodePort  uint16           `json:"nodePort,omitempty"`
	Endpoints []ServedEndpoint `json:"endpoints"`
}

// ServedEndpoint is an endpoint that new connections may get.
type ServedEndpoint struct {
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	Local   bool       `json:"local,omitempty"` // it is on this node
	Node    string     `json:"node,omitempty"`
}

// served returns the fields of a Service's line.
func served(svc *renderer.ContivService) *Served {
	out := &Served{
		ClusterIPs: svc.ClusterIPs.Addrs(), ExternalIPs: svc.ExternalIPs.Addrs(), AffinitySeconds: svc.SessionAffinityTimeout,
		ExternalLocal: svc.TrafficPolicy == renderer.NodeLocal, InternalLocal: svc.InternalTrafficPolicy == renderer.NodeLocal,
	}
	for _, name := range svc.PortNames() {
		p := svc.Ports[name]
		port := ServedPort{Name: name, Protocol: p.Protocol.String(), Port: p.Port, NodePort: p.NodePort, Endpoints: []ServedEndpoint{}}
		for _, b := range svc.Backends[name] {
			port.Endpoints = append(port.Endpoints, ServedEndpoint{Address: b.Addr(), Port: b.Port, Local: b.Local, Node: svc.NodeOf(b)})
		}
		out.Ports = append(out.Ports, port)
	}
	return out
}
