package grpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig"
	"github.com/contiv-agent/contiv-agent/proto/contiv/rpc"
)

// Keys of a call's metadata.
const (
	// ClientKey names the client among those with the same certificate, or with none. As in ligato's API.
	ClientKey = "datasrc"
	// RevertKey, "true": if one item fails, the whole request is rolled back.
	RevertKey = "revert-on-failure"
	// MergeKey has the terms by which items are merged over the values of others (event.ParseMerge): either terms for all items of
	// the request, or a key, a space and the terms for one item, which then replace the common ones. It may occur many times. A key
	// that is not plain ASCII is quoted as in Go.
	MergeKey = "merge"
)

// Keys in the trailer of a successful call: values that are not configured, at most maxNamed of each, quoted as in Go if they are
// not plain ASCII.
const (
	PendingKey       = "pending"
	UnimplementedKey = "unimplemented"
)

// maxNamed bounds the items that are named, because they are sent in headers.
const maxNamed = 100

// services describes all services.
func services() []*grpc.ServiceDesc {
	return append(append(contivServices(), ligatoServices()...), configService())
}

// contivServices describes the two services of proto/contiv/rpc.
func contivServices() []*grpc.ServiceDesc {
	const change, resync = "rpc.DataChangeService", "rpc.DataResyncService"
	file := rpc.File_contiv_rpc_rpc_proto.Path()
	carry := func(service, name string, op extconfig.Op, response proto.Message) grpc.MethodDesc {
		return unary(service, name, func(s *Server, ctx context.Context, data *rpc.DataRequest) (proto.Message, error) {
			return response, s.data(ctx, op, data)
		})
	}
	return []*grpc.ServiceDesc{
		{ServiceName: change, HandlerType: (*any)(nil), Metadata: file, Methods: []grpc.MethodDesc{
			carry(change, "Put", extconfig.Put, &rpc.PutResponse{}), carry(change, "Del", extconfig.Delete, &rpc.DelResponse{}),
		}},
		{ServiceName: resync, HandlerType: (*any)(nil), Metadata: file, Methods: []grpc.MethodDesc{
			carry(resync, "Resync", extconfig.Resync, &rpc.ResyncResponse{}),
		}},
	}
}

// unary decodes a request and answers it.
func unary[T any, P interface {
	*T
	proto.Message
}](service, name string, do func(*Server, context.Context, P) (proto.Message, error),
) grpc.MethodDesc {
	handler := func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		req := P(new(T))
		done, err := srv.(*Server).calls.readRequest(ctx, decode, req, MaxMessages, true)
		if err != nil {
			return nil, err
		}
		defer done()
		answer := func(ctx context.Context, req any) (any, error) { return do(srv.(*Server), ctx, req.(P)) }
		if intercept == nil {
			return answer(ctx, req)
		}
		return intercept(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + service + "/" + name}, answer)
	}
	return grpc.MethodDesc{MethodName: name, Handler: handler}
}

func (s *Server) data(ctx context.Context, op extconfig.Op, data *rpc.DataRequest) error {
	req, err := caller(ctx)
	if err != nil {
		return err
	}
	req.Op = op
	if req.Items, err = items(nil, data.ProtoReflect()); err != nil {
		return err
	}
	_, err = s.applyRequest(ctx, &req)
	return err
}

// applyRequest carries out a request with the terms from the metadata; the error is a status.
func (s *Server) applyRequest(ctx context.Context, req *extconfig.Request) (*extconfig.Outcome, error) {
	if err := readMerges(ctx, req); err != nil {
		return nil, err
	}
	out, err := s.keeper.Apply(ctx, *req)
	if err != nil {
		s.cfg.Logger.Warn("external configuration", "client", req.Client, "err", err)
		return nil, statusOf(err)
	}
	trailer := metadata.MD{}
	trailer.Append(PendingKey, keys(out.Pending)...)
	trailer.Append(UnimplementedKey, keys(out.Unimplemented)...)
	return out, grpc.SetTrailer(ctx, trailer)
}

func keys(values []event.ValueStatus) (out []string) {
	for _, st := range values[:min(len(values), maxNamed)] {
		out = append(out, printable(st.Key))
	}
	return out
}

