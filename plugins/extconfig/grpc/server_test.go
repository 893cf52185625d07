package grpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/proto/contiv/rpc"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// node is a controller with a server, over a VPP that accepts everything except interfaces of MTU 666, and accepts those of MTU 667
// only later.
type node struct {
	mu     sync.Mutex
	has    map[string]proto.Message
	states map[string]event.ValueStatus // of those that VPP has not configured
	server *Server
	in     chan<- event.Event
	stop   func()
	failed error // of the server, once it has stopped
}

// values returns what an agent would show.
func (n *node) values() []event.Value {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []event.Value
	for key, m := range n.has {
		out = append(out, event.Value{ValueStatus: event.ValueStatus{Key: key, State: event.Configured}, Message: m, Since: time.Unix(1e9, 0)})
	}
	for _, st := range n.states {
		out = append(out, event.Value{ValueStatus: st})
	}
	slices.SortFunc(out, func(a, b event.Value) int { return strings.Compare(a.Key, b.Key) })
	return out
}

func start(t *testing.T, cfg Config) *node {
	t.Helper()
	n, err := newNode(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop := n.stop
	n.stop = func() {
		if stop(); n.failed != nil {
			t.Error(n.failed)
		}
	}
	t.Cleanup(n.stop)
	return n
}

func newNode(cfg Config) (*node, error) {
	server, err := New(cfg)
	if err != nil {
		return nil, err
	}
	n := &node{has: map[string]proto.Message{}, states: map[string]event.ValueStatus{}, server: server}
	in, out := make(chan event.Event, 64), make(chan *event.Txn, 1)
	n.in = in
	values := controller.NewValues()
	server.Show(n.values)
	c := controller.New(controller.Config{Sources: []string{Name}, Observer: controller.Observer{
		Committed: func(ev *event.Committed) { server.Committed(ev, values.Sent) },
	}}, values)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = c.Run(ctx, in, out) })
	all.Go(func() {
		if err := server.Run(ctx, func(ev event.Event) { in <- ev }); !errors.Is(err, context.Canceled) {
			n.failed = fmt.Errorf("server ended with %w", err)
		}
	})
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case txn := <-out:
				in <- n.commit(txn)
			}
		}
	})
	n.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	in <- &event.VPPStatus{Connected: true}
	return n, nil
}

func (n *node) commit(txn *event.Txn) *event.Committed {
	n.mu.Lock()
	defer n.mu.Unlock()
	done := &event.Committed{Seq: txn.Seq}
	for key, msg := range txn.Values {
		st := event.ValueStatus{Key: key, State: event.Configured}
		delete(n.has, key)
		delete(n.states, key)
		i, _ := msg.(*interfaces.Interface)
		switch {
		case i.GetMtu() == 666:
			st.State, st.Err = event.Retrying, "no memory"
			n.states[key] = st
		case i.GetMtu() == 667:
			st.State, st.Details = event.Pending, []string{"config/something"}
			n.states[key] = st
		case msg != nil:
			n.has[key] = msg
		default:
			st.State = event.Removed
		}
		done.Statuses = append(done.Statuses, st)
	}
	return done
}

// config is the last sent value of each key.
func (n *node) config() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, key := range slices.Sorted(maps.Keys(n.has)) {
		out = append(out, key[strings.LastIndexByte(key, '/')+1:])
	}
	return strings.Join(out, " ")
}

func (n *node) addr(t *testing.T, i int) string {
	t.Helper()
	addrs, err := n.server.Addrs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if addrs[i].Network() == "unix" {
		return "unix:" + addrs[i].String()
	}
	return addrs[i].String()
}

func dial(t *testing.T, addr string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const (
	put    = "/rpc.DataChangeService/Put"
	del    = "/rpc.DataChangeService/Del"
	resync = "/rpc.DataResyncService/Resync"
)

func call(t *testing.T, conn *grpc.ClientConn, method string, req *rpc.DataRequest, md ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), md...), 30*time.Second)
	defer cancel()
	return conn.Invoke(ctx, method, req, &rpc.PutResponse{}) // all three responses are empty
}

func loops(names ...string) *rpc.DataRequest {
	req := &rpc.DataRequest{}
	for _, n := range names {
		req.Interfaces = append(req.Interfaces, &interfaces.Interface{Name: n})
	}
	return req
}

