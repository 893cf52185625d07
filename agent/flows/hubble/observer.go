package hubble

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/proto/hubble/flow"
	"github.com/contiv-agent/contiv-agent/proto/hubble/observer"
	"github.com/contiv-agent/contiv-agent/proto/hubble/relay"
)

// sendFlows serves GetFlows.
func (s *Server) sendFlows(req *observer.GetFlowsRequest, to grpc.ServerStream) error {
	c, err := newChoice(req)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	ctx := to.Context()
	seen, err := s.source.All(ctx, 0)
	if err != nil {
		return statusOf(err)
	}
	if err := s.sendAll(c, c.choose(s.convertAll(seen)), to); err != nil {
		return err
	}
	if n := unreadOf(seen.Sources); n > 0 {
		if err := s.sendLost(to, &flow.LostEvent{Source: flow.LostEventSource_PERF_EVENT_RING_BUFFER, NumEventsLost: n}); err != nil {
			return err
		}
	}
	if !c.follow {
		return nil
	}
	for {
		next, err := s.source.Follow(ctx, seen.Next)
		if err != nil {
			return statusOf(err)
		}
		for _, lost := range lostBetween(seen, next) {
			if err := s.sendLost(to, lost); err != nil {
				return err
			}
		}
		matching, over := c.matching(s.convertAll(next))
		if err := s.sendAll(c, matching, to); err != nil || over {
			return err
		}
		seen = next
	}
}

func (s *Server) convertAll(a *agentflows.Answer) []*flow.Flow {
	out := make([]*flow.Flow, len(a.Flows))
	for i := range a.Flows {
		out[i] = s.flow(&a.Flows[i])
	}
	return out
}

func (s *Server) sendAll(c *choice, all []*flow.Flow, to grpc.ServerStream) error {
	for _, f := range all {
		at := f.GetTime().AsTime()
		c.mask.apply(f.ProtoReflect())
		if err := to.SendMsg(s.response(at, &observer.GetFlowsResponse{ResponseTypes: &observer.GetFlowsResponse_Flow{Flow: f}})); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) sendLost(to grpc.ServerStream, lost *flow.LostEvent) error {
	return to.SendMsg(s.response(s.cfg.Now(), &observer.GetFlowsResponse{ResponseTypes: &observer.GetFlowsResponse_LostEvents{LostEvents: lost}}))
}

func (s *Server) response(at time.Time, r *observer.GetFlowsResponse) *observer.GetFlowsResponse {
	r.NodeName, r.Time = s.cfg.Node, timestamppb.New(at)
	return r
}

// lostBetween says what a client that follows does not get: changes that the agent has forgotten, and connections that incomplete reads left out.
func lostBetween(seen, next *agentflows.Answer) (out []*flow.LostEvent) {
	if next.Lost > 0 {
		out = append(out, &flow.LostEvent{Source: flow.LostEventSource_HUBBLE_RING_BUFFER, NumEventsLost: next.Lost})
	}
	if n := missedBetween(seen.Sources, next.Sources); n > 0 {
		out = append(out, &flow.LostEvent{Source: flow.LostEventSource_PERF_EVENT_RING_BUFFER, NumEventsLost: n})
	}
	return out
}

// missedBetween counts the connections that the latest read of each source left out, if it was incomplete since the former answer. A read that does not
// know how many it left out counts as one.
func missedBetween(seen, next []agentflows.Source) (n uint64) {
	former := map[string]uint64{}
	for i := range seen {
		former[seen[i].Name] = seen[i].Missed
	}
	for i := range next {
		if s := &next[i]; s.Missed > former[s.Name] {
			n += max(s.Missed-former[s.Name], unreadOf(next[i:i+1]))
		}
	}
	return n
}

// unreadOf counts the connections in VPP that the latest reads left out.
func unreadOf(sources []agentflows.Source) (n uint64) {
	for i := range sources {
		n += sources[i].Present - min(sources[i].Read, sources[i].Present)
	}
	return n
}

// statusOf returns the status of an error of the source.
func statusOf(err error) error {
	if st := status.FromContextError(err); st.Code() != codes.Unknown {
		return st.Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

// serverStatus serves ServerStatus.
func (s *Server) serverStatus(ctx context.Context) (proto.Message, error) {
	all, err := s.source.All(ctx, 0)
	if err != nil {
		return nil, statusOf(err)
	}
	recent := 0
	for i := range all.Flows {
		if s.cfg.Now().Sub(all.Flows[i].Last) <= time.Minute {
			recent++
		}
	}
	return &observer.ServerStatusResponse{
		NumFlows: uint64(len(all.Flows)), MaxFlows: agentflows.MostFlows, SeenFlows: all.Next, UptimeNs: s.uptime(), Version: s.cfg.Version,
		FlowsRate: float64(recent) / 60,
	}, nil
}

func (s *Server) uptime() uint64 { return uint64(max(s.cfg.Now().Sub(s.began), 0)) }

// ownNode serves GetNodes: an agent has the flows of one node. Hubble Relay asks all agents.
func (s *Server) ownNode(ctx context.Context) (proto.Message, error) {
	all, err := s.source.All(ctx, 0)
	if err != nil {
		return nil, statusOf(err)
	}
	n := &observer.Node{
		Name: s.cfg.Node, Version: s.cfg.Version, Address: s.address, State: relay.NodeState_NODE_CONNECTED, Tls: &observer.TLS{Enabled: s.cfg.TLS != nil},
		UptimeNs: s.uptime(), NumFlows: uint64(len(all.Flows)), MaxFlows: agentflows.MostFlows, SeenFlows: all.Next,
	}
	if s.cfg.TLS != nil {
		n.Tls.ServerName = serverName(s.cfg.Node)
	}
	return &observer.GetNodesResponse{Nodes: []*observer.Node{n}}, nil
}

// namespaces serves GetNamespaces.
func (s *Server) namespaces(ctx context.Context) (proto.Message, error) {
	all, err := s.source.All(ctx, 0)
	if err != nil {
		return nil, statusOf(err)
	}
	names := map[string]bool{}
	for i := range all.Flows {
		if f := &all.Flows[i]; s.cfg.Now().Sub(f.Last) <= time.Hour {
			names[f.Source.Namespace], names[f.Destination.Namespace] = true, true
		}
	}
	delete(names, "")
	out := &observer.GetNamespacesResponse{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out.Namespaces = append(out.Namespaces, &observer.Namespace{Cluster: cluster, Namespace: name})
	}
	return out, nil
}
