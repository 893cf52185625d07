package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/felix"
	"github.com/contiv-agent/contiv-agent/model"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// What a real calculation graph of Felix v3.31 says, in its order (IP sets, policies, profiles, endpoints, the rest, in_sync), for
// a policy that lets pods with a label reach a named port, with one such pod elsewhere.
const transcript = `
config_update { config { key: "FelixHostname" value: "node-1" } config { key: "DatastoreType" value: "kubernetes" } }

config_update { config { key: "FelixHostname" value: "node-1" } config { key: "DatastoreType" value: "kubernetes" } message: "config changed" }

ipset_update { id: "n:port" members: "10.1.1.2,tcp:8080" type: IP_AND_PORT }

ipset_update { id: "s:clients" members: "10.1.2.3/32" type: NET }

active_policy_update {
  id { tier: "default" name: "prod/knp.default.web" }
  policy {
    inbound_rules { action: "allow" protocol { name: "tcp" } src_ip_set_ids: "s:clients" dst_named_port_ip_set_ids: "n:port" rule_id: "3gWHk8cM0jy2MoEo" }
    namespace: "prod" original_selector: "(projectcalico.org/orchestrator == 'k8s' && app == 'web')"
  }
}

active_profile_update { id { name: "kns.prod" } profile { inbound_rules { action: "allow" rule_id: "a" } outbound_rules { action: "allow" rule_id: "b" } } }

workload_endpoint_update {
  id { orchestrator_id: "k8s" workload_id: "prod/web-0" endpoint_id: "eth0" }
  endpoint {
    state: "active" name: "cali0123456789a" profile_ids: "kns.prod" ipv4_nets: "10.1.1.2/32"
    tiers { name: "default" ingress_policies: "prod/knp.default.web" default_action: "Deny" }
  }
}

namespace_update { id { name: "prod" } labels { key: "team" value: "a" } }

encapsulation { }

in_sync { }
`

// says reads messages from text: paragraphs of one each.
func says(t testing.TB, text string) []*pb.ToDataplane {
	t.Helper()
	var out []*pb.ToDataplane
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		m := &pb.ToDataplane{}
		if err := prototext.Unmarshal([]byte(paragraph), m); err != nil {
			t.Fatalf("%s\n%v", paragraph, err)
		}
		out = append(out, m)
	}
	return out
}

// above is a Felix with an agent as its dataplane driver, on a VPP that outlives both.
type above struct {
	t         *testing.T
	vpp       *sim.VPP
	log       *buffer
	to        *felix.Writer
	in, out   *os.File
	statuses  chan string // that the agent tells, as text
	reading   chan error  // why reading them ended
	committed chan *event.Committed
	socket    string
	registry  *prometheus.Registry
	ended     chan error
	stop      context.CancelFunc
	seq       uint64
}

