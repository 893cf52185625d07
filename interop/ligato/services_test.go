package ligato

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gogo "github.com/gogo/protobuf/proto"
	"github.com/ligato/vpp-agent/api/configurator"
	"github.com/ligato/vpp-agent/api/models/linux"
	"github.com/ligato/vpp-agent/api/models/netalloc"
	"github.com/ligato/vpp-agent/api/models/vpp"
	"github.com/ligato/vpp-agent/api/models/vpp/interfaces"
	"github.com/ligato/vpp-agent/api/models/vpp/l3"
	"github.com/ligato/vpp-agent/api/models/vpp/nat"
	"github.com/ligato/vpp-agent/api/models/vpp/srv6"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	extgrpc "github.com/contiv-agent/contiv-agent/plugins/extconfig/grpc"
	"github.com/contiv-agent/contiv-agent/sim"
	vppconn "github.com/contiv-agent/contiv-agent/vpp"
)

// renamed calls a service by the name it has since v3.
func renamed(method string) string {
	return strings.Replace(method, "/configurator.Configurator/", "/ligato.configurator.ConfiguratorService/", 1)
}

// serve runs an agent over an embedded VPP and returns a connection to it on which their generated clients work.
func serve(t *testing.T) *grpc.ClientConn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "grpc.sock")
	server, err := extgrpc.New(extgrpc.Config{Unix: socket})
	if err != nil {
		t.Fatal(err)
	}
	v := sim.New(sim.Config{Seed: 1})
	a, err := agent.New(agent.Config{
		NodeName: "node-1", VPP: vppconn.Config{Dial: v.Dial}, External: []controller.ExternalConfigSource{server}, Services: config.Services{Off: true}, Policies: config.Policies{Off: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		v.Close()
	})
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(ctx, renamed(method), req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream(ctx, desc, cc, renamed(method), opts...)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func loop(name string) *vpp_interfaces.Interface {
	return &vpp_interfaces.Interface{Name: name, Type: vpp_interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, IpAddresses: []string{"10.77.0.1/24"}}
}

// TestConfigurator: their generated client configures an agent of ours and reads it back.
func TestConfigurator(t *testing.T) {
	c := configurator.NewConfiguratorClient(serve(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := &configurator.Config{
		VppConfig: &vpp.ConfigData{
			Interfaces: []*vpp_interfaces.Interface{loop("loop1")},
			Routes:     []*vpp_l3.Route{{Type: vpp_l3.Route_DROP, DstNetwork: "198.51.100.0/24"}},
			Dnat44S: []*vpp_nat.DNat44{{Label: "dns", StMappings: []*vpp_nat.DNat44_StaticMapping{{
				ExternalIp: "203.0.113.1", ExternalPort: 53, Protocol: vpp_nat.DNat44_UDP, LocalIps: []*vpp_nat.DNat44_StaticMapping_LocalIP{{LocalIp: "10.1.1.2", LocalPort: 5353}},
			}}}},
		},
		LinuxConfig: &linux.ConfigData{}, NetallocConfig: &netalloc.ConfigData{},
	}
	if _, err := c.Update(ctx, &configurator.UpdateRequest{Update: want, FullResync: true}); err != nil {
		t.Fatal(err)
	}
	want.NetallocConfig = nil // there is no such thing here
	got, err := c.Get(ctx, &configurator.GetRequest{})
	if err != nil || !gogo.Equal(want, got.Config) {
		t.Errorf("get: %v, %v", got, err)
	}
	// The mapping is not in it: it waits for NAT44, which nobody here turns on.
	dump, err := c.Dump(ctx, &configurator.DumpRequest{})
	if err != nil || !gogo.Equal(want.VppConfig.Interfaces[0], dump.Dump.VppConfig.Interfaces[0]) || len(dump.Dump.VppConfig.Routes) != 1 {
		t.Errorf("dump: %v, %v", dump, err)
	}
	notes, err := c.Notify(ctx, &configurator.NotificationRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := notes.Recv(); err != nil || n.NextIdx != 1 || n.Notification.GetVppNotification().GetInterface().GetState().GetAdminStatus() != vpp_interfaces.InterfaceState_UP {
		t.Errorf("notified: %v, %v", n, err)
	}
	_, err = c.Delete(ctx, &configurator.DeleteRequest{Delete: &configurator.Config{VppConfig: &vpp.ConfigData{Interfaces: []*vpp_interfaces.Interface{{Name: "loop1"}}}}})
	if err != nil {
		t.Error(err)
	}
	if n, err := notes.Recv(); err != nil || n.NextIdx != 2 || n.Notification.GetVppNotification().GetInterface().GetState().GetAdminStatus() != vpp_interfaces.InterfaceState_DELETED {
		t.Errorf("notified: %v, %v", n, err)
	}
	if got, err = c.Get(ctx, &configurator.GetRequest{}); err != nil || len(got.Config.VppConfig.Interfaces) != 0 || len(got.Config.VppConfig.Routes) != 1 {
		t.Errorf("after delete: %v, %v", got, err)
	}
	srv6 := &configurator.Config{VppConfig: &vpp.ConfigData{Srv6Localsids: []*vpp_srv6.LocalSID{{Sid: "a::"}}, Interfaces: []*vpp_interfaces.Interface{loop("loop2")}}}
	if _, err := c.Update(ctx, &configurator.UpdateRequest{Update: srv6}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "field 80 is not known here") {
		t.Errorf("a model there is none of here: %v", err)
	}
	bad := &configurator.Config{VppConfig: &vpp.ConfigData{Routes: []*vpp_l3.Route{{DstNetwork: "198.51.101.0/24", NextHopAddr: "nonsense"}}}}
	if _, err := c.Update(ctx, &configurator.UpdateRequest{Update: bad}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "gw/nonsense (CREATE)") {
		t.Errorf("a bad route: %v", err)
	}
}

// DataRequest is some of Contiv's request, with their messages: as Contiv itself compiled it.
type DataRequest struct {
	Interfaces   []*vpp_interfaces.Interface `protobuf:"bytes,20,rep,name=Interfaces,proto3" json:"Interfaces,omitempty"`
	StaticRoutes []*vpp_l3.Route             `protobuf:"bytes,50,rep,name=StaticRoutes,proto3" json:"StaticRoutes,omitempty"`
	ProxyArp     *vpp_l3.ProxyARP            `protobuf:"bytes,52,opt,name=ProxyArp,proto3" json:"ProxyArp,omitempty"`
	DNATs        []*vpp_nat.DNat44           `protobuf:"bytes,72,rep,name=DNATs,proto3" json:"DNATs,omitempty"`
}

// Reset implements gogo.Message.
func (m *DataRequest) Reset() { *m = DataRequest{} }

// String implements gogo.Message.
func (m *DataRequest) String() string { return gogo.CompactTextString(m) }

// ProtoMessage implements gogo.Message.
func (*DataRequest) ProtoMessage() {}

// PutResponse is Contiv's.
type PutResponse struct{}

// Reset implements gogo.Message.
func (m *PutResponse) Reset() { *m = PutResponse{} }

// String implements gogo.Message.
func (m *PutResponse) String() string { return "" }

// ProtoMessage implements gogo.Message.
func (*PutResponse) ProtoMessage() {}

// TestContivsRequest: a request of Contiv's, made of their messages, arrives.
func TestContivsRequest(t *testing.T) {
	conn := serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req := &DataRequest{
		Interfaces: []*vpp_interfaces.Interface{loop("loop1")}, StaticRoutes: []*vpp_l3.Route{{Type: vpp_l3.Route_DROP, DstNetwork: "198.51.100.0/24"}},
		ProxyArp: &vpp_l3.ProxyARP{Ranges: []*vpp_l3.ProxyARP_Range{{FirstIpAddr: "10.77.0.10", LastIpAddr: "10.77.0.20"}}},
	}
	if err := conn.Invoke(ctx, "/rpc.DataChangeService/Put", req, &PutResponse{}); err != nil {
		t.Fatal(err)
	}
	got, err := configurator.NewConfiguratorClient(conn).Get(ctx, &configurator.GetRequest{})
	if err != nil || !gogo.Equal(got.Config.VppConfig.Interfaces[0], req.Interfaces[0]) || !gogo.Equal(got.Config.VppConfig.Routes[0], req.StaticRoutes[0]) ||
		!gogo.Equal(got.Config.VppConfig.ProxyArp, req.ProxyArp) {
		t.Errorf("%v, %v", got, err)
	}
}
