package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	extgrpc "github.com/contiv-agent/contiv-agent/plugins/extconfig/grpc"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/punt"
)

// node is an agent's server over a simulated VPP that refuses interfaces of MTU 666, and delays those of MTU 667.
type node struct {
	mu  sync.Mutex
	has map[string]proto.Message
}

// serveNode runs a node and returns a client of it.
func serveNode(t *testing.T, dir string) (*node, *Client) {
	t.Helper()
	n, c, end, err := runNode(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return n, c
}

// exampleNode returns a client of a new node; end stops both.
func exampleNode() (c *Client, end func()) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	_, c, stop, err := runNode(dir)
	if err != nil {
		panic(err)
	}
	return c, func() { stop(); _ = os.RemoveAll(dir) }
}

func runNode(dir string) (*node, *Client, func(), error) {
	server, err := extgrpc.New(extgrpc.Config{Unix: filepath.Join(dir, "grpc.sock")})
	if err != nil {
		return nil, nil, nil, err
	}
	n := &node{has: map[string]proto.Message{}}
	server.Show(n.values)
	in, out := make(chan event.Event, 64), make(chan *event.Txn, 1)
	c := controller.New(controller.Config{Sources: []string{extgrpc.Name}}, controller.NewValues())
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = c.Run(ctx, in, out) })
	all.Go(func() { _ = server.Run(ctx, func(ev event.Event) { in <- ev }) })
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
	in <- &event.VPPStatus{Connected: true}
	addrs, err := server.Addrs(ctx)
	if err != nil {
		cancel()
		return nil, nil, nil, err
	}
	client, err := New(Config{Addr: "unix:" + addrs[0].String()})
	return n, client, func() { cancel(); all.Wait(); _ = client.Close() }, err
}

func connect(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (n *node) commit(txn *event.Txn) *event.Committed {
	n.mu.Lock()
	defer n.mu.Unlock()
	done := &event.Committed{Seq: txn.Seq}
	for key, msg := range txn.Values {
		st := event.ValueStatus{Key: key, State: event.Configured}
		delete(n.has, key)
		i, _ := msg.(*interfaces.Interface)
		switch {
		case i.GetMtu() == 666:
			st.State, st.Err = event.Retrying, "no memory"
		case i.GetMtu() == 667:
			st.State = event.Pending
		case msg != nil:
			n.has[key] = msg
		}
		done.Statuses = append(done.Statuses, st)
	}
	return done
}

func (n *node) values() (out []event.Value) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(n.has)) {
		out = append(out, event.Value{ValueStatus: event.ValueStatus{Key: key, State: event.Configured}, Message: n.has[key]})
	}
	return out
}

func (n *node) keys() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.has))
}

// config returns the last value of each key.
func (n *node) config() string {
	var out []string
	for _, key := range n.keys() {
		out = append(out, key[strings.LastIndexByte(key, '/')+1:])
	}
	return strings.Join(out, " ")
}

func loop(name string) *interfaces.Interface { return &interfaces.Interface{Name: name} }

// filled sets each string field to a text.
func filled(m proto.Message) proto.Message {
	for i := range m.ProtoReflect().Descriptor().Fields().Len() {
		f := m.ProtoReflect().Descriptor().Fields().Get(i)
		if f.Kind() == protoreflect.StringKind && !f.IsList() && f.ContainingOneof() == nil {
			m.ProtoReflect().Set(f, protoreflect.ValueOfString("w"))
		}
	}
	if r, ok := m.(interface{ GetDstNetwork() string }); ok && r.GetDstNetwork() != "" {
		m.ProtoReflect().Set(m.ProtoReflect().Descriptor().Fields().ByName("dst_network"), protoreflect.ValueOfString("10.0.0.0/8"))
	}
	return m
}

