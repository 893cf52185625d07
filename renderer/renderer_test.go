package renderer

import (
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/model"
)

func TestIPAddressesAreASet(t *testing.T) {
	var set IPAddresses
	set.Add(net.ParseIP("10.96.0.10"))     // 16 bytes
	set.Add(net.IPv4(10, 96, 0, 10).To4()) // the same in 4 bytes
	set.Add(net.ParseIP("fd00::1"))        //
	set.Add(net.ParseIP("9.0.0.1"))        //
	set.Add(nil)                           // not addresses
	set.Add(net.IP{1, 2, 3})               //
	if got, want := set.String(), "[9.0.0.1 10.96.0.10 fd00::1]"; got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
	if !set.Has(net.IPv4(10, 96, 0, 10).To4()) || !set.Has(net.ParseIP("10.96.0.10")) {
		t.Error("one of the two forms of 10.96.0.10 is missing")
	}
	if set.Has(nil) || set.Has(net.ParseIP("9.0.0.2")) {
		t.Error("has what was never added")
	}
	dup := set.Copy()
	dup.Del(net.ParseIP("9.0.0.1"))
	dup.Del(net.ParseIP("9.0.0.1"))
	if set.Len() != 3 || dup.Len() != 2 {
		t.Errorf("after Del on a copy: original has %d, copy %d, want 3 and 2", set.Len(), dup.Len())
	}
	list := set.List()
	list[0][0] = 1
	if !set.Has(net.ParseIP("9.0.0.1")) {
		t.Error("List shares memory with the set")
	}
}

func TestNilIPAddressesReadAsEmpty(t *testing.T) {
	var none *IPAddresses
	none.Del(net.ParseIP("9.0.0.1"))
	if none.Has(net.ParseIP("9.0.0.1")) || none.Len() != 0 || len(none.List()) != 0 || none.Copy().Len() != 0 {
		t.Error("nil set is not empty")
	}
	if !none.Equal(NewIPAddresses()) {
		t.Error("nil and empty differ")
	}
}

func TestIPAddressesOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 4, 4)).Draw(t, "addresses")
		ips := make([]net.IP, len(raw))
		for i := range raw {
			ips[i] = raw[i]
		}
		one := NewIPAddresses(ips...)
		two := NewIPAddresses()
		for _, ip := range rapid.Permutation(ips).Draw(t, "order") {
			two.Add(ip.To16())
		}
		if !one.Equal(two) || one.String() != two.String() {
			t.Fatalf("%s != %s", one, two)
		}
		for _, ip := range ips {
			two.Del(ip)
		}
		if two.Len() != 0 {
			t.Fatalf("left after deleting all: %s", two)
		}
	})
}

func TestInterfacesAreASet(t *testing.T) {
	ifs := NewInterfaces("tap1", "tap0", "tap1")
	dup := ifs.Copy()
	dup.Del("tap0")
	dup.Del("tap0")
	if got := ifs.String(); got != "[tap0 tap1]" {
		t.Errorf("String() = %s", got)
	}
	if !ifs.Has("tap0") || dup.Has("tap0") || Interfaces(nil).Has("tap0") {
		t.Error("membership is wrong")
	}
}

// Other programs write the types with unkeyed literals.
func TestSeedLiteralsCompile(t *testing.T) {
	b := ServiceBackend{net.ParseIP("10.1.1.2"), 8080, true, false}
	p := ServicePort{SCTP, 80, 30080}
	if got := b.String(); got != "10.1.1.2:8080 local" {
		t.Errorf("backend = %s", got)
	}
	if got := p.String(); got != "SCTP 80 node-port 30080" {
		t.Errorf("port = %s", got)
	}
	if TCP != 6 || UDP != 17 || SCTP != 132 || ClusterWide != 0 || NodeLocal != 1 {
		t.Error("a constant has another value than the API documents")
	}
}

func full() *ContivService {
	svc := NewContivService()
	svc.ID = model.ServiceID{Name: "web", Namespace: "default"}
	svc.ClusterIPs.Add(net.ParseIP("10.96.0.10"))
	svc.Ports["http"] = &ServicePort{Protocol: TCP, Port: 80, NodePort: 30080}
	svc.Backends["http"] = []*ServiceBackend{{IP: net.ParseIP("10.1.1.2"), Port: 8080, Local: true}, {IP: net.ParseIP("10.1.2.2"), Port: 8080}}
	return svc
}

