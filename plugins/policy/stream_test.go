package policy

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	driver "github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// said parses messages from text, one per line.
func said(t testing.TB, text string) *event.Dataplane {
	t.Helper()
	ev := &event.Dataplane{Source: "felix"}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		m := &felix.ToDataplane{}
		if err := prototext.Unmarshal([]byte(line), m); err != nil {
			t.Fatalf("%s\n%v", line, err)
		}
		ev.Messages = append(ev.Messages, m)
	}
	return ev
}

const streamWeb = `
config_update { config { key: "FelixHostname" value: "host-1" } }
ipset_update { id: "s:a" type: NET members: "10.1.2.3/32" }
active_policy_update { id { tier: "default" name: "prod/knp.default.web" } policy { original_selector: "app == 'web'" inbound_rules { action: "allow" protocol { name: "TCP" } src_ip_set_ids: "s:a" original_src_selector: "app == 'a'" dst_ports { first: 80 last: 81 } rule_id: "hash" } inbound_rules { action: "deny" not_src_net: "10.0.0.0/8" not_icmp_type: 8 dst_ip_set_ids: "s:a" dst_ip_port_set_ids: "svc:b" rule_id: "other" } } }
active_policy_update { id { tier: "sec" name: "staged:sec.try" } policy { outbound_rules { action: "next-tier" } } }
active_profile_update { id { name: "kns.prod" } profile { outbound_rules { action: "allow" } } }
workload_endpoint_update { id { orchestrator_id: "k8s" workload_id: "prod/web" endpoint_id: "eth0" } endpoint { state: "active" name: "cali1" ipv4_nets: "10.1.1.2/32" ipv6_nets: "fd00::2/128" profile_ids: "kns.prod" tiers { name: "sec" egress_policies: "staged:sec.try" } tiers { name: "default" ingress_policies: "prod/knp.default.web" } } }
workload_endpoint_update { id { orchestrator_id: "k8s" workload_id: "prod/young" endpoint_id: "eth0" } endpoint { state: "active" name: "cali2" tiers { name: "default" ingress_policies: "prod/knp.default.web" } } }
host_metadata_update { hostname: "host-1" ipv4_addr: "192.168.16.1" }
host_metadata_v6_update { hostname: "host-1" ipv6_addr: "fd00:16::1" }
host_metadata_update { hostname: "host-2" ipv4_addr: "192.168.16.2" }
route_update { types: LOCAL_TUNNEL dst: "10.1.1.0/32" }
route_update { types: REMOTE_WORKLOAD dst: "10.1.2.0/26" }
route_update { types: LOCAL_WORKLOAD dst: "10.1.1.0/26" }
service_update { name: "web" namespace: "prod" cluster_ips: "10.96.0.10" cluster_ips: "fd00:96::10" }
in_sync { }
`

func newStreamTest() (*Processor, *recorder) {
	r := &recorder{}
	return NewStream(Config{NodeName: "node-1"}, event.Located{Uplink: "eth9"}, r), r
}

func TestStreamAsksVPPBeforeItSends(t *testing.T) {
	p, r := newStreamTest()
	p.Dataplane(said(t, streamWeb))
	ask := p.Locate(time.Time{})
	want := &event.Locate{
		Pods:    map[netip.Addr]string{netip.MustParseAddr("10.1.1.2"): "prod/web", netip.MustParseAddr("fd00::2"): "prod/web"},
		NodeIPs: []netip.Addr{netip.MustParseAddr("10.1.1.0"), netip.MustParseAddr("192.168.16.1"), netip.MustParseAddr("fd00:16::1")},
		Remote:  []netip.Prefix{netip.MustParsePrefix("10.1.2.0/26")}, Names: []string{"cali1", "cali2", "prod/young"}, Override: event.Located{Uplink: "eth9"},
	}
	if diff := cmp.Diff(want, ask, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("asked (-want +got)\n%s", diff)
	}
	if len(r.calls) > 0 {
		t.Errorf("sent before the first flush: %v", r.calls)
	}
	p.Located(&event.Located{
		Uplink: "eth9", Overlay: "vxlan", Host: "tap-host", UplinkIPs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")},
		Pods:  map[netip.Addr]string{netip.MustParseAddr("10.1.1.2"): "tap1"},
		Names: map[string]string{"cali1": "tapX", "cali2": "tap2"},
	})
	flush(t, p, r, "policy prod/knp.default.web", "policy staged:sec.try", "profile kns.prod", "endpoint prod/web", "endpoint prod/young", "in sync", "node", "apply")
	n := r.node
	if got := fmt.Sprintln(n.Interfaces, n.Isolated, n.Uplink, n.Overlay, n.Host, n.Addrs, n.Frontends); got !=
		"map[10.1.1.2:tap1 fd00::2:tapX] [tap2] eth9 vxlan tap-host [10.1.1.0 192.0.2.1 192.168.16.1 fd00:16::1] [10.96.0.10/32 fd00:96::10/128]\n" {
		t.Errorf("node: %s", got)
	}
	flush(t, p, r)
	apply(p, pod("web", "10.1.1.2"), pod("other", "10.1.1.7"), web()) // from the services' side
	flush(t, p, r)
	p.Dataplane(said(t, `
host_metadata_remove { hostname: "host-1" }
route_remove { dst: "10.1.1.0/32" }
service_remove { name: "web" namespace: "prod" }
workload_endpoint_remove { id { orchestrator_id: "k8s" workload_id: "prod/young" endpoint_id: "eth0" } }`))
	flush(t, p, r, "no endpoint prod/young", "node", "apply")
	if got := fmt.Sprint(r.node.Interfaces, r.node.Isolated, r.node.Addrs, r.node.Frontends); got != "map[10.1.1.2:tap1 fd00::2:tapX] [] [192.0.2.1 fd00:16::1] []" {
		t.Errorf("node after removals: %s", got)
	}
}