// printable returns a key in the form for metadata: quoted as in Go if it is not plain ASCII.
func printable(key string) string {
	for i := range len(key) {
		if key[i] < 0x20 || key[i] > 0x7e {
			return strconv.QuoteToASCII(key)
		}
	}
	return key
}

// caller returns an empty request of the calling client, with its terms.
func caller(ctx context.Context) (extconfig.Request, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	req := extconfig.Request{}
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

// readMerges adds the merge terms of the metadata to a request.
func readMerges(ctx context.Context, req *extconfig.Request) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get(MergeKey)) == 0 {
		return nil
	}
	var all event.Merge
	single := map[string]event.Merge{}
	for _, text := range md.Get(MergeKey) {
		key, words, err := cutKey(text)
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "metadata %s: %v", MergeKey, err)
		}
		m, err := event.ParseMerge(words)
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "metadata %s: %v", MergeKey, err)
		}
		if key == "" {
			all = m
		} else {
			single[key] = m
		}
	}
	if req.Terms == nil {
		req.Terms = map[string]extconfig.Terms{}
	}
	for _, item := range req.Items {
		key := kv.Key(item)
		terms := req.Terms[key]
		terms.Merge = all
		if m, given := single[key]; given {
			terms.Merge = m
			delete(single, key)
		}
		req.Terms[key] = terms
	}
	for _, key := range slices.Sorted(maps.Keys(single)) {
		return status.Errorf(codes.InvalidArgument, "metadata %s: %q is not in the request", MergeKey, key)
	}
	return nil
}

// cutKey splits the key, if any, from the terms.
func cutKey(text string) (key, words string, err error) {
	if strings.HasPrefix(text, `"`) {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", "", fmt.Errorf("%q: key not quoted properly", text)
		}
		key, err = strconv.Unquote(quoted)
		return key, text[len(quoted):], err
	}
	if first, rest, _ := strings.Cut(text, " "); strings.Contains(first, "/") {
		return first, rest, nil
	}
	return "", text, nil
}

// certified returns the name of a client with a certificate: tls/common name, or tls/common name/name. The name of a client without
// one has no slash.
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

// items appends the items of all fields of a request, in the order of the fields. It refuses unknown fields, in the items as well,
// so that nothing is dropped silently.
func items(out []proto.Message, m protoreflect.Message) ([]proto.Message, error) {
	if len(m.GetUnknown()) > 0 {
		return nil, unknown(m)
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case !m.Has(f):
		case f.IsList():
			list := m.Get(f).List()
			for j := range list.Len() {
				item := list.Get(j).Message()
				if err := understood(item); err != nil {
					return nil, err
				}
				out = append(out, item.Interface())
			}
		case f.Message() != nil:
			item := m.Get(f).Message()
			if err := understood(item); err != nil {
				return nil, err
			}
			out = append(out, item.Interface())
		}
	}
	return out, nil
}

// understood reports whether a message, at any depth, has no field that its type does not know.
func understood(m protoreflect.Message) (err error) {
	if len(m.GetUnknown()) > 0 {
		return unknown(m)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil:
		case f.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = understood(v.List().Get(i).Message())
			}
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					err = understood(v.Message())
					return err == nil
				})
			}
		default:
			err = understood(v.Message())
		}
		return err == nil
	})
	return err
}

func unknown(m protoreflect.Message) error {
	number, _, _ := protowire.ConsumeTag(m.GetUnknown())
	return status.Errorf(codes.InvalidArgument, "%s: field %d is not known here", m.Descriptor().FullName(), number)
}

// statusOf returns the gRPC status of an error: InvalidArgument for a refused request and FailedPrecondition for items that VPP
// refused, each with a ligato.kvscheduler.ValueStatus for every item; Unavailable while VPP is away; Internal for others, such as a
// file that cannot be written.
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
		op := ""
		if ops != nil {
			op = ops[i]
		}
		details = append(details, valueStatus(st, op))
	}
	st, derr := status.New(code, err.Error()).WithDetails(details...)
	if derr != nil {
		return status.Error(codes.Internal, fmt.Sprintf("%v (%v)", err, derr))
	}
	return st.Err()
}
