package grpc

import (
	"context"
	"slices"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig"
	"github.com/contiv-agent/contiv-agent/proto/ligato/configurator"
	"github.com/contiv-agent/contiv-agent/proto/ligato/generic"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp"
)

// SeqHeader, in the header of an answer of ConfiguratorService, is the sequence number of the transaction. As in ligato's API.
const SeqHeader = "seqnum"

// ligatoServices describes the three services of proto/ligato.
func ligatoServices() []*grpc.ServiceDesc {
	const config, manager, meta = "ligato.configurator.ConfiguratorService", "ligato.generic.ManagerService", "ligato.generic.MetaService"
	file := generic.File_ligato_generic_generic_proto.Path()
	return []*grpc.ServiceDesc{
		{
			ServiceName: config, HandlerType: (*any)(nil), Metadata: configurator.File_ligato_configurator_configurator_proto.Path(),
			Methods: []grpc.MethodDesc{
				unary(config, "Get", (*Server).readConfig), unary(config, "Update", (*Server).update),
				unary(config, "Delete", (*Server).removeConfig), unary(config, "Dump", (*Server).dump),
			},
			Streams: []grpc.StreamDesc{serverStream("Notify", (*Server).notify)},
		},
		{
			ServiceName: manager, HandlerType: (*any)(nil), Metadata: file,
			Methods: []grpc.MethodDesc{
				unary(manager, "SetConfig", (*Server).setConfig), unary(manager, "GetConfig", (*Server).getConfig), unary(manager, "DumpState", (*Server).dumpState),
			},
			Streams: []grpc.StreamDesc{serverStream("Subscribe", (*Server).subscribe)},
		},
		{ServiceName: meta, HandlerType: (*any)(nil), Metadata: file, Methods: []grpc.MethodDesc{
			unary(meta, "KnownModels", (*Server).knownModels), unary(meta, "ProtoFileDescriptor", (*Server).protoFile),
		}},
	}
}

// serverStream decodes a request and answers it with a stream of messages.
func serverStream[T any, P interface {
	*T
	proto.Message
}](name string, do func(*Server, P, grpc.ServerStream) error,
) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		req := P(new(T))
		done, err := srv.(*Server).calls.readRequest(stream.Context(), stream.RecvMsg, req, maxAsked, true)
		if err != nil {
			return err
		}
		done()
		if _, err := caller(stream.Context()); err != nil {
			return err
		}
		return do(srv.(*Server), req, stream)
	}}
}