// The processor repeats lookups of missing interfaces with growing pauses, and does not repeat others.
func TestStreamAsksAgain(t *testing.T) {
	p, _ := newStreamTest()
	p.Dataplane(said(t, streamWeb))
	at := time.Unix(1000, 0)
	asked := func() bool { return p.Locate(at) != nil }
	if !asked() || asked() {
		t.Error("not asked once")
	}
	p.Located(&event.Located{})
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	var when []int
	for i := range 100 {
		at = time.Unix(1000+int64(i), 0)
		if asked() {
			when = append(when, i)
			p.Located(&event.Located{})
			_ = p.Flush()
		}
	}
	if diff := cmp.Diff([]int{1, 3, 7, 15, 31, 61, 91}, when); diff != "" {
		t.Errorf("seconds (-want +got)\n%s", diff)
	}
	p.Located(&event.Located{Names: map[string]string{"cali1": "tap1", "cali2": "tap2"}})
	_ = p.Flush()
	at = at.Add(time.Hour)
	if asked() {
		t.Error("asked though nothing is missing")
	}
}

// A route for every remote workload does not cause a lookup for each.
func TestStreamLeads(t *testing.T) {
	p, _ := newStreamTest()
	route := func(i int, kind string) {
		p.Dataplane(said(t, fmt.Sprintf("route_%s { dst: \"10.1.%d.0/24\" %s }", strings.Fields(kind)[0], i, strings.Join(strings.Fields(kind)[1:], " "))))
	}
	leads := func() string {
		ask := p.Locate(time.Time{})
		if ask == nil {
			return "not asked"
		}
		return fmt.Sprint(ask.Remote)
	}
	for _, i := range []int{9, 8, 7, 6, 5, 4} {
		route(i, "update types: REMOTE_WORKLOAD")
	}
	if got := leads(); got != "[10.1.4.0/24 10.1.5.0/24 10.1.6.0/24 10.1.7.0/24]" {
		t.Error(got)
	}
	route(20, "update types: REMOTE_WORKLOAD")
	route(9, "remove")
	if got := leads(); got != "not asked" {
		t.Error(got)
	}
	route(5, "remove")
	route(4, "update types: REMOTE_HOST")
	if got := leads(); got != "[10.1.6.0/24 10.1.7.0/24 10.1.8.0/24 10.1.20.0/24]" {
		t.Error(got)
	}
}