func TestContivServiceEqualSeesEveryField(t *testing.T) {
	change := map[string]func(*ContivService){
		"ID":              func(s *ContivService) { s.ID.Name = "x" },
		"policy":          func(s *ContivService) { s.TrafficPolicy = NodeLocal },
		"internal policy": func(s *ContivService) { s.InternalTrafficPolicy = NodeLocal },
		"affinity":        func(s *ContivService) { s.SessionAffinityTimeout = 1 },
		"cluster IPs":     func(s *ContivService) { s.ClusterIPs.Add(net.ParseIP("10.96.0.11")) },
		"external IPs":    func(s *ContivService) { s.ExternalIPs.Add(net.ParseIP("192.0.2.9")) },
		"LB IPs":          func(s *ContivService) { s.LoadBalancerIPs = NewIPAddresses(net.ParseIP("192.0.2.9")) },
		"ranges": func(s *ContivService) {
			s.LoadBalancerSourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		},
		"node port":       func(s *ContivService) { s.Ports["http"].NodePort = 0 },
		"renderer":        func(s *ContivService) { s.Renderer = "cnat" },
		"more ports":      func(s *ContivService) { s.Ports["x"] = &ServicePort{} },
		"backend port":    func(s *ContivService) { s.Backends["http"][0].Port = 1 },
		"backend local":   func(s *ContivService) { s.Backends["http"][0].Local = false },
		"backend host":    func(s *ContivService) { s.Backends["http"][0].HostNetwork = true },
		"backend address": func(s *ContivService) { s.Backends["http"][0].IP = net.ParseIP("10.1.1.3") },
		"local backends":  func(s *ContivService) { s.Other.Local = map[string][]*ServiceBackend{} },
		"conflicts":       func(s *ContivService) { s.Conflicts = map[Frontend]model.ServiceID{{Port: 1}: {}} },
	}
	if !full().Equal(full()) {
		t.Fatal("two services made alike differ")
	}
	for name, f := range change {
		t.Run(name, func(t *testing.T) {
			s := full()
			f(s)
			if s.Equal(full()) || full().Equal(s) {
				t.Error("the difference is not seen")
			}
		})
	}
}

func TestLocalAndConflicts(t *testing.T) {
	svc := full()
	if got := svc.Local("http"); len(got) != 1 || !got[0].Local {
		t.Errorf("derived local set = %v", got)
	}
	svc.Other.Local = map[string][]*ServiceBackend{}
	if got := svc.Local("http"); len(got) != 0 {
		t.Errorf("given local set is not used: %v", got)
	}
	other := model.ServiceID{Name: "api", Namespace: "default"}
	svc.Conflicts = map[Frontend]model.ServiceID{{Port: 30080, Protocol: TCP}: other}
	at := Frontend{IP: netip.MustParseAddr("192.168.16.1"), Port: 30080, Protocol: TCP}
	if id, taken := svc.ConflictWith(at, true); !taken || id != other {
		t.Errorf("node port conflict not found: %v %v", id, taken)
	}
	if _, taken := svc.ConflictWith(at, false); taken {
		t.Error("a node port conflict holds for an address that is no node's")
	}
	if !svc.HasNodePort() {
		t.Error("HasNodePort is false")
	}
}

// The methods have the receivers that the API documents: on values if a value must suffice.
var (
	_ func(ContivService) bool        = ContivService.HasNodePort
	_ func(ContivService) string      = ContivService.String
	_ func(*IPAddresses, net.IP)      = (*IPAddresses).Add
	_ func(*IPAddresses, net.IP)      = (*IPAddresses).Del
	_ func(*IPAddresses, net.IP) bool = (*IPAddresses).Has
	_ func(*IPAddresses) []net.IP     = (*IPAddresses).List
	_ func(*IPAddresses) *IPAddresses = (*IPAddresses).Copy
	_ func(IPAddresses) string        = IPAddresses.String
	_ func(Interfaces, string)        = Interfaces.Add
	_ func(Interfaces, string)        = Interfaces.Del
	_ func(Interfaces, string) bool   = Interfaces.Has
	_ func(Interfaces) Interfaces     = Interfaces.Copy
	_ func(Interfaces) string         = Interfaces.String
	_ func(ProtocolType) string       = ProtocolType.String
	_ func(ResyncEventData) string    = ResyncEventData.String
	_ func(ServiceBackend) string     = ServiceBackend.String
	_ func(ServicePort) string        = ServicePort.String
	_ func(TrafficPolicyType) string  = TrafficPolicyType.String
	_ func() *ContivService           = NewContivService
	_ func() *ResyncEventData         = NewResyncEventData
	_ func(...net.IP) *IPAddresses    = NewIPAddresses
	_ func(...string) Interfaces      = NewInterfaces
	_ map[string]struct{}             = Interfaces(nil)
	_ int                             = int(TCP) + int(NodeLocal)
)

func TestSevenMethodsAndSeedFields(t *testing.T) {
	if n := reflect.TypeFor[ServiceRendererAPI]().NumMethod(); n != 7 {
		t.Errorf("ServiceRendererAPI has %d methods", n)
	}
	fields := func(v any) string {
		out := ""
		for i := range reflect.TypeOf(v).NumField() {
			f := reflect.TypeOf(v).Field(i)
			out += f.Name + " " + f.Type.String() + "; "
		}
		return out
	}
	for _, tc := range []struct {
		got, want string
	}{
		{fields(ServicePort{}), "Protocol renderer.ProtocolType; Port uint16; NodePort uint16; "},
		{fields(ServiceBackend{}), "IP net.IP; Port uint16; Local bool; HostNetwork bool; "},
		{fields(ResyncEventData{}), "NodeIPs *renderer.IPAddresses; Services []*renderer.ContivService; FrontendIfs renderer.Interfaces; BackendIfs renderer.Interfaces; "},
	} {
		if tc.got != tc.want {
			t.Errorf("fields %s\nwant   %s", tc.got, tc.want)
		}
	}
	first := "ID model.ServiceID; TrafficPolicy renderer.TrafficPolicyType; SessionAffinityTimeout uint32; ClusterIPs *renderer.IPAddresses; " +
		"ExternalIPs *renderer.IPAddresses; Ports map[string]*renderer.ServicePort; Backends map[string][]*renderer.ServiceBackend; "
	if got := fields(ContivService{}); !strings.HasPrefix(got, first) {
		t.Errorf("ContivService does not begin with the original fields: %s", got)
	}
}