// Every field of Contiv's API has a method to put and one to delete, and put items arrive.
func TestEveryField(t *testing.T) {
	n, c := serveNode(t, t.TempDir())
	put := c.DataChange().Put()
	var want []string
	typ := reflect.TypeFor[*Put]()
	message := reflect.TypeFor[proto.Message]()
	for i := range typ.NumMethod() {
		m := typ.Method(i)
		if m.Type.NumIn() != 2 || !m.Type.In(1).Implements(message) || m.Type.In(1) == message {
			continue
		}
		msg := filled(reflect.New(m.Type.In(1).Elem()).Interface().(proto.Message))
		m.Func.Call([]reflect.Value{reflect.ValueOf(put), reflect.ValueOf(msg)})
		want = append(want, kv.Key(msg))
	}
	slices.Sort(want)
	if data, method := put.request(); data == nil || method != "/rpc.DataChangeService/Put" {
		t.Errorf("goes by %q", method)
	}
	if err := put.Send(t.Context()); err != nil || len(want) != 25 || !slices.Equal(n.keys(), want) {
		t.Fatalf("%v, %d fields (-want +VPP):\n%s", err, len(want), cmp.Diff(want, n.keys()))
	}
	del := c.DataChange().Delete().ACL("w").ABF(0).Interface("w").Span("w", "w").RuleChain("w").VrfTable(0, l3.VrfTable_IPV4).Nat44Interface("w").
		Nat44AddressPool(&nat.Nat44AddressPool{Name: "w"}).BridgeDomain("w").FIB("w", "w").XConnect("w").
		StaticRoute(filled(&l3.Route{}).(*l3.Route)).ARP("w", "w").ProxyARP().IPScanNeighbor().SPD(0).SA(0).
		IPRedirect(punt.L3Protocol_UNDEFINED_L3, "w").PuntToHost(punt.L3Protocol_UNDEFINED_L3, punt.L4Protocol_UNDEFINED_L4, 0).PuntException("w").
		Nat44Global().DNat44("w").LinuxInterface("w").LinuxARP("w", "w").LinuxRoute("10.0.0.0/8", "w")
	if data, method := del.request(); data == nil || method != "/rpc.DataChangeService/Del" {
		t.Errorf("goes by %q", method)
	}
	if err := del.Send(t.Context()); err != nil || len(n.keys()) != 0 {
		t.Errorf("%v, left in VPP: %q", err, n.keys())
	}
}