func TestStreamInWords(t *testing.T) {
	p, r := newStreamTest()
	p.Dataplane(said(t, streamWeb))
	_ = p.Flush()
	d, ok := p.Describe(model.PodID{Namespace: "prod", Name: "web"})
	if !ok || len(d.Ingress) != 1 || len(d.Egress) != 1 {
		t.Fatalf("described: %+v", d)
	}
	want := []Policy{{Object: "NetworkPolicy prod/web", Selector: "app == 'web'", Rules: []Rule{
		{Name: "ingress rule 1", Action: "allow", Match: "tcp from {app == 'a'} to ports 80-81"},
		{Name: "ingress rule 2", Action: "deny", Match: "not type 8 from not 10.0.0.0/8 to {in s:a and svc:b}"},
	}}}
	if diff := cmp.Diff(want, d.Ingress[0].Policies, cmpopts.IgnoreFields(Rule{}, "Matches")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := d.Egress[0].Policies[0]; got.Object != "StagedGlobalNetworkPolicy sec.try" || !got.Staged || got.Rules[0].Action != "pass" {
		t.Errorf("staged: %+v", got)
	}
	var lines []string
	for _, s := range p.Policies() {
		lines = append(lines, fmt.Sprintf("%s %s %v/%v %d/%d %d", s.Policy.ID, s.Policy.Tier, s.Policy.Ingress, s.Policy.Egress, len(s.Policy.InboundRules), len(s.Policy.OutboundRules), len(s.Endpoints)))
	}
	if diff := cmp.Diff([]string{"NetworkPolicy prod/web default true/false 2/0 2", "StagedGlobalNetworkPolicy sec.try sec false/true 0/1 1"}, lines); diff != "" {
		t.Errorf("policies (-want +got)\n%s", diff)
	}
	r.cause = func(string, bool, int, int) (dataplane.Cause, bool) {
		return dataplane.Cause{Kind: dataplane.CauseRule, Tier: "default", Policy: "prod/knp.default.web", Endpoint: "prod/web"}, true
	}
	if reason, _ := p.Explain("tap1", true, 0, 0); reason.Text != "allowed by NetworkPolicy prod/web ingress rule 1" {
		t.Errorf("reason: %s", reason)
	}
}

func TestStreamEndpoints(t *testing.T) {
	p, _ := newStreamTest()
	p.Dataplane(said(t, streamWeb+`host_endpoint_update { id { endpoint_id: "uplink" } endpoint { name: "eth9" } }`))
	p.Locate(time.Time{})
	_ = p.Flush()
	text := func() string {
		var lines []string
		for _, e := range p.Endpoints() {
			lines = append(lines, fmt.Sprint(e.Workload.GetWorkloadId(), e.Host, " ", e.Active, e.Asked, e.Interfaces))
		}
		return strings.Join(lines, "; ")
	}
	if got := text(); got != "prod/web true true []; prod/young true true []; uplink true false []" && got != "prod/young true true []; prod/web true true []; uplink true false []" {
		t.Errorf("before VPP answers: %s", got)
	}
	p.Located(&event.Located{Uplink: "eth9", Names: map[string]string{"cali1": "tap1"}})
	_ = p.Flush()
	if got := text(); got != "prod/web true false [tap1]; prod/young true false []; uplink true false [eth9]" {
		t.Errorf("then: %s", got)
	}
}

// values returns, as text, the values of an ACL renderer behind a stream.
func values(t testing.TB, messages []*felix.ToDataplane, events ...int) string {
	t.Helper()
	sink := controller.NewValues()
	p := NewStream(Config{NodeName: "host-1", View4: dataplane.PostDNAT, View6: dataplane.PostDNAT}, event.Located{}, acl.New(acl.Config{}, sink))
	located := &event.Located{
		Uplink: "eth9", Host: "tap-host", Pods: map[netip.Addr]string{netip.MustParseAddr("10.1.1.2"): "tap1"}, Names: map[string]string{"cali2": "tap2"},
	}
	step := func(part []*felix.ToDataplane) {
		p.Dataplane(&event.Dataplane{Source: "felix", Messages: part})
		p.Locate(time.Time{})
		p.Located(located)
		for range 10 {
			if _ = p.Flush(); !p.Again() {
				break
			}
		}
		p.Endpoints()
		p.Policies()
	}
	at := 0
	for _, n := range events {
		step(messages[at : at+n])
		at += n
	}
	step(messages[at:])
	var b strings.Builder
	for _, o := range sink.List("") {
		fmt.Fprintln(&b, o.Owner, o.Keys)
	}
	return b.String()
}

// The final state does not depend on the order of messages or on their division into events.
func TestStreamIsPathIndependent(t *testing.T) {
	ordered := said(t, streamWeb).Messages
	want := values(t, ordered)
	if !strings.Contains(want, "tap1") {
		t.Fatalf("nothing at tap1:\n%s", want)
	}
	for seed := range pace.Fewer(uint64(200), 10) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		messages := slices.Clone(ordered)
		rnd.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
		if i := slices.IndexFunc(messages, func(m *felix.ToDataplane) bool { return m.GetInSync() != nil }); seed%2 == 0 { // the usual peer
			messages = append(slices.Delete(messages, i, i+1), &felix.ToDataplane{Payload: &felix.ToDataplane_InSync{InSync: &felix.InSync{}}})
		}
		messages = slices.Insert(messages, rnd.IntN(len(messages)), proto.CloneOf(messages[rnd.IntN(len(messages))])) // one twice
		got := values(t, messages, rnd.IntN(5), rnd.IntN(5), rnd.IntN(5))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-want +got)\n%s", seed, diff)
		}
	}
}

// FuzzStream passes bytes through the pipe up to access lists: nothing crashes.
func FuzzStream(f *testing.F) {
	var all []byte
	for _, m := range said(f, streamWeb).Messages {
		var err error
		if all, err = driver.AppendFrame(all, m); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(all)
	f.Add(append(bytes.Clone(all[:200]), all...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var messages []*felix.ToDataplane
		d := driver.NewDriver(driver.Config{In: io.NopCloser(bytes.NewReader(b)), Out: nowhere{}, Limit: 1 << 16})
		_ = d.Run(t.Context(), func(ev event.Event) { // any end will do
			if ev, ok := ev.(*event.Dataplane); ok {
				messages = append(messages, ev.Messages...)
			}
		})
		messages = append(messages, &felix.ToDataplane{Payload: &felix.ToDataplane_InSync{InSync: &felix.InSync{}}})
		values(t, messages, len(messages)/2)
	})
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) Close() error                { return nil }

func TestWidest(t *testing.T) {
	var list []netip.Prefix
	for _, text := range []string{"10.96.0.10/32", "fd00::1/128", "10.96.0.0/16", "10.97.0.1/32", "10.96.0.0/16", "10.96.0.0/24", "fd00::/64", "9.0.0.0/8", "10.96.0.1/32"} {
		list = append(list, netip.MustParsePrefix(text))
	}
	if got, want := fmt.Sprint(widest(list)), "[9.0.0.0/8 10.96.0.0/16 10.97.0.1/32 fd00::/64]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
