package grpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/config"
	"github.com/contiv-agent/contiv-agent/proto/contiv/rpc"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/configurator"
	"github.com/contiv-agent/contiv-agent/proto/ligato/generic"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux"
	linuxinterfaces "github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/netalloc"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

const (
	configuratorPath = "/ligato.configurator.ConfiguratorService/"
	managerPath      = "/ligato.generic.ManagerService/"
	metaPath         = "/ligato.generic.MetaService/"
)

// ask calls and answers into a new R.
func ask[T any, R interface {
	*T
	proto.Message
}](t *testing.T, conn *grpc.ClientConn, method string, req proto.Message, opts ...grpc.CallOption,
) (R, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	resp := R(new(T))
	return resp, conn.Invoke(ctx, method, req, resp, opts...)
}

func update(msgs ...proto.Message) *configurator.UpdateRequest {
	return &configurator.UpdateRequest{Update: placed(msgs)}
}

func iface(name string, mtu uint32) *interfaces.Interface {
	return &interfaces.Interface{Name: name, Mtu: mtu}
}

func TestConfigurator(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	mapping, global, tap := &nat.DNat44{Label: "a/b"}, &nat.Nat44Global{Forwarding: true}, &linuxinterfaces.Interface{Name: "l"}
	var header metadata.MD
	req := update(iface("a", 1), mapping, global, tap)
	req.Update.NetallocConfig = &netalloc.ConfigData{} // as ligato's clients do
	if _, err := ask[configurator.UpdateResponse](t, conn, configuratorPath+"Update", req, grpc.Header(&header)); err != nil || len(header.Get(SeqHeader)) != 1 {
		t.Errorf("update: %v, header %v", err, header)
	}
	want := &configurator.Config{
		VppConfig:   &vpp.ConfigData{Interfaces: []*interfaces.Interface{iface("a", 1)}, Dnat44S: []*nat.DNat44{mapping}, Nat44Global: global},
		LinuxConfig: &linux.ConfigData{Interfaces: []*linuxinterfaces.Interface{tap}},
	}
	if err := call(t, conn, put, loops("x"), ClientKey, "other"); err != nil {
		t.Fatal(err)
	}
	got, err := ask[configurator.GetResponse](t, conn, configuratorPath+"Get", &configurator.GetRequest{})
	if diff := cmp.Diff(want, got.GetConfig(), protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("get: %v (-want +got):\n%s", err, diff)
	}
	dump, err := ask[configurator.DumpResponse](t, conn, configuratorPath+"Dump", &configurator.DumpRequest{})
	want.VppConfig.Interfaces = append(want.VppConfig.Interfaces, &interfaces.Interface{Name: "x"})
	if diff := cmp.Diff(want, dump.GetDump(), protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("dump: %v (-want +got):\n%s", err, diff)
	}
	full := update(iface("b", 2))
	full.FullResync = true
	if _, err := ask[configurator.UpdateResponse](t, conn, configuratorPath+"Update", full); err != nil || n.config() != "b x" {
		t.Errorf("full resync: %v, VPP has %q", err, n.config())
	}
	_, err = ask[configurator.DeleteResponse](t, conn, configuratorPath+"Delete", &configurator.DeleteRequest{Delete: update(iface("b", 0), iface("x", 0)).Update})
	if err != nil || n.config() != "x" {
		t.Errorf("delete: %v, VPP has %q", err, n.config())
	}
	_, err = ask[configurator.UpdateResponse](t, conn, configuratorPath+"Update", update(iface("bad", 666)))
	if st := status.Convert(err); st.Code() != codes.FailedPrecondition || !strings.HasPrefix(st.Message(), "KeyErrors: [config/vpp/v2/interfaces/bad (CREATE)") {
		t.Errorf("bad item: %v", err)
	}
}