func TestCallsAndRestart(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{TCP: "127.0.0.1:0", Unix: filepath.Join(dir, "grpc.sock"), File: filepath.Join(dir, "grpc.db")}
	n := start(t, cfg)
	tcp, unix := dial(t, n.addr(t, 0), insecure.NewCredentials()), dial(t, n.addr(t, 1), insecure.NewCredentials())
	for _, step := range []struct {
		conn   *grpc.ClientConn
		method string
		req    *rpc.DataRequest
		client string
		want   string
	}{
		{tcp, put, loops("a", "b"), "", "a b"},
		{unix, put, loops("x"), "other", "a b x"},
		{tcp, del, loops("a"), "", "b x"},
		{tcp, del, loops("x"), "", "b x"},
		{unix, resync, loops("y", "z"), "other", "b y z"},
		{tcp, resync, loops("c"), "", "c y z"},
	} {
		var md []string
		if step.client != "" {
			md = []string{ClientKey, step.client}
		}
		if err := call(t, step.conn, step.method, step.req, md...); err != nil || n.config() != step.want {
			t.Errorf("%s by %q: %v, VPP has %q, want %q", step.method, step.client, err, n.config(), step.want)
		}
	}
	n.stop()
	n = start(t, cfg)
	if err := call(t, dial(t, n.addr(t, 1), insecure.NewCredentials()), put, loops("d")); err != nil || n.config() != "c d y z" {
		t.Errorf("after a restart: %v, VPP has %q", err, n.config())
	}
	info, err := os.Stat(cfg.Unix)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
}

// No field of a request is dropped: an item in each arrives.
func TestEveryFieldArrives(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	req := &rpc.DataRequest{}
	m := req.ProtoReflect()
	var want []string
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		item := m.NewField(f)
		if f.IsList() {
			item = item.List().NewElement()
		}
		for _, name := range []protoreflect.Name{"name", "label", "interface", "outgoing_interface", "receive_interface", "bridge_domain", "interface_from", "reason", "tx_interface"} {
			if s := item.Message().Descriptor().Fields().ByName(name); s != nil && s.Kind() == protoreflect.StringKind {
				item.Message().Set(s, protoreflect.ValueOfString("n"))
			}
		}
		if dst := item.Message().Descriptor().Fields().ByName("dst_network"); dst != nil {
			item.Message().Set(dst, protoreflect.ValueOfString("10.0.0.0/8"))
		}
		if f.IsList() {
			m.Mutable(f).List().Append(item)
		} else {
			m.Set(f, item)
		}
		want = append(want, kv.Key(item.Message().Interface()))
	}
	if err := call(t, conn, put, req); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(n.has)); len(want) != 25 || !slices.Equal(got, want) {
		t.Errorf("%d fields (-want +got):\n%s", len(want), cmp.Diff(want, got))
	}
}

func TestErrorsNameEachItem(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	req := loops("good", "bad")
	req.Interfaces[1].Mtu = 666
	err := call(t, conn, put, req)
	st := status.Convert(err)
	if st.Code() != codes.FailedPrecondition || st.Message() != "KeyErrors: [config/vpp/v2/interfaces/bad (CREATE): no memory]" {
		t.Errorf("status %v: %s", st.Code(), st.Message())
	}
	want := []any{&kvscheduler.ValueStatus{
		Key: "config/vpp/v2/interfaces/bad", State: kvscheduler.ValueState_RETRYING, Error: "no memory", LastOperation: kvscheduler.TxnOperation_CREATE,
	}}
	if diff := cmp.Diff(want, st.Details(), protocmp.Transform()); diff != "" {
		t.Errorf("details (-want +got):\n%s", diff)
	}
	if n.config() != "good" {
		t.Errorf("VPP has %q", n.config())
	}
	req.Interfaces[0].Name = "good2"
	if err = call(t, conn, put, req, RevertKey, "true"); status.Code(err) != codes.FailedPrecondition || n.config() != "good" {
		t.Errorf("all or nothing: %v, VPP has %q", err, n.config())
	}
	for name, wrong := range map[string][]string{
		"": nil, "revert": {RevertKey, "perhaps"}, "two clients": {ClientKey, "a", ClientKey, "b"}, "a path": {ClientKey, "tls/admin"},
	} {
		if err := call(t, conn, put, loops("q", name), wrong...); status.Code(err) != codes.InvalidArgument || n.config() != "good" {
			t.Errorf("%q: %v, VPP has %q", name, err, n.config())
		}
	}
}

