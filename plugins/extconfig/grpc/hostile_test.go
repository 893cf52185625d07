package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/config"
	"github.com/contiv-agent/contiv-agent/proto/contiv/rpc"
	"github.com/contiv-agent/contiv-agent/proto/ligato/configurator"
	"github.com/contiv-agent/contiv-agent/proto/ligato/generic"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// raw sends bytes as they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// methods are all methods that take a request.
var methods = []string{
	put, del, resync, configuratorPath + "Get", configuratorPath + "Update", configuratorPath + "Delete", configuratorPath + "Dump",
	managerPath + "SetConfig", managerPath + "GetConfig", managerPath + "DumpState", metaPath + "KnownModels", metaPath + "ProtoFileDescriptor",
}

// streams are all methods with a stream.
var streams = []string{configuratorPath + "Notify", managerPath + "Subscribe", "/contiv.config.ConfigService/Apply"}

// Clients with wrong certificates get nothing: not from any method, not from any stream, nor from reflection.
func TestWrongCertificatesGetNothing(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	cert, key := ours.sign("server")
	config, err := LoadTLS(cert, key, ours.file)
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, Config{TCP: "127.0.0.1:0", TLS: config})
	addr := n.addr(t, 0)
	good := dial(t, addr, ours.client("alice", ours))
	if err := call(t, good, put, loops("secret")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for name, creds := range map[string]credentials.TransportCredentials{
		"plaintext": insecure.NewCredentials(), "no certificate": ours.client("", ours), "of others": theirs.client("alice", ours), "a path as name": ours.client("a/b", ours),
	} {
		conn := dial(t, addr, creds)
		for _, method := range methods {
			var answer []byte
			err := conn.Invoke(ctx, method, new([]byte), &answer, grpc.ForceCodec(raw{}))
			if code := status.Code(err); len(answer) > 0 || code != codes.Unavailable && code != codes.Unauthenticated {
				t.Errorf("%s: %s: %d bytes, %v", name, method, len(answer), err)
			}
		}
		for _, method := range append([]string{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"}, streams...) {
			if strings.Contains(method, "reflection") && name == "a path as name" {
				continue // it has a certificate, and reflection shows only public facts
			}
			var answer []byte
			st, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(raw{}))
			if err == nil {
				_ = st.SendMsg(new([]byte))
				_ = st.CloseSend()
				err = st.RecvMsg(&answer)
			}
			if code := status.Code(err); len(answer) > 0 || code != codes.Unavailable && code != codes.Unauthenticated {
				t.Errorf("%s: %s: %d bytes, %v", name, method, len(answer), err)
			}
		}
	}
	// A client sees its values and not those of another client.
	got, err := ask[configurator.GetResponse](t, dial(t, addr, ours.client("bob", ours)), configuratorPath+"Get", &configurator.GetRequest{})
	if err != nil || len(got.GetConfig().GetVppConfig().GetInterfaces()) != 0 {
		t.Errorf("bob gets %v, %v", got, err)
	}
}

// A server that only requests certificates refuses clients without one.
func TestMissingClientCertificateIsRefused(t *testing.T) {
	ours := newAuthority(t)
	cert, key := ours.sign("server")
	config, err := LoadTLS(cert, key, ours.file)
	if err != nil {
		t.Fatal(err)
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	n := start(t, Config{TCP: "127.0.0.1:0", TLS: config})
	if err := call(t, dial(t, n.addr(t, 0), ours.client("", ours)), put, loops("a")); status.Code(err) != codes.Unauthenticated || n.config() != "" {
		t.Errorf("%v, VPP has %q", err, n.config())
	}
	if err := call(t, dial(t, n.addr(t, 0), ours.client("alice", ours)), put, loops("a")); err != nil {
		t.Error(err)
	}
}

// A value that is too long is refused with a short error; a long one is accepted. Other clients are not affected.
func TestLongValues(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0", File: filepath.Join(t.TempDir(), "grpc.db")})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	if err := call(t, conn, put, loops("good")); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 10<<20)
	for name, req := range map[string]*rpc.DataRequest{
		"a name of 10 MB": loops(long), "a name of 3 kB": loops(long[:3000]), "many": func() *rpc.DataRequest {
			req := loops()
			for i := range 300 {
				req.Interfaces = append(req.Interfaces, loops(fmt.Sprint(long[:5000], i)).Interfaces...)
			}
			return req
		}(),
	} {
		for _, method := range []string{put, del, resync} {
			err := call(t, conn, method, req)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "at most 2048") || len(err.Error()) > 64<<10 {
				t.Errorf("%s: %s: %d bytes: %.200v", name, method, len(err.Error()), err)
			}
		}
	}
	_, err := ask[generic.SetConfigResponse](t, conn, managerPath+"SetConfig", &generic.SetConfigRequest{Updates: []*generic.UpdateItem{
		{Item: &generic.Item{Id: &generic.Item_ID{Model: "vpp.interfaces", Name: long[:5000]}}},
	}})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a key of 5 kB: %.200v", err)
	}
	value := &rpc.DataRequest{DNATs: []*nat.DNat44{{Label: "long"}}}
	for range 100_000 {
		value.DNATs[0].StMappings = append(value.DNATs[0].StMappings, &nat.DNat44_StaticMapping{ExternalInterface: long[:100]})
	}
	if size := proto.Size(value); size < 10_000_000 {
		t.Fatalf("only %d bytes", size)
	}
	if err := call(t, conn, put, value); err != nil || n.config() != "long good" {
		t.Errorf("a value of 10 MB: %.200v, VPP has %q", err, n.config())
	}
	if err := call(t, conn, put, loops(long, long, long, long, long, long, long)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request of 70 MB: %.200v", err)
	}
}

