package grpc

import (
	"context"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of everything else
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Limits for all clients together. A protobuf message of two bytes may need more than a hundred in memory, so requests are counted
// before they are decoded.
const (
	// MaxMessages is the largest number of protobuf messages in a request, nested ones included: 20,000 DNat44 with ten endpoints
	// have 240,000.
	MaxMessages = 400_000
	// MaxDecoded is the largest number of messages in all requests in progress: further requests wait before they are decoded.
	MaxDecoded = 500_000
	// MaxCalls is the largest number of calls in progress; further ones are refused. Watching calls count separately.
	MaxCalls = 32
	// MaxWatchers is the largest number of watching calls.
	MaxWatchers = 256
	// maxAsked is the largest number of messages in a request to watch, because such a request stays in memory for as long as the
	// client watches.
	maxAsked = 1000
	// maxStreams is the largest number of calls in progress on a connection.
	maxStreams = 100
)

// calls counts the calls in progress.
type calls struct {
	answered, watching atomic.Int64
	decoded            *semaphore.Weighted
}

func newCalls() *calls { return &calls{decoded: semaphore.NewWeighted(MaxDecoded)} }

// watches are the methods whose duration the client decides.
func watches(method string) bool {
	switch method {
	case "/ligato.configurator.ConfiguratorService/Notify", "/ligato.generic.ManagerService/Subscribe", "/grpc.health.v1.Health/Watch":
		return true
	}
	return strings.HasPrefix(method, "/grpc.reflection.")
}

// admit is called before the server reads more of a call than its header. The call's context ends with it.
func (c *calls) admit(ctx context.Context, call *tap.Info) (context.Context, error) {
	n, most, what := &c.answered, int64(MaxCalls), "calls are under way"
	if watches(call.FullMethodName) {
		n, most, what = &c.watching, MaxWatchers, "calls watch"
	}
	if n.Add(1) > most {
		n.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "%d %s, which is the limit: try again later", most, what)
	}
	context.AfterFunc(ctx, func() { n.Add(-1) })
	return ctx, nil
}

// readRequest decodes a request into an empty message when the limit has room for it. It waits for room, or fails if the call already holds
// other messages, since two such calls could wait for each other. The caller calls done when it no longer needs the message.
func (c *calls) readRequest(ctx context.Context, receive func(any) error, into proto.Message, most int, wait bool) (done func(), err error) {
	var r undecoded
	if err := receive(&r); err != nil {
		return nil, err
	}
	n := messages(into.ProtoReflect().Descriptor(), r.data, most)
	if n > most {
		return nil, status.Errorf(codes.ResourceExhausted, "the request has more than %d messages", most)
	}
	switch {
	case wait:
		if err := c.decoded.Acquire(ctx, int64(n)); err != nil {
			return nil, status.FromContextError(err).Err()
		}
	case !c.decoded.TryAcquire(int64(n)):
		return nil, status.Errorf(codes.ResourceExhausted, "changes under way have more than %d messages", MaxDecoded)
	}
	done = func() { c.decoded.Release(int64(n)) }
	if err := proto.Unmarshal(r.data, into); err != nil {
		done()
		return nil, status.Errorf(codes.Internal, "the request is no %s: %v", into.ProtoReflect().Descriptor().FullName(), err)
	}
	return done, nil
}

// messages counts the messages in an encoded one, itself included, and stops above most. Invalid protobuf ends the count: decoding
// reports it.
func messages(d protoreflect.MessageDescriptor, b []byte, most int) int {
	n := 1
	for len(b) > 0 && n <= most {
		num, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return n
		}
		b = b[size:]
		f := d.Fields().ByNumber(num)
		if typ != protowire.BytesType || f == nil || f.Message() == nil {
			if size = protowire.ConsumeFieldValue(num, typ, b); size < 0 {
				return n
			}
			b = b[size:]
			continue
		}
		inner, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return n
		}
		n += messages(f.Message(), inner, most-n)
		b = b[size:]
	}
	return n
}

// undecoded is an encoded request.
type undecoded struct{ data []byte }

// codec is protobuf's codec, but returns undecoded messages unchanged.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, is := v.(*undecoded); is {
		r.data = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// options returns the options of a server within the limits.
func (c *calls) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxRequest), grpc.MaxConcurrentStreams(maxStreams), grpc.InTapHandle(c.admit), grpc.ForceServerCodecV2(newCodec()),
	}
}
