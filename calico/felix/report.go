package felix

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// EndpointID names an endpoint of this node; a host endpoint has Endpoint only.
type EndpointID struct{ Orchestrator, Workload, Endpoint string }

// Host reports whether it is a host endpoint.
func (id EndpointID) Host() bool { return id.Orchestrator == "" && id.Workload == "" }

// String returns "prod/web-0 eth0", or the name of a host endpoint.
func (id EndpointID) String() string {
	if id.Host() {
		return id.Endpoint
	}
	return id.Workload + " " + id.Endpoint
}

func (id EndpointID) compare(o EndpointID) int {
	return cmp.Or(cmp.Compare(id.Orchestrator, o.Orchestrator), cmp.Compare(id.Workload, o.Workload), cmp.Compare(id.Endpoint, o.Endpoint))
}

// Health is the state of an endpoint, as Felix writes it.
type Health string

// States of an endpoint.
const (
	Up    Health = "up"    // VPP has acknowledged all that its policies require
	Down  Health = "down"  // VPP has no interface for it or is away, or the endpoint is administratively down
	Error Health = "error" // VPP refuses a part of it
)

// Report holds the state of all endpoints. It must not be changed after it was reported.
type Report map[EndpointID]EndpointState

// EndpointState is the state of an endpoint.
type EndpointState struct {
	Health Health
	Reason string               // of Down and Error, for humans
	Sent   *pb.WorkloadEndpoint // the endpoint as Felix sent it; nil: a host endpoint
}

// writeReports sends periodic status messages to Felix, and what changed since the last report. While Felix does not read, it
// keeps the latest report only.
func (d *Driver) writeReports(ctx context.Context) error {
	out := &reporter{out: NewWriter(d.cfg.Out), told: map[EndpointID]Health{}}
	tick := time.NewTicker(d.cfg.Alive)
	defer tick.Stop()
	for err := out.alive(d.cfg.Now(), d.started); ; {
		if err != nil {
			return ended(ctx, fmt.Errorf("send to felix: %w", err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			err = out.alive(d.cfg.Now(), d.started)
		case r := <-d.reports:
			err = out.report(r)
		}
	}
}

// reporter writes messages with increasing sequence numbers.
type reporter struct {
	out  *Writer
	seq  uint64
	told map[EndpointID]Health
}

func (r *reporter) sendMessage(m *pb.FromDataplane) error {
	m.SequenceNumber = r.seq
	r.seq++
	return r.out.Write(m)
}

// alive sends the periodic status message.
func (r *reporter) alive(now, started time.Time) error {
	return r.sendMessage(&pb.FromDataplane{Payload: &pb.FromDataplane_ProcessStatusUpdate{ProcessStatusUpdate: &pb.ProcessStatusUpdate{
		IsoTimestamp: now.UTC().Format(time.RFC3339), Uptime: now.Sub(started).Seconds(),
	}}})
}

// report sends the differences from the last report: changed states, then removals of endpoints.
func (r *reporter) report(now Report) error {
	for _, id := range slices.SortedFunc(maps.Keys(now), EndpointID.compare) {
		if at := now[id]; r.told[id] != at.Health {
			if err := r.sendMessage(update(id, at)); err != nil {
				return err
			}
			r.told[id] = at.Health
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(r.told), EndpointID.compare) {
		if _, still := now[id]; !still {
			if err := r.sendMessage(removal(id)); err != nil {
				return err
			}
			delete(r.told, id)
		}
	}
	return nil
}

func workloadID(id EndpointID) *pb.WorkloadEndpointID {
	return &pb.WorkloadEndpointID{OrchestratorId: id.Orchestrator, WorkloadId: id.Workload, EndpointId: id.Endpoint}
}

func update(id EndpointID, at EndpointState) *pb.FromDataplane {
	status := &pb.EndpointStatus{Status: string(at.Health)}
	if id.Host() {
		return &pb.FromDataplane{Payload: &pb.FromDataplane_HostEndpointStatusUpdate{
			HostEndpointStatusUpdate: &pb.HostEndpointStatusUpdate{Id: &pb.HostEndpointID{EndpointId: id.Endpoint}, Status: status},
		}}
	}
	return &pb.FromDataplane{Payload: &pb.FromDataplane_WorkloadEndpointStatusUpdate{
		WorkloadEndpointStatusUpdate: &pb.WorkloadEndpointStatusUpdate{Id: workloadID(id), Status: status, Endpoint: untiered(at.Sent)},
	}}
}

// untiered returns an endpoint without its policies, whose names a Felix of another dialect could not read. Felix v3.31
// writes the rest to a file, if configured.
func untiered(e *pb.WorkloadEndpoint) *pb.WorkloadEndpoint {
	if e == nil {
		return nil
	}
	return &pb.WorkloadEndpoint{
		State: e.State, Name: e.Name, Mac: e.Mac, ProfileIds: e.ProfileIds, Ipv4Nets: e.Ipv4Nets, Ipv6Nets: e.Ipv6Nets, LocalBgpPeer: e.LocalBgpPeer,
	}
}

func removal(id EndpointID) *pb.FromDataplane {
	if id.Host() {
		return &pb.FromDataplane{Payload: &pb.FromDataplane_HostEndpointStatusRemove{
			HostEndpointStatusRemove: &pb.HostEndpointStatusRemove{Id: &pb.HostEndpointID{EndpointId: id.Endpoint}},
		}}
	}
	return &pb.FromDataplane{Payload: &pb.FromDataplane_WorkloadEndpointStatusRemove{
		WorkloadEndpointStatusRemove: &pb.WorkloadEndpointStatusRemove{Id: workloadID(id)},
	}}
}