func TestLargeRequest(t *testing.T) {
	const many = 20_000
	n := start(t, Config{TCP: "127.0.0.1:0", File: filepath.Join(t.TempDir(), "grpc.db")})
	req := &rpc.DataRequest{}
	for i := range many {
		m := &nat.DNat44_StaticMapping{ExternalIp: "10.96.0.1", ExternalPort: 80}
		for b := range 10 {
			m.LocalIps = append(m.LocalIps, &nat.DNat44_StaticMapping_LocalIP{LocalIp: fmt.Sprintf("10.1.%d.%d", i%250, b), LocalPort: 8080, Probability: 1})
		}
		req.DNATs = append(req.DNATs, &nat.DNat44{Label: fmt.Sprintf("default/service-%d", i), StMappings: []*nat.DNat44_StaticMapping{m}})
	}
	if size := proto.Size(req); size <= 4<<20 { // what gRPC takes by default
		t.Fatalf("only %d bytes", size)
	}
	if err := call(t, dial(t, n.addr(t, 0), insecure.NewCredentials()), put, req); err != nil || len(n.has) != many {
		t.Errorf("%v, VPP has %d values", err, len(n.has))
	}
}

func TestHealthAndReflection(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", h, err)
	}
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "rpc.DataChangeService"}}
	if err := stream.Send(ask); err != nil {
		t.Fatal(err)
	}
	if answer, err := stream.Recv(); err != nil || len(answer.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection: %v, %v", answer, err)
	}
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, file: filepath.Join(t.TempDir(), "ca.pem")}
	a.key = a.newKey()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write(a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) write(file, kind string, der []byte) {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// sign writes a certificate for a name and its key.
func (a *authority) sign(name string) (cert, key string) {
	k := a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{{127, 0, 0, 1}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	dir := a.t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	a.write(cert, "CERTIFICATE", der)
	a.write(key, "EC PRIVATE KEY", private)
	return cert, key
}

// client returns the TLS configuration of a client with that name.
func (a *authority) client(name string, trusts *authority) credentials.TransportCredentials {
	pool := x509.NewCertPool()
	pool.AddCert(trusts.cert)
	cfg := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.sign(name))
		if err != nil {
			a.t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(cfg)
}

func TestMutualTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	cert, key := ours.sign("server")
	config, err := LoadTLS(cert, key, ours.file)
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, Config{TCP: "127.0.0.1:0", TLS: config})
	addr := n.addr(t, 0)
	alice, bob := dial(t, addr, ours.client("alice", ours)), dial(t, addr, ours.client("bob", ours))
	for _, err := range []error{call(t, alice, put, loops("a")), call(t, bob, put, loops("b")), call(t, bob, put, loops("c"), ClientKey, "second")} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := call(t, bob, resync, &rpc.DataRequest{}); err != nil || n.config() != "a c" {
		t.Errorf("one client's resync: %v, VPP has %q, want a and c", err, n.config())
	}
	for name, creds := range map[string]credentials.TransportCredentials{
		"plaintext": insecure.NewCredentials(), "no certificate": ours.client("", ours), "of others": theirs.client("alice", ours),
		"a path as name": ours.client("a/b", ours),
	} {
		conn := dial(t, addr, creds)
		if err := call(t, conn, put, loops("evil")); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err == nil && name != "a path as name" {
			t.Errorf("%s: health was sent", name)
		}
	}
	if n.config() != "a c" {
		t.Errorf("VPP has %q", n.config())
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"nowhere to listen":          {},
		"no TCP address":             {Unix: "x", TLS: &tls.Config{MinVersion: tls.VersionTLS12}},
		"must be host:port":          {TCP: "9111"},
		"must be a loopback address": {TCP: "0.0.0.0:9111"},
		":9111: without":             {TCP: ":9111"},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	for _, cfg := range []Config{{TCP: "[::1]:9111"}, {TCP: "0.0.0.0:1", Plaintext: true}, {TCP: "0.0.0.0:1", TLS: &tls.Config{MinVersion: tls.VersionTLS12}}} {
		if _, err := New(cfg); err != nil {
			t.Errorf("%s: %v", cfg.TCP, err)
		}
	}
	for _, files := range [][3]string{{"none", "none", "none"}} {
		if _, err := LoadTLS(files[0], files[1], files[2]); err == nil {
			t.Errorf("%v: no error", files)
		}
	}
}
