package endpoint

import (
	"cmp"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/acl/note"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
)

// ID names a workload endpoint.
type ID struct{ Orchestrator, Workload, Endpoint string }

// IDOf reads a name of Felix's.
func IDOf(id *felix.WorkloadEndpointID) ID {
	return ID{id.GetOrchestratorId(), id.GetWorkloadId(), id.GetEndpointId()}
}

// Compare orders names by their parts.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Orchestrator, o.Orchestrator), cmp.Compare(id.Workload, o.Workload), cmp.Compare(id.Endpoint, o.Endpoint))
}

// Workload is a workload endpoint.
type Workload struct {
	ID      ID
	Allowed []netip.Prefix // sources beside the addresses that the source check may allow
	addrs   []netip.Addr
	specs   [2]policy.Spec // in, out
}

// NewWorkload reads an endpoint. It leaves out what is no address of one host.
func NewWorkload(id ID, e *felix.WorkloadEndpoint) *Workload {
	w := &Workload{ID: id}
	for _, list := range [][]string{e.GetIpv4Nets(), e.GetIpv6Nets()} {
		for _, text := range list {
			if p, err := netset.Parse(text); err == nil && p.IsSingleIP() {
				w.addrs = append(w.addrs, p.Addr())
			}
		}
	}
	for _, text := range e.GetAllowSpoofedSourcePrefixes() {
		if p, err := netset.Parse(text); err == nil {
			w.Allowed = append(w.Allowed, p)
		}
	}
	for i := range w.specs {
		w.specs[i] = policy.SpecOf(i == 1, e.GetTiers(), e.GetProfileIds())
		w.specs[i].Down = e.GetState() != "active"
	}
	return w
}

// Ref returns the object of a note about the endpoint.
func (w *Workload) Ref() model.Ref { return model.Ref{Kind: note.KindWorkload, Name: w.ID.Workload} }