// listed returns the items of a configuration.
func listed(c *configurator.Config) (out []proto.Message, err error) {
	if len(c.ProtoReflect().GetUnknown()) > 0 {
		return nil, unknown(c.ProtoReflect())
	}
	for _, part := range []proto.Message{c.GetVppConfig(), c.GetLinuxConfig(), c.GetNetallocConfig()} {
		if out, err = items(out, part.ProtoReflect()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// placed returns a configuration with these items. It omits items whose models have no field in it.
func placed(msgs []proto.Message) *configurator.Config {
	config := &configurator.Config{VppConfig: &vpp.ConfigData{}, LinuxConfig: &linux.ConfigData{}}
	type place struct {
		in    protoreflect.Message
		field protoreflect.FieldDescriptor
	}
	places := map[protoreflect.FullName]place{}
	for _, part := range []proto.Message{config.GetVppConfig(), config.GetLinuxConfig()} {
		m := part.ProtoReflect()
		for i := range m.Descriptor().Fields().Len() {
			f := m.Descriptor().Fields().Get(i)
			places[f.Message().FullName()] = place{m, f}
		}
	}
	for _, msg := range msgs {
		switch p, found := places[msg.ProtoReflect().Descriptor().FullName()]; {
		case !found:
		case p.field.IsList():
			p.in.Mutable(p.field).List().Append(protoreflect.ValueOfMessage(msg.ProtoReflect()))
		default:
			p.in.Set(p.field, protoreflect.ValueOfMessage(msg.ProtoReflect()))
		}
	}
	return config
}

func (s *Server) readConfig(ctx context.Context, _ *configurator.GetRequest) (proto.Message, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	values, _, err := s.keeper.Wants(ctx, who.Client)
	if err != nil {
		return nil, statusOf(err)
	}
	var msgs []proto.Message
	for _, key := range values.Keys() {
		msgs = append(msgs, values[key])
	}
	return &configurator.GetResponse{Config: placed(msgs)}, nil
}

func (s *Server) update(ctx context.Context, req *configurator.UpdateRequest) (proto.Message, error) {
	op := extconfig.Put
	if req.GetFullResync() {
		op = extconfig.Resync
	}
	return &configurator.UpdateResponse{}, s.configure(ctx, op, req.GetUpdate(), req.GetWaitDone())
}

func (s *Server) removeConfig(ctx context.Context, req *configurator.DeleteRequest) (proto.Message, error) {
	return &configurator.DeleteResponse{}, s.configure(ctx, extconfig.Delete, req.GetDelete(), req.GetWaitDone())
}

func (s *Server) configure(ctx context.Context, op extconfig.Op, config *configurator.Config, wait bool) error {
	req, err := caller(ctx)
	if err != nil {
		return err
	}
	if req.Op = op; wait && s.values == nil {
		return errBlind
	}
	if req.Items, err = listed(config); err != nil {
		return err
	}
	out, err := s.applyRequest(ctx, &req)
	if err != nil {
		return err
	}
	if out.Seq != 0 {
		if err := grpc.SetHeader(ctx, metadata.Pairs(SeqHeader, strconv.FormatUint(out.Seq, 10))); err != nil {
			return err
		}
	}
	if wait {
		return s.settled(ctx, out.Pending)
	}
	return nil
}

// settled waits until none of these values is PENDING.
func (s *Server) settled(ctx context.Context, pending []event.ValueStatus) error {
	for len(pending) > 0 {
		at := s.changes.nextNumber()
		now := map[string]event.State{}
		for _, v := range s.values() {
			now[v.Key] = v.State
		}
		pending = slices.DeleteFunc(pending, func(st event.ValueStatus) bool { return now[st.Key] != event.Pending })
		if len(pending) == 0 {
			break
		}
		if _, _, err := s.changes.readEntries(ctx, at); err != nil {
			return status.FromContextError(err).Err()
		}
	}
	return nil
}

func (s *Server) dump(ctx context.Context, _ *configurator.DumpRequest) (proto.Message, error) {
	if _, err := caller(ctx); err != nil {
		return nil, err
	}
	if s.values == nil {
		return nil, errBlind
	}
	var msgs []proto.Message
	for _, v := range s.values() {
		if v.State == event.Configured {
			msgs = append(msgs, v.Message)
		}
	}
	return &configurator.DumpResponse{Dump: placed(msgs)}, nil
}

// notify sends changes of interfaces, from the client's number on.
func (s *Server) notify(req *configurator.NotifyRequest, stream grpc.ServerStream) error {
	at := uint64(req.GetIdx())
	for {
		links, first, err := s.links.readEntries(stream.Context(), at)
		if err != nil {
			return status.FromContextError(err).Err()
		}
		for i, link := range links {
			n := &configurator.Notification{Notification: &configurator.Notification_VppNotification{VppNotification: &vpp.Notification{Interface: link}}}
			if !wanted(n, req.GetFilters()) {
				continue
			}
			next := uint32(first + uint64(i) + 1) // the API's number has 32 bits and may wrap around
			if err := stream.SendMsg(&configurator.NotifyResponse{NextIdx: next, Notification: n}); err != nil {
				return err
			}
		}
		at = first + uint64(len(links))
	}
}

// wanted reports whether the notification has all fields that one of the filters sets.
func wanted(n *configurator.Notification, filters []*configurator.Notification) bool {
	return len(filters) == 0 || slices.ContainsFunc(filters, func(f *configurator.Notification) bool {
		both := proto.CloneOf(n)
		proto.Merge(both, f)
		return proto.Equal(both, n)
	})
}