// Unknown fields are refused at any depth: nothing is dropped silently.
func TestUnknownFieldsAreRefused(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	const field93 = "\xea\x05\x02\x08\x01" // number 93, a message
	odd := func(m proto.Message) proto.Message {
		m.ProtoReflect().SetUnknown([]byte(field93))
		return m
	}
	inVPP, inItem, inConfig, inNetalloc := update(iface("a", 1)), update(odd(iface("a", 1))), update(iface("a", 1)), update(iface("a", 1))
	odd(inVPP.Update.VppConfig)
	odd(inConfig.Update)
	inNetalloc.Update.NetallocConfig = odd(&netalloc.ConfigData{}).(*netalloc.ConfigData)
	deep := loops("a")
	deep.DNATs = []*nat.DNat44{{Label: "x", StMappings: []*nat.DNat44_StaticMapping{odd(&nat.DNat44_StaticMapping{}).(*nat.DNat44_StaticMapping)}}}
	for name, err := range map[string]error{
		"item of Contiv's": call(t, conn, put, deep), "request of Contiv's": call(t, conn, put, odd(loops("a")).(*rpc.DataRequest)),
	} {
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "field 93 is not known") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, req := range map[string]proto.Message{"vpp": inVPP, "item": inItem, "config": inConfig, "netalloc": inNetalloc} {
		_, err := ask[configurator.UpdateResponse](t, conn, configuratorPath+"Update", req)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "field 93 is not known") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n.config() != "" {
		t.Errorf("VPP has %q", n.config())
	}
}

