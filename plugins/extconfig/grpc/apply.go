package grpc

import (
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig"
	"github.com/contiv-agent/contiv-agent/proto/contiv/config"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
)

// MaxStream is the largest size of a change in portions, in bytes of protobuf, and of all such changes in progress together.
const MaxStream = 4 * MaxRequest

// portion is how many values one message reports.
const portion = 1000

// configService describes the service of proto/contiv/config.
func configService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "contiv.config.ConfigService", HandlerType: (*any)(nil), Metadata: config.File_contiv_config_config_proto.Path(),
		Streams: []grpc.StreamDesc{{
			StreamName: "Apply", ClientStreams: true, ServerStreams: true,
			Handler: func(srv any, stream grpc.ServerStream) error { return srv.(*Server).applyStream(stream) },
		}},
	}
}

func (s *Server) applyStream(stream grpc.ServerStream) error {
	ctx := stream.Context()
	req, err := caller(ctx)
	if err != nil {
		return err
	}
	var length int64
	defer func() { s.under.Add(-length) }()
	var held []func()
	defer func() {
		for _, done := range held {
			done()
		}
	}()
	if err := s.collect(stream, &req, &length, &held); err != nil {
		return err
	}
	if err := readMerges(ctx, &req); err != nil {
		return err
	}
	out, err := s.keeper.Apply(ctx, req)
	if err != nil {
		s.cfg.Logger.Warn("external configuration", "client", req.Client, "err", err)
		if err := sendStatuses(stream, troubled(err)); err != nil {
			return err
		}
		return statusOf(err)
	}
	var unwell []*kvscheduler.ValueStatus
	for _, k := range out.All {
		if k.Status.State != event.Configured && k.Status.State != event.Removed {
			unwell = append(unwell, valueStatus(k.Status, k.Op))
		}
	}
	return sendStatuses(stream, unwell)
}

// collect receives the portions of a change, and adds up their sizes. The caller calls held when it no longer needs them.
func (s *Server) collect(stream grpc.ServerStream, req *extconfig.Request, length *int64, held *[]func()) error {
	for first := true; ; first = false {
		p := &config.ApplyRequest{}
		done, err := s.calls.readRequest(stream.Context(), stream.RecvMsg, p, MaxMessages, len(*held) == 0)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		*held = append(*held, done)
		op, known := map[config.Operation]extconfig.Op{
			config.Operation_PUT: extconfig.Put, config.Operation_DELETE: extconfig.Delete, config.Operation_RESYNC: extconfig.Resync,
		}[p.GetOperation()]
		switch {
		case !known:
			return status.Errorf(codes.InvalidArgument, "operation %d is not known here", p.GetOperation())
		case first:
			req.Op, req.AllOrNothing = op, req.AllOrNothing || p.GetAllOrNothing()
		case op != req.Op && op != extconfig.Put:
			return status.Error(codes.InvalidArgument, "the first portion says what to do; a later one says otherwise")
		}
		n := int64(proto.Size(p))
		if *length += n; s.under.Add(n) > MaxStream {
			return status.Errorf(codes.ResourceExhausted, "changes under way are longer than %d bytes", int64(MaxStream))
		}
		for _, item := range p.GetItems() {
			merge, err := event.ParseMerge(item.GetMerge())
			if err != nil {
				return status.Error(codes.InvalidArgument, err.Error())
			}
			if err := addItem(req, item.GetItem(), extconfig.Terms{Merge: merge, Labels: item.GetLabels()}); err != nil {
				return err
			}
		}
	}
}

// troubled returns all items of an error.
func troubled(err error) (out []*kvscheduler.ValueStatus) {
	var refused *extconfig.InvalidError
	var failed *extconfig.TransactionError
	switch {
	case errors.As(err, &refused):
		for _, st := range refused.Items {
			out = append(out, valueStatus(st, ""))
		}
	case errors.As(err, &failed):
		for _, k := range failed.Keys {
			out = append(out, valueStatus(k.Status, k.Op))
		}
	}
	return out
}

func sendStatuses(stream grpc.ServerStream, statuses []*kvscheduler.ValueStatus) error {
	for some := range slices.Chunk(statuses, portion) {
		if err := stream.SendMsg(&config.ApplyResponse{Statuses: some}); err != nil {
			return err
		}
	}
	return nil
}

// valueStatus returns a status in ligato's form; op may be empty.
func valueStatus(st event.ValueStatus, op string) *kvscheduler.ValueStatus {
	return &kvscheduler.ValueStatus{
		Key: st.Key, State: kvscheduler.ValueState(st.State), Error: st.Err, Details: st.Details,
		LastOperation: kvscheduler.TxnOperation(kvscheduler.TxnOperation_value[op]),
	}
}