func TestChanges(t *testing.T) {
	dir := t.TempDir()
	n, c := serveNode(t, dir)
	other := connect(t, Config{Addr: "unix:" + filepath.Join(dir, "grpc.sock"), Name: "other"})
	route := &contivl3.RejectRoute{DstNetwork: "10.0.0.0/8"}
	for i, step := range []struct {
		change interface{ Send(context.Context) error }
		want   string
	}{
		{c.DataChange().Put().Interface(loop("a")).Interface(loop("b")), "a b"},
		{c.DataChange().Delete().Interface("a").Put().Interface(loop("c")), "b c"},
		{other.DataChange().Put().Interface(loop("x")), "b c x"},
		{c.DataResync().Interface(loop("d")), "d x"},
		{c.DataResync().Item(route), "8 x"},
		{c.DataChange().Delete().Key(kv.Key(route)), "x"},
		{c.DataChange().Put().Interface(loop("e")).Labels(map[string]string{"k": "v"}).Interface(loop("f")), "e f x"},
		{c.DataChange().Delete().Item(loop("f")), "e x"},
		{c.DataChange(), "e x"},
	} {
		if err := step.change.Send(t.Context()); err != nil || n.config() != step.want {
			t.Errorf("step %d: %v, VPP has %q, want %q", i, err, n.config(), step.want)
		}
	}
	items, err := c.Config(t.Context(), Filter{Labels: map[string]string{"k": "v"}})
	want := []Item{{Key: kv.InterfaceKey("e"), Message: loop("e"), State: event.Configured, Labels: map[string]string{"k": "v"}}}
	if diff := cmp.Diff(want, items, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("config: %v (-want +got):\n%s", err, diff)
	}
	for what, f := range map[string]Filter{"all": {}, "model": {Keys: []string{"vpp.interfaces"}}, "keys": {Keys: []string{kv.InterfaceKey("e"), kv.InterfaceKey("x")}}} {
		if items, err = c.State(t.Context(), f); err != nil || len(items) != 2 || items[1].Key != kv.InterfaceKey("x") {
			t.Errorf("state, %s: %v, %v", what, items, err)
		}
	}
	if _, err = c.State(t.Context(), Filter{Keys: []string{"nothing"}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no such model: %v", err)
	}
}

func TestErrors(t *testing.T) {
	n, c := serveNode(t, t.TempDir())
	bad := loop("bad")
	bad.Mtu = 666
	want := []ItemError{{Key: kv.InterfaceKey("bad"), Op: "CREATE", State: event.Retrying, Err: "no memory"}}
	for what, change := range map[string]*Put{
		"one message": c.DataChange().AllOrNothing().Put().Interface(bad).Interface(loop("good")),
		"a stream":    c.DataChange().AllOrNothing().Put().Interface(bad).Item(&contivl3.RejectRoute{DstNetwork: "10.0.0.0/8"}),
	} {
		err := change.Send(t.Context())
		var failed *Error
		if !errors.As(err, &failed) || !errors.Is(err, ErrFailed) || !strings.HasPrefix(err.Error(), "KeyErrors: [") || status.Code(err).String() != "FailedPrecondition" {
			t.Fatalf("%s: %v", what, err)
		}
		if diff := cmp.Diff(want, failed.Items); diff != "" || n.config() != "" {
			t.Errorf("%s: VPP has %q (-want +got):\n%s", what, n.config(), diff)
		}
		if text := failed.Items[0].String(); text != "config/vpp/v2/interfaces/bad (create): RETRYING: no memory" {
			t.Error(text)
		}
	}
	many := c.DataResync().Interface(loop("good")).Labels(map[string]string{"by": "stream"}).AllOrNothing().Put()
	for i := range 150 {
		bad := loop(fmt.Sprint("bad", i))
		bad.Mtu = 666
		many.Interface(bad)
	}
	var failed *Error
	if err := many.Send(t.Context()); !errors.As(err, &failed) || len(failed.Items) != 150 {
		t.Errorf("150 bad items: %.200v", err)
	}
	later := loop("later")
	later.Mtu = 667
	for what, change := range map[string]*Put{"one message": c.DataChange().Put().Interface(later), "a stream": c.DataResync().Interface(later).Merge(event.Merge{Once: true})} {
		if err := change.Send(t.Context()); err != nil || !slices.Equal(change.Pending(), []string{kv.InterfaceKey("later")}) || change.Unimplemented() != nil {
			t.Errorf("%s: %v, waits %q", what, err, change.Pending())
		}
	}
	odd := loop("ü\n\"1")
	odd.Mtu = 667
	change := c.DataChange().Put().Interface(odd)
	if err := change.Send(t.Context()); err != nil || !slices.Equal(change.Pending(), []string{kv.Key(odd)}) {
		t.Errorf("a key that is not plain: %v, waits %q", err, change.Pending())
	}
	for want, change := range map[string]interface{ Send(context.Context) error }{
		"is nil":                c.DataChange().Put().Interface(nil),
		"no model":              c.DataChange().Put().Interface(loop("")),
		"no item was put":       c.DataChange().Put().Merge(event.Merge{Once: true}),
		"labels: no item":       c.DataChange().Put().Labels(nil),
		"must not delete items": c.DataResync().Delete().Interface("a"),
		"twice in one request":  c.DataChange().Put().Interface(loop("a")).Interface(loop("a")),
		"no field":              c.DataChange().Put().Interface(loop("a")).Merge(event.Merge{Replace: []string{"colour"}}),
		`"nothing": no model`:   c.DataChange().Delete().Key("nothing"),
	} {
		if err := change.Send(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.DataChange().Put().Interface(loop("a")).Send(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	nobody := connect(t, Config{Addr: "unix:" + filepath.Join(t.TempDir(), "none")})
	if err := nobody.DataChange().Put().Interface(loop("a")).Send(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("nobody there: %v", err)
	}
	for _, cfg := range []Config{{}, {Addr: "x", Name: "a/b"}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}

// Thousands of sets of mappings are sent in portions, as one transaction.
func TestLargeChange(t *testing.T) {
	const many = 6_000
	n, c := serveNode(t, t.TempDir())
	put := c.DataChange().Put()
	for i := range many {
		m := &nat.DNat44_StaticMapping{ExternalIp: "10.96.0.1", ExternalPort: 80}
		for b := range 10 {
			m.LocalIps = append(m.LocalIps, &nat.DNat44_StaticMapping_LocalIP{LocalIp: fmt.Sprintf("10.1.%d.%d", i%250, b), LocalPort: 8080})
		}
		put.DNat44(&nat.DNat44{Label: fmt.Sprint("s", i), StMappings: []*nat.DNat44_StaticMapping{m}})
	}
	if data, _ := put.request(); data != nil {
		t.Error("it would go as one message")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := put.Send(ctx); err != nil || len(n.keys()) != many {
		t.Errorf("%v, VPP has %d", err, len(n.keys()))
	}
	if items, err := c.Config(ctx, Filter{}); err != nil || len(items) != many {
		t.Errorf("%d items come back, %v", len(items), err)
	}
}

// The metadata names equal the server's.
func TestMetadata(t *testing.T) {
	if clientKey != extgrpc.ClientKey || revertKey != extgrpc.RevertKey || pendingKey != extgrpc.PendingKey || unimplementedKey != extgrpc.UnimplementedKey {
		t.Error("they differ")
	}
}