func TestWaitDone(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	req := update(iface("later", 667))
	req.WaitDone = true
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := conn.Invoke(short, configuratorPath+"Update", req, &configurator.UpdateResponse{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("before it is done: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		done <- conn.Invoke(t.Context(), configuratorPath+"Update", req, &configurator.UpdateResponse{})
	}()
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	n.mu.Lock()
	key := kv.InterfaceKey("later")
	delete(n.states, key)
	n.has[key] = iface("later", 667)
	n.mu.Unlock()
	n.in <- &event.Committed{Statuses: []event.ValueStatus{{Key: key, State: event.Configured}}}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("waits on")
	}
}

func item(t *testing.T, msg proto.Message) *generic.Item {
	t.Helper()
	it, err := writeItem(kv.Key(msg), msg)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

func TestManager(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grpc.db")
	n := start(t, Config{TCP: "127.0.0.1:0", File: file})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	route := &contivl3.RejectRoute{DstNetwork: "198.51.100.0/24"}
	noID := item(t, iface("noid", 1))
	noID.Id = nil
	resp, err := ask[generic.SetConfigResponse](t, conn, managerPath+"SetConfig", &generic.SetConfigRequest{Updates: []*generic.UpdateItem{
		{Item: item(t, iface("a", 1)), Labels: map[string]string{"app": "x", "old": ""}},
		{Item: item(t, route), Labels: map[string]string{"app": "y"}},
		{Item: noID},
		{Item: item(t, iface("later", 667))},
		{Item: &generic.Item{Id: id(kv.InterfaceKey("nobody"))}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, r := range resp.GetResults() {
		results = append(results, fmt.Sprintf("%s %s %s %s %s", r.GetId().GetModel(), r.GetKey(), r.GetOp(), r.GetStatus().GetStatus(), r.GetStatus().GetMessage()))
	}
	want := []string{
		"contiv.vpp.reject-route config/contiv/vpp/v1/reject-route/vrf/0/dst/198.51.100.0/24 CREATE CONFIGURED ",
		"vpp.interfaces config/vpp/v2/interfaces/a CREATE CONFIGURED ", "vpp.interfaces config/vpp/v2/interfaces/later CREATE PENDING config/something",
		"vpp.interfaces config/vpp/v2/interfaces/nobody DELETE REMOVED ", "vpp.interfaces config/vpp/v2/interfaces/noid CREATE CONFIGURED ",
	}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	n.stop() // labels outlive the process
	n = start(t, Config{TCP: "127.0.0.1:0", File: file})
	conn = dial(t, n.addr(t, 0), insecure.NewCredentials())
	if err := call(t, conn, put, loops()); err != nil { // now VPP has everything
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		req  *generic.GetConfigRequest
		want string
	}{
		"all":       {&generic.GetConfigRequest{}, "vrf/0/dst/198.51.100.0/24=CONFIGURED a=CONFIGURED later=PENDING noid=CONFIGURED"},
		"label":     {&generic.GetConfigRequest{Labels: map[string]string{"app": "x"}}, "a=CONFIGURED"},
		"any value": {&generic.GetConfigRequest{Labels: map[string]string{"app": ""}}, "vrf/0/dst/198.51.100.0/24=CONFIGURED a=CONFIGURED"},
		"not":       {&generic.GetConfigRequest{Labels: map[string]string{"!app": "x"}}, "vrf/0/dst/198.51.100.0/24=CONFIGURED later=PENDING noid=CONFIGURED"},
		"both":      {&generic.GetConfigRequest{Labels: map[string]string{"app": "", "!old": ""}}, "vrf/0/dst/198.51.100.0/24=CONFIGURED"},
		"id":        {&generic.GetConfigRequest{Ids: []*generic.Item_ID{{Model: "vpp.interfaces", Name: "a"}}}, "a=CONFIGURED"},
		"model":     {&generic.GetConfigRequest{Ids: []*generic.Item_ID{{Model: "vpp.interfaces"}}}, "a=CONFIGURED later=PENDING noid=CONFIGURED"},
	} {
		resp, err := ask[generic.GetConfigResponse](t, conn, managerPath+"GetConfig", c.req)
		var got []string
		for _, i := range resp.GetItems() {
			got = append(got, i.GetItem().GetId().GetName()+"="+i.GetStatus().GetStatus())
			if key, msg, err := readItem(i.GetItem()); err != nil || msg == nil || kv.Check(key, msg) != nil {
				t.Errorf("%s: %v, %v", key, msg, err)
			}
		}
		if text := strings.Join(got, " "); err != nil || text != c.want {
			t.Errorf("%s: %v, %q, want %q", what, err, text, c.want)
		}
	}
	dump, err := ask[generic.DumpStateResponse](t, conn, managerPath+"DumpState", &generic.DumpStateRequest{Ids: []*generic.Item_ID{{Model: "vpp.interfaces"}}})
	if err != nil || len(dump.GetItems()) != 2 || dump.GetItems()[0].GetMetadata()["since"] != "2001-09-09T01:46:40Z" {
		t.Errorf("dump: %v, %v", dump, err)
	}
	for name, req := range map[string]*generic.SetConfigRequest{
		"no item": {Updates: []*generic.UpdateItem{{}}}, "nothing": {Updates: []*generic.UpdateItem{{Item: &generic.Item{}}}},
		"no model":      {Updates: []*generic.UpdateItem{{Item: &generic.Item{Id: &generic.Item_ID{Model: "vpp.srv6.policy", Name: "x"}}}}},
		"no type":       {Updates: []*generic.UpdateItem{{Item: &generic.Item{Data: &generic.Data{Union: &generic.Data_Any{Any: &anypb.Any{TypeUrl: "models.ligato.io/x"}}}}}}},
		"empty":         {Updates: []*generic.UpdateItem{{Item: &generic.Item{Id: id(kv.InterfaceKey("a")), Data: &generic.Data{}}}}},
		"another's key": {Updates: []*generic.UpdateItem{{Item: &generic.Item{Id: id(kv.InterfaceKey("a")), Data: noID.Data}}}},
		"garbage": {Updates: []*generic.UpdateItem{{Item: &generic.Item{Data: &generic.Data{Union: &generic.Data_Any{Any: &anypb.Any{
			TypeUrl: "models.ligato.io/ligato.vpp.interfaces.Interface", Value: []byte("\xff\xff"),
		}}}}}}},
		"put and deleted": {Updates: []*generic.UpdateItem{{Item: noID}, {Item: &generic.Item{Id: id(kv.InterfaceKey("noid"))}}}},
	} {
		if _, err := ask[generic.SetConfigResponse](t, conn, managerPath+"SetConfig", req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ask[generic.GetConfigResponse](t, conn, managerPath+"GetConfig", &generic.GetConfigRequest{
		Ids: []*generic.Item_ID{{}}, Labels: map[string]string{"a": ""},
	}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("by name and by label: %v", err)
	}
	if _, err := ask[generic.SetConfigResponse](t, conn, managerPath+"SetConfig", &generic.SetConfigRequest{OverwriteAll: true}); err != nil || n.config() != "" {
		t.Errorf("overwrite all: %v, VPP has %q", err, n.config())
	}
}

// stream opens a stream that receives every change at once.
func stream(t *testing.T, conn *grpc.ClientConn, method string, both bool, req ...proto.Message) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	st, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: both}, method)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range req {
		if err := st.SendMsg(r); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if err := st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return st
}

func TestSubscribeAndNotify(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	sub := stream(t, conn, managerPath+"Subscribe", false, &generic.SubscribeRequest{Subscriptions: []*generic.Subscription{{Id: &generic.Item_ID{Model: "vpp.interfaces"}}}})
	if _, err := sub.Header(); err != nil {
		t.Fatal(err)
	}
	up := iface("a", 1)
	up.Enabled = true
	for _, step := range []*configurator.UpdateRequest{
		update(up, &nat.DNat44{Label: "not this"}), {}, update(iface("a", 2)), update(iface("later", 667)), {Update: update(iface("a", 3)).Update, FullResync: true},
	} {
		if _, err := ask[configurator.UpdateResponse](t, conn, configuratorPath+"Update", step); err != nil {
			t.Fatal(err)
		}
		n.in <- &event.Committed{Statuses: []event.ValueStatus{{Key: kv.InterfaceKey("a"), State: event.Configured}}} // no change
	}
	var got []string
	for len(got) < 5 {
		resp := &generic.SubscribeResponse{}
		if err := sub.RecvMsg(resp); err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		for _, n := range resp.GetNotifications() {
			got = append(got, n.GetItem().GetId().GetName()+" "+n.GetStatus().GetStatus())
		}
	}
	if want := []string{"a CONFIGURED", "a CONFIGURED", "later PENDING", "a CONFIGURED", "later REMOVED"}; !sameSet(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
	down := &configurator.Notification{Notification: &configurator.Notification_VppNotification{VppNotification: &vpp.Notification{
		Interface: &interfaces.InterfaceNotification{State: &interfaces.InterfaceState{AdminStatus: interfaces.InterfaceState_DOWN}},
	}}}
	for what, c := range map[string]struct {
		req  *configurator.NotifyRequest
		want []string
	}{
		"all":    {&configurator.NotifyRequest{}, []string{"1 a UP", "2 a DOWN"}},
		"from 1": {&configurator.NotifyRequest{Idx: 1}, []string{"2 a DOWN"}},
		"filter": {&configurator.NotifyRequest{Filters: []*configurator.Notification{down}}, []string{"2 a DOWN"}},
	} {
		notes := stream(t, conn, configuratorPath+"Notify", false, c.req)
		for _, want := range c.want {
			resp := &configurator.NotifyResponse{}
			if err := notes.RecvMsg(resp); err != nil {
				t.Fatal(err)
			}
			state := resp.GetNotification().GetVppNotification().GetInterface().GetState()
			if got := fmt.Sprint(resp.GetNextIdx(), " ", state.GetName(), " ", state.GetAdminStatus()); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
	}
}

func sameSet(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// A slow reader learns that notifications are missing, and the server stores a bounded number for it.
func TestFeedIsBounded(t *testing.T) {
	var f feed[int]
	for i := range feedLength + 10 {
		f.addEntries(i)
	}
	got, first, err := f.readEntries(t.Context(), 3)
	if err != nil || first != 10 || len(got) != feedLength || got[0] != 10 || f.nextNumber() != feedLength+10 {
		t.Errorf("%d from %d on, %v", len(got), first, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := f.readEntries(ctx, f.nextNumber()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestModels: with only the server's description of the models, a client gives every value its right name.
func TestModels(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	resp, err := ask[generic.KnownModelsResponse](t, conn, metaPath+"KnownModels", &generic.KnownModelsRequest{Class: "config"})
	if err != nil || len(resp.GetKnownModels()) != len(kv.Models()) {
		t.Fatalf("%d models, %v", len(resp.GetKnownModels()), err)
	}
	if none, err := ask[generic.KnownModelsResponse](t, conn, metaPath+"KnownModels", &generic.KnownModelsRequest{Class: "metrics"}); err != nil || len(none.GetKnownModels()) != 0 {
		t.Errorf("metrics: %v, %v", none, err)
	}
	for _, m := range resp.GetKnownModels() {
		spec := m.GetSpec()
		prefix := fmt.Sprintf("%s/%s/%s/%s", spec.GetClass(), strings.ReplaceAll(spec.GetModule(), ".", "/"), spec.GetVersion(), spec.GetType())
		options := map[string]string{}
		for _, o := range m.GetOptions() {
			options[o.GetKey()] = o.GetValues()[0]
		}
		file, err := ask[generic.ProtoFileDescriptorResponse](t, conn, metaPath+"ProtoFileDescriptor", &generic.ProtoFileDescriptorRequest{FullProtoFileName: options["protoFile"]})
		if err != nil {
			t.Fatal(err)
		}
		set := file.GetFileImportDescriptors()
		set.File = append(set.File, file.GetFileDescriptor())
		files, err := protodesc.NewFiles(set)
		if err != nil {
			t.Fatalf("%s: %v", m.GetProtoName(), err)
		}
		if _, err := files.FindDescriptorByName(protoreflect.FullName(m.GetProtoName())); err != nil {
			t.Errorf("%s: %v", m.GetProtoName(), err)
		}
		model, err := model(m.GetProtoName(), modelProto)
		if err != nil {
			t.Fatal(err)
		}
		msg := filled(model.New())
		name := named(t, options["nameTemplate"], msg)
		if got, want := filepath.Clean(prefix+"/"+name), kv.Key(msg); got != want {
			t.Errorf("%s: named %q, has %q", model.Name, got, want)
		}
	}
	if _, err := ask[generic.ProtoFileDescriptorResponse](t, conn, metaPath+"ProtoFileDescriptor", &generic.ProtoFileDescriptorRequest{FullProtoFileName: "rpc.proto"}); status.Code(err) != codes.NotFound {
		t.Errorf("a file of no model: %v", err)
	}
}

// filled returns a message with a word in each text, a network where one belongs, and a number in each number.
func filled(msg proto.Message) proto.Message {
	m := msg.ProtoReflect()
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if f.Name() == "vip" {
			m.Set(f, protoreflect.ValueOfMessage(filled(m.NewField(f).Message().Interface()).ProtoReflect()))
		}
		if f.IsList() || f.IsMap() || f.Message() != nil || f.ContainingOneof() != nil {
			continue
		}
		switch {
		case f.Kind().String() == "string" && strings.Contains(string(f.Name()), "network"):
			m.Set(f, protoreflect.ValueOfString("10.1.2.0/24"))
		case f.Kind().String() == "string" && strings.Contains(string(f.Name()), "address"):
			m.Set(f, protoreflect.ValueOfString("10.0.0.1"))
		case f.Kind().String() == "string":
			m.Set(f, protoreflect.ValueOfString("w"+string(f.Name())))
		case f.Kind().String() == "uint32":
			m.Set(f, protoreflect.ValueOfUint32(uint32(i+2)))
		}
	}
	return msg
}

// named executes a template with ligato's functions.
func named(t *testing.T, text string, msg proto.Message) string {
	t.Helper()
	type network struct {
		IP       string
		MaskSize int
	}
	tmpl, err := template.New("").Funcs(template.FuncMap{
		"ipnet": func(s string) *network {
			_, n, err := net.ParseCIDR(s)
			if err != nil {
				return nil
			}
			ones, _ := n.Mask.Size()
			return &network{n.IP.String(), ones}
		},
		"protoip": func(string) string { return "IPv4" },
	}).Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, msg); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestApplyStream(t *testing.T) {
	const many = 20_000
	n := start(t, Config{TCP: "127.0.0.1:0"})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	var portions []proto.Message
	for i := range many {
		if i%1000 == 0 {
			portions = append(portions, &config.ApplyRequest{})
		}
		p := portions[len(portions)-1].(*config.ApplyRequest)
		p.Items = append(p.Items, &config.Item{Item: item(t, &nat.DNat44{Label: fmt.Sprint("s", i)})})
	}
	portions = append(portions, &config.ApplyRequest{Items: []*config.Item{{Item: item(t, iface("later", 667))}}})
	statuses, err := received(stream(t, conn, "/contiv.config.ConfigService/Apply", true, portions...))
	if err != nil || len(n.has) != many || !slices.Equal(statuses, []string{"config/vpp/v2/interfaces/later PENDING CREATE "}) {
		t.Errorf("%v, VPP has %d values, got %q", err, len(n.has), statuses)
	}
	all := &config.ApplyRequest{Operation: config.Operation_RESYNC, AllOrNothing: true}
	for i := range 150 {
		all.Items = append(all.Items, &config.Item{Item: item(t, iface(fmt.Sprintf("bad%03d", i), 666))})
	}
	statuses, err = received(stream(t, conn, "/contiv.config.ConfigService/Apply", true, all))
	if status.Code(err) != codes.FailedPrecondition || len(n.has) != many || len(statuses) != 150 || statuses[149] != "config/vpp/v2/interfaces/bad149 RETRYING CREATE no memory" {
		t.Errorf("all or nothing: %v, VPP has %d values, got %d", err, len(n.has), len(statuses))
	}
	for name, wrong := range map[string][]proto.Message{
		"operation":      {&config.ApplyRequest{Operation: 7}},
		"another":        {&config.ApplyRequest{}, &config.ApplyRequest{Operation: config.Operation_RESYNC}},
		"merge":          {&config.ApplyRequest{Items: []*config.Item{{Item: item(t, iface("a", 1)), Merge: "unset"}}}},
		"merge by field": {&config.ApplyRequest{Items: []*config.Item{{Item: item(t, iface("a", 1)), Merge: "replace=colour"}}}},
		"no item":        {&config.ApplyRequest{Items: []*config.Item{{}}}},
	} {
		if _, err := received(stream(t, conn, "/contiv.config.ConfigService/Apply", true, wrong...)); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	del := &config.ApplyRequest{Operation: config.Operation_DELETE}
	for i := range many {
		del.Items = append(del.Items, &config.Item{Item: &generic.Item{Id: id(kv.DNat44Key(fmt.Sprint("s", i)))}})
	}
	if _, err = received(stream(t, conn, "/contiv.config.ConfigService/Apply", true, del)); err != nil || len(n.has) != 0 {
		t.Errorf("delete: %v, VPP has %d values", err, len(n.has))
	}
	if n.server.under.Load() != 0 {
		t.Errorf("%d bytes are still counted", n.server.under.Load())
	}
	n.server.under.Store(MaxStream)
	if _, err = received(stream(t, conn, "/contiv.config.ConfigService/Apply", true, del)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("too much at once: %v", err)
	}
}

// received returns all messages of a stream, and its error.
func received(st grpc.ClientStream) (out []string, err error) {
	for {
		resp := &config.ApplyResponse{}
		if err := st.RecvMsg(resp); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, err
		}
		for _, s := range resp.GetStatuses() {
			out = append(out, fmt.Sprint(s.GetKey(), " ", s.GetState(), " ", s.GetLastOperation(), " ", s.GetError()))
		}
	}
}

// The values of two clients for one item are merged; with the option, the client whose name sorts later decides.
func TestMergeOption(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	key := kv.InterfaceKey("a")
	req := loops("a")
	req.Interfaces[0].IpAddresses, req.Interfaces[0].Mtu = []string{"10.0.0.1/24"}, 1500
	if err := call(t, conn, put, req, ClientKey, "1"); err != nil {
		t.Fatal(err)
	}
	req.Interfaces[0].Mtu = 0
	for _, step := range []struct {
		merges []string
		code   codes.Code
		want   string
	}{
		{nil, codes.OK, "[10.0.0.1/24 10.0.0.1/24] 1500"},
		{[]string{"once"}, codes.OK, "[10.0.0.1/24] 1500"},
		{[]string{"once replace=mtu"}, codes.OK, "[10.0.0.1/24] 0"},
		{[]string{"once", key + " replace=mtu,ip_addresses"}, codes.OK, "[10.0.0.1/24] 0"},
		{[]string{`"config/vpp/v2/interfaces/a" once`}, codes.OK, "[10.0.0.1/24] 1500"},
		{[]string{"replace"}, codes.OK, "[10.0.0.1/24] 0"},
		{[]string{"twice"}, codes.InvalidArgument, "[10.0.0.1/24] 0"},
		{[]string{"replace=address"}, codes.InvalidArgument, "[10.0.0.1/24] 0"},
		{[]string{"config/vpp/v2/interfaces/b once"}, codes.InvalidArgument, "[10.0.0.1/24] 0"},
		{[]string{`"config`}, codes.InvalidArgument, "[10.0.0.1/24] 0"},
		{nil, codes.OK, "[10.0.0.1/24 10.0.0.1/24] 1500"},
	} {
		md := []string{ClientKey, "2"}
		for _, m := range step.merges {
			md = append(md, MergeKey, m)
		}
		err := call(t, conn, put, req, md...)
		has := n.has[key].(*interfaces.Interface)
		if got := fmt.Sprint(has.GetIpAddresses(), " ", has.GetMtu()); status.Code(err) != step.code || got != step.want {
			t.Errorf("%q: %v, VPP has %s, want %s", step.merges, err, got, step.want)
		}
	}
}