// plainVPP is a VPP with two pods here, one of another node, and a node's addresses.
func plainVPP(t *testing.T) *sim.VPP {
	t.Helper()
	v := sim.New(sim.Config{PuntLocal: true})
	t.Cleanup(v.Close)
	node := func(name, addr, pods string) event.Change {
		n := &model.Node{Name: name, InternalIPs: []netip.Addr{netip.MustParseAddr(addr)}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)}}
		return event.Change{Ref: n.Ref(), Object: n}
	}
	pod := func(name, on, addr string) event.Change {
		p := &model.Pod{ID: model.PodID{Namespace: "prod", Name: name}, NodeName: on, IPs: []netip.Addr{netip.MustParseAddr(addr)}}
		return event.Change{Ref: p.Ref(), Object: p}
	}
	err := cni.New(v, "node-1").Apply([]event.Change{
		node("node-1", "192.168.16.1", "10.1.1.0/24"), node("node-2", "192.168.16.2", "10.1.2.0/24"),
		pod("web-0", "node-1", "10.1.1.2"), pod("client", "node-1", "10.1.1.3"), pod("far", "node-2", "10.1.2.3"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// under starts an agent under a Felix that has said nothing yet.
func under(t *testing.T, v *sim.VPP) *above {
	t.Helper()
	return underDialled(t, v, v.Dial)
}

func underDialled(t *testing.T, v *sim.VPP, dial func(context.Context) (net.Conn, error)) *above {
	t.Helper()
	fromFelix, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, toFelix, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f := &above{
		t: t, vpp: v, log: &buffer{}, to: felix.NewWriter(to), in: to, out: from, statuses: make(chan string, 1000), reading: make(chan error, 1),
		committed: make(chan *event.Committed, 1000), ended: make(chan error, 1), socket: filepath.Join(t.TempDir(), "s"), registry: prometheus.NewRegistry(),
	}
	log := slog.New(slog.NewTextHandler(f.log, nil))
	a, err := New(Config{
		NodeName: "node-1", Dial: dial, Override: cni.Located(), NoServices: true, PostDNAT: true, Logger: log, StatusSocket: f.socket, MaxPause: 10 * time.Millisecond,
		Registry:    f.registry,
		Felix:       &Felix{Driver: felix.NewDriver(felix.Config{In: fromFelix, Out: toFelix, Logger: log})},
		OnCommitted: func(c *event.Committed) { f.committed <- c },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	go func() { f.ended <- a.Run(ctx) }()
	go f.read()
	t.Cleanup(func() { _ = f.in.Close(); cancel(); _ = f.out.Close() })
	return f
}

func (f *above) read() {
	r := felix.NewReader(f.out, 0)
	for {
		m := &pb.FromDataplane{}
		if err := r.Read(m); err != nil {
			f.reading <- err
			return
		}
		if u := m.GetWorkloadEndpointStatusUpdate(); u != nil {
			f.statuses <- u.Id.WorkloadId + " " + u.Status.Status
		}
		if u := m.GetWorkloadEndpointStatusRemove(); u != nil {
			f.statuses <- u.Id.WorkloadId + " gone"
		}
		if u := m.GetHostEndpointStatusUpdate(); u != nil {
			f.statuses <- u.Id.EndpointId + " " + u.Status.Status
		}
		if u := m.GetHostEndpointStatusRemove(); u != nil {
			f.statuses <- u.Id.EndpointId + " gone"
		}
	}
}

func (f *above) say(messages ...*pb.ToDataplane) {
	f.t.Helper()
	for _, m := range messages {
		m.SequenceNumber = f.seq
		f.seq++
		if err := f.to.Write(m); err != nil {
			f.t.Fatal(err)
		}
	}
}

// hear waits until a status is told.
func (f *above) hear(want string) {
	f.t.Helper()
	limit := time.After(30 * time.Second)
	var heard []string
	for {
		select {
		case got := <-f.statuses:
			if heard = append(heard, got); got == want {
				return
			}
		case <-limit:
			st, err := FetchStatus(f.t.Context(), f.socket, false)
			f.t.Fatalf("%q was not told; heard %q; status %+v, %v; log:\n%s", want, heard, st.Felix, err, f.log)
		}
	}
}

// settled waits until all that was said is in VPP, and returns the agent's status.
func (f *above) settled() *Status {
	f.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		st, err := FetchStatus(f.t.Context(), f.socket, false)
		if err == nil && st.InSync && st.Felix.Sequence == f.seq-1 {
			return st
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("not settled: %+v, %v; log:\n%s", st, err, f.log)
		}
	}
}

// gone closes Felix's end, and waits for the agent's.
func (f *above) gone() {
	f.t.Helper()
	if err := f.in.Close(); err != nil {
		f.t.Fatal(err)
	}
	if err := <-f.ended; !errors.Is(err, felix.ErrGone) {
		f.t.Fatalf("ended with %v", err)
	}
	<-f.reading
}

// passes tells whether a new TCP connection gets through, from an interface.
func (f *above) passes(in, from, to string) bool {
	f.t.Helper()
	fate := f.vpp.Send(in, packet.NewTCP(netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)))
	return len(fate.Out) == 1
}

const webPort = "pod-prod/web-0"

func TestFelixTranscript(t *testing.T) {
	f := under(t, plainVPP(t))
	f.say(says(t, transcript)...)
	f.hear("prod/web-0 up")
	st := f.settled()
	if st.Felix.State != "in-sync" || st.Felix.Dialect != "v3.31" || st.Felix.Sequence != 9 || st.Felix.Messages["config_update"] != 2 {
		t.Errorf("felix %+v", st.Felix)
	}
	want := []PolicyStatus{{Object: "NetworkPolicy prod/web", Tier: "default", State: "CONFIGURED", Text: "tier default, ingress 1 rule, of prod/web-0"}}
	if diff := cmp.Diff(want, st.Policies); diff != "" {
		t.Errorf("policies (-want +got)\n%s", diff)
	}
	checkGauges(t, f.registry, map[string]float64{"contiv_felix_in_sync": 1, "contiv_felix_sequence": 9})
	check := func(when string, far, farOther, near bool) {
		t.Helper()
		for _, c := range []struct {
			in, from, to string
			want         bool
		}{
			{"overlay", "10.1.2.3:4000", "10.1.1.2:8080", far},
			{"overlay", "10.1.2.3:4000", "10.1.1.2:8081", farOther},
			{"pod-prod/client", "10.1.1.3:4000", "10.1.1.2:8080", near},
			{webPort, "10.1.1.2:4000", "10.1.2.3:80", true},
		} {
			if got := f.passes(c.in, c.from, c.to); got != c.want {
				t.Errorf("%s: %s to %s passes: %v, want %v", when, c.from, c.to, got, c.want)
			}
		}
	}
	check("at first", true, false, false)

	f.say(says(t, `ipset_delta_update { id: "s:clients" removed_members: "10.1.2.3/32" added_members: "10.1.1.3/32" }`)...)
	f.settled()
	check("after the delta", false, false, true)

	f.say(says(t, `ipset_update { id: "s:clients" members: "10.1.2.0/24" type: NET }`)...)
	f.settled()
	check("after a second update", true, false, false)

	f.say(says(t, `
ipset_remove { id: "s:nobody knows" }

active_policy_remove { id { tier: "default" name: "unknown" } }

active_profile_remove { id { name: "unknown" } }

workload_endpoint_remove { id { orchestrator_id: "k8s" workload_id: "prod/unknown" endpoint_id: "eth0" } }

host_endpoint_remove { id { endpoint_id: "unknown" } }

service_remove { name: "a" namespace: "b" }

route_remove { dst: "10.0.0.0/8" }
`)...)
	f.settled()
	check("after removals of what nobody knows", true, false, false)

	f.say(says(t, `
workload_endpoint_remove { id { orchestrator_id: "k8s" workload_id: "prod/web-0" endpoint_id: "eth0" } }

active_profile_remove { id { name: "kns.prod" } }

active_policy_remove { id { tier: "default" name: "prod/knp.default.web" } }

ipset_remove { id: "s:clients" }

ipset_remove { id: "n:port" }
`)...)
	f.hear("prod/web-0 gone")
	f.settled()
	check("after the end", true, true, true)
	if dump := f.vpp.Dump(); strings.Contains(dump, "acl ") {
		t.Errorf("something is left:\n%s", dump)
	}
	f.gone()
}

// The other dialect leaves the same in VPP, to the byte; a restart with it writes nothing.
func TestFelixRestarts(t *testing.T) {
	v := plainVPP(t)
	f := under(t, v)
	f.say(says(t, transcript)...)
	f.hear("prod/web-0 up")
	f.settled()
	f.gone()
	dump := v.Dump()
	if !strings.Contains(dump, "acl ") {
		t.Fatalf("no lists after Felix is gone:\n%s", dump)
	}
	v.ClearLog()
	for _, say := range [][]*pb.ToDataplane{says(t, transcript), modern(says(t, transcript))} {
		f = under(t, v)
		f.say(say...)
		f.hear("prod/web-0 up")
		f.settled()
		f.gone()
		if n := v.Writes(); n != 0 || v.Dump() != dump {
			t.Fatalf("%d writes: %v; VPP (-before +after)\n%s", n, v.Log(), cmp.Diff(dump, v.Dump()))
		}
	}
}

// modern says the same in the dialect of Felix v3.32.
func modern(messages []*pb.ToDataplane) []*pb.ToDataplane {
	// PolicyID: 2 name, 3 namespace, 4 kind. In a list of policies, which are strings to us, it is its bytes.
	const id = "\x12\x03web\x1a\x04prod\x22\x17KubernetesNetworkPolicy"
	for _, m := range messages {
		if u := m.GetActivePolicyUpdate(); u != nil {
			u.Id = &pb.PolicyID{}
			u.Id.ProtoReflect().SetUnknown([]byte(id))
			u.Policy.ProtoReflect().SetUnknown([]byte("\x42\x07default"))
		}
		for _, tier := range m.GetWorkloadEndpointUpdate().GetEndpoint().GetTiers() {
			tier.IngressPolicies = []string{id}
		}
	}
	return messages
}

// A driver that is killed in the middle of things leaves the next one to finish: VPP ends as if nothing had happened.
func TestFelixDriverKilled(t *testing.T) {
	whole := plainVPP(t)
	f := under(t, whole)
	f.say(says(t, transcript)...)
	f.hear("prod/web-0 up")
	f.settled()
	f.gone()
	want := whole.Dump()
	for at := 1; at <= whole.Writes(); at++ {
		v, writes := plainVPP(t), 0
		f := under(t, v)
		v.After(func(r sim.Record) {
			if r.Write {
				if writes++; writes == at {
					f.stop()
				}
			}
		})
		f.say(says(t, transcript)...)
		<-f.ended
		v.After(nil)
		f = under(t, v)
		f.say(says(t, transcript)...)
		f.hear("prod/web-0 up")
		f.settled()
		f.gone()
		if diff := cmp.Diff(want, v.Dump()); diff != "" {
			t.Errorf("killed after %d writes (-want +got)\n%s", at, diff)
		}
	}
}

// While there is no VPP, endpoints are down.
func TestFelixWithoutVPP(t *testing.T) {
	v := plainVPP(t)
	var away atomic.Bool
	away.Store(true)
	f := underDialled(t, v, func(ctx context.Context) (net.Conn, error) {
		if away.Load() {
			return nil, errors.New("nobody is there")
		}
		return v.Dial(ctx)
	})
	f.say(says(t, transcript)...)
	f.hear("prod/web-0 down")
	away.Store(false)
	f.hear("prod/web-0 up")
	f.gone()
}

// When VPP restarts, endpoints are down until all is there again.
func TestFelixAndVPPRestarts(t *testing.T) {
	f := under(t, plainVPP(t))
	f.say(says(t, transcript)...)
	f.hear("prod/web-0 up")
	f.settled()
	want := f.vpp.Dump()
	f.vpp.Restart()
	f.hear("prod/web-0 down")
	f.hear("prod/web-0 up")
	f.settled()
	if diff := cmp.Diff(want, f.vpp.Dump()); diff != "" {
		t.Errorf("after the restart (-before +after)\n%s", diff)
	}
	f.gone()
}

// An endpoint's status says what VPP really has.
func TestFelixEndpointStatuses(t *testing.T) {
	v := plainVPP(t)
	f := under(t, v)
	v.RemoveRoute(0, netip.MustParsePrefix("10.1.1.2/32"))
	v.RemoveInterface(webPort)
	f.say(says(t, transcript)...)
	f.hear("prod/web-0 down")
	if st := f.settled(); len(st.Felix.Endpoints) != 1 || st.Felix.Endpoints[0].Reason != "no interface of VPP leads to it" {
		t.Errorf("endpoints %+v", st.Felix.Endpoints)
	}
	// It comes under the name it has on the host.
	v.Fail(func(name string) (int32, bool) {
		return map[string]int32{"acl_interface_set_acl_list": -1}[name], false
	})
	v.AddInterface(sim.Interface{Name: "cali0123456789a"})
	f.hear("prod/web-0 error")
	v.Fail(nil)
	f.hear("prod/web-0 up")
	f.say(says(t, `
workload_endpoint_update {
  id { orchestrator_id: "k8s" workload_id: "prod/web-0" endpoint_id: "eth0" }
  endpoint { state: "inactive" name: "cali0123456789a" profile_ids: "kns.prod" ipv4_nets: "10.1.1.2/32" }
}`)...)
	f.hear("prod/web-0 down")
	f.gone()
}

// A host endpoint is up where it is enforced, and down where it is not.
func TestFelixHostEndpoints(t *testing.T) {
	f := under(t, plainVPP(t))
	f.say(says(t, strings.Replace(transcript, "in_sync { }", `
host_metadata_update { hostname: "node-1" ipv4_addr: "192.168.16.1" }

active_policy_update { id { tier: "default" name: "host" } policy { inbound_rules { action: "allow" protocol { name: "tcp" } dst_ports { first: 443 last: 443 } } } }

host_endpoint_update { id { endpoint_id: "here" } endpoint { name: "ens3" expected_ipv4_addrs: "192.168.16.1" tiers { name: "default" ingress_policies: "host" default_action: "Deny" } } }

host_endpoint_update { id { endpoint_id: "nowhere" } endpoint { name: "ens4" expected_ipv4_addrs: "192.168.16.77" } }

in_sync { }`, 1))...)
	f.hear("here up")
	st := f.settled()
	told := map[string]string{}
	for _, e := range st.Felix.Endpoints {
		told[e.Name] = e.Status
	}
	if diff := cmp.Diff(map[string]string{"here": "up", "nowhere": "down", "prod/web-0 eth0": "up"}, told); diff != "" {
		t.Errorf("endpoints (-want +got)\n%s", diff)
	}
	for port, want := range map[string]bool{"443": true, "444": false, "22": true} { // 22 is a failsafe port
		fate := f.vpp.Send("uplink", packet.NewTCP(netip.MustParseAddrPort("192.0.2.9:4000"), netip.MustParseAddrPort("192.168.16.1:"+port)))
		if (len(fate.Out) == 1) != want {
			t.Errorf("port %s of the node passes: %v, want %v", port, len(fate.Out) == 1, want)
		}
	}
	f.say(says(t, `host_endpoint_remove { id { endpoint_id: "here" } }`)...)
	f.hear("here gone")
	f.gone()
}

// Before in_sync nothing is touched, and all is there at once after it.
func TestFelixWaitsForInSync(t *testing.T) {
	v := plainVPP(t)
	f := under(t, v)
	all := says(t, transcript)
	f.say(all[:len(all)-1]...)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		st, err := FetchStatus(t.Context(), f.socket, false)
		if err == nil && st.VPP.Connected && st.Felix.Sequence == f.seq-1 {
			if st.InSync || st.Felix.State != "waiting for in_sync" || st.Waiting == "" {
				t.Errorf("in sync: %v, felix %+v, waiting %q", st.InSync, st.Felix, st.Waiting)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v", st, err)
		}
	}
	if v.Writes() != 0 {
		t.Errorf("written before in_sync: %v", v.Log())
	}
	f.say(all[len(all)-1])
	f.hear("prod/web-0 up")
	f.gone()
}
