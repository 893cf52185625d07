package attachment

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// remembering is a driver that only records messages.
type remembering struct{ *mirror.Mirror }

func (r remembering) OnUpdate(m *pb.ToDataplane) { r.Mirror.Apply([]*pb.ToDataplane{m}, true) }
func (remembering) Apply() bool                  { return false }

// lines are the driver's records, without the text format's deliberately unstable spaces.
func (r remembering) lines() (out []string) {
	for _, l := range r.Dump() {
		out = append(out, strings.Join(strings.Fields(l), " "))
	}
	return out
}

func TestNodeFeed(t *testing.T) {
	driver := remembering{mirror.New()}
	x := NewNodeFeed("n1", driver)
	put := func(o model.Object) { x.Apply(event.Change{Ref: o.Ref(), Object: o}) }
	node := func(name, addr4 string, cidrs ...string) *model.Node {
		n := &model.Node{Name: name, Labels: map[string]string{"zone": "z"}, InternalIPs: []netip.Addr{netip.MustParseAddr("fd01::1"), netip.MustParseAddr(addr4)}}
		for _, c := range cidrs {
			n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(c))
		}
		return n
	}
	flush := func() []string {
		if err := x.Flush(); err != nil {
			t.Fatal(err)
		}
		driver.Check(t, "node feed")
		return driver.lines()
	}
	put(node("n1", "192.168.0.1", "10.1.1.0/24"))
	put(node("n2", "192.168.0.2", "10.1.2.0/24", "10.1.3.0/24"))
	put(&model.Service{ID: model.ServiceID{Namespace: "prod", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}})
	put(&model.Namespace{Name: "prod"}) // ignored
	before := flush()
	for _, want := range []string{
		`Route 10.1.1.0/24 => dst:"10.1.1.0/24" dst_node_name:"n1" dst_node_ip:"192.168.0.1" types:LOCAL_WORKLOAD`,
		`Route 10.1.3.0/24 => dst:"10.1.3.0/24" dst_node_name:"n2" dst_node_ip:"192.168.0.2" types:REMOTE_WORKLOAD`,
		`Route 192.168.0.1/32 => dst:"192.168.0.1/32" dst_node_name:"n1" dst_node_ip:"192.168.0.1" types:LOCAL_HOST`,
		`HostMetadata n2 => hostname:"n2" ipv4_addr:"192.168.0.2"`,
		`HostMetadataV6 n1 => hostname:"n1" ipv6_addr:"fd01::1"`,
		`Service prod/web => name:"web" namespace:"prod" type:"ClusterIP" cluster_ips:"10.96.0.1"`,
	} {
		if !slices.Contains(before, want) {
			t.Errorf("the driver does not know %s\n%s", want, strings.Join(before, "\n"))
		}
	}
	// Remove and add again.
	put(node("n2", "192.168.0.9", "10.1.2.0/24"))
	if text := strings.Join(flush(), "\n"); strings.Contains(text, "10.1.3.0/24") || !strings.Contains(text, "192.168.0.9") {
		t.Errorf("after a change:\n%s", text)
	}
	put(node("n2", "192.168.0.2", "10.1.2.0/24", "10.1.3.0/24"))
	if diff := cmp.Diff(before, flush()); diff != "" {
		t.Errorf("back (-before +after):\n%s", diff)
	}
	for _, ref := range []model.Ref{{Kind: model.KindNode, Name: "n1"}, {Kind: model.KindNode, Name: "n2"}, {Kind: model.KindService, Namespace: "prod", Name: "web"}} {
		x.Apply(event.Change{Ref: ref})
	}
	if left := flush(); len(left) > 0 {
		t.Errorf("all is gone, and the driver knows\n%s", strings.Join(left, "\n"))
	}
}

func TestDriverMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	if err := r.Register(NewDriverMetrics(felix.NewSupervisor(felix.SupervisorConfig{Path: "x"}))); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil || len(families) != 5 {
		t.Errorf("%d families, %v", len(families), err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if m.GetGauge().GetValue() != 0 || m.GetCounter().GetValue() != 0 {
				t.Errorf("%s of a driver that was never started: %v", f.GetName(), m)
			}
		}
	}
}
