package grpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig"
	"github.com/contiv-agent/contiv-agent/proto/contiv/rpc"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
)

// What a call may have in its metadata.
const (
	// ClientKey names the client among those with the same certificate, or with none. As in ligato's API.
	ClientKey = "datasrc"
	// RevertKey, "true": if one item fails, all of the request is taken back.
	RevertKey = "revert-on-failure"
)

// What a call that succeeded has in its trailer: keys of values that are not configured, at most maxNamed of each.
const (
	PendingKey       = "pending"
	UnimplementedKey = "unimplemented"
)

// maxNamed bounds what is said of single items: it travels in headers.
const maxNamed = 100

// services describes the two of proto/contiv/rpc.
func services() []*grpc.ServiceDesc {
	const change, resync = "rpc.DataChangeService", "rpc.DataResyncService"
	file := rpc.File_contiv_rpc_rpc_proto.Path()
	return []*grpc.ServiceDesc{
		{ServiceName: change, HandlerType: (*any)(nil), Metadata: file, Methods: []grpc.MethodDesc{
			method(change, "Put", extconfig.Put, &rpc.PutResponse{}), method(change, "Del", extconfig.Delete, &rpc.DelResponse{}),
		}},
		{ServiceName: resync, HandlerType: (*any)(nil), Metadata: file, Methods: []grpc.MethodDesc{
			method(resync, "Resync", extconfig.Resync, &rpc.ResyncResponse{}),
		}},
	}
}

// method decodes a request and answers it.
func method(service, name string, op extconfig.Op, response proto.Message) grpc.MethodDesc {
	handler := func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		req := &rpc.DataRequest{}
		if err := decode(req); err != nil {
			return nil, err
		}
		answer := func(ctx context.Context, req any) (any, error) {
			return response, srv.(*Server).call(ctx, op, req.(*rpc.DataRequest))
		}
		if intercept == nil {
			return answer(ctx, req)
		}
		return intercept(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + service + "/" + name}, answer)
	}
	return grpc.MethodDesc{MethodName: name, Handler: handler}
}

func (s *Server) call(ctx context.Context, op extconfig.Op, data *rpc.DataRequest) error {
	req, err := request(ctx, op, data)
	if err != nil {
		return err
	}
	out, err := s.keeper.Apply(ctx, req)
	if err != nil {
		s.cfg.Logger.Warn("external configuration", "client", req.Client, "err", err)
		return statusOf(err)
	}
	trailer := metadata.MD{}
	trailer.Append(PendingKey, keys(out.Pending)...)
	trailer.Append(UnimplementedKey, keys(out.Unimplemented)...)
	return grpc.SetTrailer(ctx, trailer)
}

func keys(values []event.ValueStatus) (out []string) {
	for _, st := range values[:min(len(values), maxNamed)] {
		out = append(out, st.Key)
	}
	return out
}

// request is what is asked for, and by whom.
func request(ctx context.Context, op extconfig.Op, data *rpc.DataRequest) (extconfig.Request, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	req := extconfig.Request{Op: op, Items: items(data)}
	switch word, err := single(md, RevertKey); {
	case err != nil:
		return req, err
	case word == "true":
		req.AllOrNothing = true
	case word != "" && word != "false":
		return req, status.Errorf(codes.InvalidArgument, "metadata %s: must be true or false, is %q", RevertKey, word)
	}
	name, err := single(md, ClientKey)
	if err != nil {
		return req, err
	}
	if len(name) > 128 || strings.ContainsAny(name, "/\x00") {
		return req, status.Errorf(codes.InvalidArgument, "metadata %s: must be at most 128 bytes without a slash", ClientKey)
	}
	req.Client = name
	if p, ok := peer.FromContext(ctx); ok {
		if auth, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			req.Client, err = certified(auth, name)
		}
	}
	return req, err
}

// certified is what a client with a certificate is called: tls/common name, or tls/common name/name. A client without one has no
// slash in its name.
func certified(auth credentials.TLSInfo, name string) (string, error) {
	if len(auth.State.VerifiedChains) == 0 {
		return "", status.Error(codes.Unauthenticated, "no certificate that is trusted")
	}
	who := auth.State.VerifiedChains[0][0].Subject.CommonName
	if who == "" || len(who) > 128 || strings.Contains(who, "/") {
		return "", status.Error(codes.Unauthenticated, "the certificate's common name must be 1 to 128 bytes without a slash")
	}
	who = "tls/" + who
	if name != "" {
		who += "/" + name
	}
	return who, nil
}

func single(md metadata.MD, key string) (string, error) {
	switch values := md.Get(key); len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", status.Errorf(codes.InvalidArgument, "metadata %s: given more than once", key)
}

// items are all of a request, whatever field they are in, in the order of the fields.
func items(data *rpc.DataRequest) (out []proto.Message) {
	m := data.ProtoReflect()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case !m.Has(f):
		case f.IsList():
			list := m.Get(f).List()
			for j := range list.Len() {
				out = append(out, list.Get(j).Message().Interface())
			}
		case f.Kind() == protoreflect.MessageKind:
			out = append(out, m.Get(f).Message().Interface())
		}
	}
	return out
}

// statusOf is InvalidArgument for what was refused, FailedPrecondition for what VPP refused, each with a ligato.kvscheduler.ValueStatus
// for every item; Unavailable while VPP is away; Internal for the rest, as a file that cannot be written.
func statusOf(err error) error {
	var refused *extconfig.InvalidError
	var failed *extconfig.TransactionError
	switch {
	case errors.As(err, &refused):
		return detailed(codes.InvalidArgument, err, refused.Items, nil)
	case errors.Is(err, extconfig.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.As(err, &failed):
		items, ops := make([]event.ValueStatus, len(failed.Keys)), make([]string, len(failed.Keys))
		for i, k := range failed.Keys {
			items[i], ops[i] = k.Status, k.Op
		}
		return detailed(codes.FailedPrecondition, err, items, ops)
	case errors.Is(err, extconfig.ErrUnavailable):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Internal, err.Error())
}

func detailed(code codes.Code, err error, items []event.ValueStatus, ops []string) error {
	var details []protoadapt.MessageV1
	for i, st := range items[:min(len(items), maxNamed)] {
		detail := &kvscheduler.ValueStatus{Key: st.Key, State: kvscheduler.ValueState(st.State), Error: st.Err, Details: st.Details}
		if ops != nil {
			detail.LastOperation = kvscheduler.TxnOperation(kvscheduler.TxnOperation_value[ops[i]])
		}
		details = append(details, detail)
	}
	st, derr := status.New(code, err.Error()).WithDetails(details...)
	if derr != nil {
		return status.Error(codes.Internal, fmt.Sprintf("%v (%v)", err, derr))
	}
	return st.Err()
}