// FuzzRequests sends arbitrary bytes to any method: the server refuses the request as a whole, or the value has its right key. The
// server continues.
func FuzzRequests(f *testing.F) {
	for i, m := range []proto.Message{
		loops("a", "b"), loops("a"), loops("c"), nil, update(iface("a", 1)), &configurator.DeleteRequest{Delete: update(iface("a", 1)).Update}, nil,
		&generic.SetConfigRequest{Updates: []*generic.UpdateItem{{Item: &generic.Item{Id: id(kv.InterfaceKey("a"))}, Labels: map[string]string{"a": "b"}}}},
		&generic.GetConfigRequest{Ids: []*generic.Item_ID{{Model: "vpp.interfaces"}}}, nil, &generic.KnownModelsRequest{Class: "config"},
		&generic.ProtoFileDescriptorRequest{FullProtoFileName: "ligato/vpp/l3/l3.proto"},
		&config.ApplyRequest{Items: []*config.Item{{Item: &generic.Item{Id: id(kv.InterfaceKey("a"))}, Merge: "once"}}},
	} {
		b := []byte{}
		if m != nil {
			var err error
			if b, err = proto.Marshal(m); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(byte(i), b)
	}
	n, conn := fuzzNode(f)
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var answer []byte
		var err error
		if at := int(which) % (len(methods) + 1); at < len(methods) {
			err = conn.Invoke(ctx, methods[at], &data, &answer, grpc.ForceCodec(raw{}))
		} else {
			var st grpc.ClientStream
			if st, err = conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streams[2], grpc.ForceCodec(raw{})); err == nil {
				_ = st.SendMsg(&data)
				_ = st.CloseSend()
				for err == nil {
					err = st.RecvMsg(&answer)
				}
			}
		}
		switch status.Code(err) {
		case codes.OK, codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.Internal: // Internal: invalid protobuf
		default:
			if !strings.Contains(fmt.Sprint(err), "EOF") {
				t.Fatalf("%v", err)
			}
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		for key, msg := range n.has {
			if err := kv.Check(key, msg); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// fuzzNode is a node for the duration of the fuzzing.
func fuzzNode(f *testing.F) (*node, *grpc.ClientConn) {
	n, err := newNode(Config{TCP: "127.0.0.1:0"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(n.stop)
	addrs, err := n.server.Addrs(context.Background())
	if err != nil {
		f.Fatal(err)
	}
	conn, err := grpc.NewClient(addrs[0].String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	return n, conn
}

// Bytes that are no HTTP/2, and silent connections, do not affect the server.
func TestGarbageOnTheWire(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	addr := n.addr(t, 0)
	for _, garbage := range []string{"", "GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff", strings.Repeat("\x00", 1<<16)} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.Write([]byte(garbage)); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Log(err)
		}
	}
	before := runtime.NumGoroutine()
	if err := call(t, dial(t, addr, insecure.NewCredentials()), put, loops("a")); err != nil || n.config() != "a" || before > 500 {
		t.Errorf("%v, VPP has %q, %d goroutines", err, n.config(), before)
	}
}
