package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// The messages of Felix v3.31's calculation graph, in its order (IP sets, policies, profiles, endpoints, the rest, in_sync),
// for a policy that lets pods with a label reach a named port, with one such pod on another node.
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

const webPort = "pod-prod/web-0"

func TestFelixTranscript(t *testing.T) {
	f := under(t, plainVPP(t))
	f.send(parseMessages(t, transcript)...)
	f.expectStatus("prod/web-0 up")
	st := f.settled()
	if st.Felix.State != "in-sync" || st.Felix.Dialect != "v3.31" || st.Felix.Sequence != 9 || st.Felix.Messages["config_update"] != 2 {
		t.Errorf("felix %+v", st.Felix)
	}
	want := []status.Policy{{Object: "NetworkPolicy prod/web", Tier: "default", State: "CONFIGURED", Text: "tier default, ingress 1 rule, of prod/web-0", Kind: "NetworkPolicy", Namespace: "prod", Name: "web", Endpoints: []string{"prod/web-0"}}}
	if diff := cmp.Diff(want, st.Policies); diff != "" {
		t.Errorf("policies (-want +got)\n%s", diff)
	}
	checkGauges(t, f.registry, map[string]float64{"contiv_felix_in_sync": 1, "contiv_felix_sequence": 9})
	check := func(when string, far, farOther, near bool) {
		t.Helper()
		flows := []struct {
			in, from, to string
			want         bool
		}{
			{"overlay", "10.1.2.3:4000", "10.1.1.2:8080", far},
			{"overlay", "10.1.2.3:4000", "10.1.1.2:8081", farOther},
			{"pod-prod/client", "10.1.1.3:4000", "10.1.1.2:8080", near},
			{webPort, "10.1.1.2:4000", "10.1.2.3:80", true},
		}
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			var wrong []string // a message may have been read and not yet reached VPP
			for _, c := range flows {
				if got := f.passes(c.in, c.from, c.to); got != c.want {
					wrong = append(wrong, fmt.Sprintf("%s to %s passes: %v, want %v", c.from, c.to, got, c.want))
				}
			}
			if len(wrong) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %q", when, wrong)
			}
		}
	}

	check("at first", true, false, false)

	f.send(parseMessages(t, `ipset_delta_update { id: "s:clients" removed_members: "10.1.2.3/32" added_members: "10.1.1.3/32" }`)...)
	f.settled()
	check("after the delta", false, false, true)

	f.send(parseMessages(t, `ipset_update { id: "s:clients" members: "10.1.2.0/24" type: NET }`)...)
	f.settled()
	check("after a second update", true, false, false)

	f.send(parseMessages(t, `
ipset_remove { id: "s:nobody knows" }

active_policy_remove { id { tier: "default" name: "unknown" } }

active_profile_remove { id { name: "unknown" } }

workload_endpoint_remove { id { orchestrator_id: "k8s" workload_id: "prod/unknown" endpoint_id: "eth0" } }

host_endpoint_remove { id { endpoint_id: "unknown" } }

service_remove { name: "a" namespace: "b" }

route_remove { dst: "10.0.0.0/8" }
`)...)
	f.settled()
	check("after removals of unknown objects", true, false, false)

	f.send(parseMessages(t, `
workload_endpoint_remove { id { orchestrator_id: "k8s" workload_id: "prod/web-0" endpoint_id: "eth0" } }

active_profile_remove { id { name: "kns.prod" } }

active_policy_remove { id { tier: "default" name: "prod/knp.default.web" } }

ipset_remove { id: "s:clients" }

ipset_remove { id: "n:port" }
`)...)
	f.expectStatus("prod/web-0 gone")
	f.settled()
	check("after the end", true, true, true)
	if dump := f.vpp.Dump(); strings.Contains(dump, "acl ") {
		t.Errorf("something is left:\n%s", dump)
	}
	f.gone()
}

// The other dialect makes the same configuration in VPP, byte for byte; a restart with it writes nothing.
func TestFelixRestarts(t *testing.T) {
	v := plainVPP(t)
	f := under(t, v)
	f.send(parseMessages(t, transcript)...)
	f.expectStatus("prod/web-0 up")
	f.settled()
	f.gone()
	dump := v.Dump()
	if !strings.Contains(dump, "acl ") {
		t.Fatalf("no lists after Felix is gone:\n%s", dump)
	}
	v.ClearLog()
	for _, say := range [][]*pb.ToDataplane{parseMessages(t, transcript), modern(parseMessages(t, transcript))} {
		f = under(t, v)
		f.send(say...)
		f.expectStatus("prod/web-0 up")
		f.settled()
		f.gone()
		if n := v.Writes(); n != 0 || v.Dump() != dump {
			t.Fatalf("%d writes: %v; VPP (-before +after)\n%s", n, v.Log(), cmp.Diff(dump, v.Dump()))
		}
	}
}

// modern returns the same messages in the dialect of Felix v3.32.
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

// A killed driver's work is completed by the next one: VPP ends as if nothing had happened.
func TestFelixDriverKilled(t *testing.T) {
	whole := plainVPP(t)
	f := under(t, whole)
	f.send(parseMessages(t, transcript)...)
	f.expectStatus("prod/web-0 up")
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
		f.send(parseMessages(t, transcript)...)
		<-f.ended
		v.After(nil)
		f = under(t, v)
		f.send(parseMessages(t, transcript)...)
		f.expectStatus("prod/web-0 up")
		f.settled()
		f.gone()
		if diff := cmp.Diff(want, v.Dump()); diff != "" {
			t.Errorf("killed after %d writes (-want +got)\n%s", at, diff)
		}
	}
}

// Without VPP, endpoints are down.
func TestFelixWithoutVPP(t *testing.T) {
	v := plainVPP(t)
	var away atomic.Bool
	away.Store(true)
	f := underDialled(t, v, func(ctx context.Context) (net.Conn, error) {
		if away.Load() {
			return nil, errors.New("no listener")
		}
		return v.Dial(ctx)
	})
	f.send(parseMessages(t, transcript)...)
	f.expectStatus("prod/web-0 down")
	away.Store(false)
	f.expectStatus("prod/web-0 up")
	f.gone()
}

// When VPP restarts, endpoints are down until their configuration is complete again.
func TestFelixAndVPPRestarts(t *testing.T) {
	f := under(t, plainVPP(t))
	f.send(parseMessages(t, transcript)...)
	f.expectStatus("prod/web-0 up")
	f.settled()
	want := f.vpp.Dump()
	f.vpp.Restart()
	f.expectStatus("prod/web-0 down")
	f.expectStatus("prod/web-0 up")
	f.settled()
	if diff := cmp.Diff(want, f.vpp.Dump()); diff != "" {
		t.Errorf("after the restart (-before +after)\n%s", diff)
	}
	f.gone()
}

// An endpoint's status reports VPP's actual state.
func TestFelixEndpointStatuses(t *testing.T) {
	v := plainVPP(t)
	f := under(t, v)
	v.RemoveRoute(0, netip.MustParsePrefix("10.1.1.2/32"))
	v.RemoveInterface(webPort)
	f.send(parseMessages(t, transcript)...)
	f.expectStatus("prod/web-0 down")
	if st := f.settled(); len(st.Felix.Endpoints) != 1 || st.Felix.Endpoints[0].Reason != "no interface of VPP leads to it" {
		t.Errorf("endpoints %+v", st.Felix.Endpoints)
	}
	// The interface has its name on the host.
	v.Fail(func(name string) (int32, bool) {
		return map[string]int32{"acl_interface_set_acl_list": -1}[name], false
	})
	v.AddInterface(sim.Interface{Name: "cali0123456789a"})
	f.expectStatus("prod/web-0 error")
	v.Fail(nil)
	f.expectStatus("prod/web-0 up")
	f.send(parseMessages(t, `
workload_endpoint_update {
  id { orchestrator_id: "k8s" workload_id: "prod/web-0" endpoint_id: "eth0" }
  endpoint { state: "inactive" name: "cali0123456789a" profile_ids: "kns.prod" ipv4_nets: "10.1.1.2/32" }
}`)...)
	f.expectStatus("prod/web-0 down")
	f.gone()
}

// A host endpoint is up if it is enforced, else down.
func TestFelixHostEndpoints(t *testing.T) {
	f := under(t, plainVPP(t))
	f.send(parseMessages(t, strings.Replace(transcript, "in_sync { }", `
host_metadata_update { hostname: "node-1" ipv4_addr: "192.168.16.1" }

active_policy_update { id { tier: "default" name: "host" } policy { inbound_rules { action: "allow" protocol { name: "tcp" } dst_ports { first: 443 last: 443 } } } }

host_endpoint_update { id { endpoint_id: "here" } endpoint { name: "ens3" expected_ipv4_addrs: "192.168.16.1" tiers { name: "default" ingress_policies: "host" default_action: "Deny" } } }

host_endpoint_update { id { endpoint_id: "nowhere" } endpoint { name: "ens4" expected_ipv4_addrs: "192.168.16.77" } }

in_sync { }`, 1))...)
	f.expectStatus("here up")
	st := f.settled()
	states := map[string]string{}
	for _, e := range st.Felix.Endpoints {
		states[e.Name] = e.Status
	}
	if diff := cmp.Diff(map[string]string{"here": "up", "nowhere": "down", "prod/web-0 eth0": "up"}, states); diff != "" {
		t.Errorf("endpoints (-want +got)\n%s", diff)
	}
	for port, want := range map[string]bool{"443": true, "444": false, "22": true} { // 22 is a failsafe port
		fate := f.vpp.Send("uplink", packet.NewTCP(netip.MustParseAddrPort("192.0.2.9:4000"), netip.MustParseAddrPort("192.168.16.1:"+port)))
		if (len(fate.Out) == 1) != want {
			t.Errorf("port %s of the node passes: %v, want %v", port, len(fate.Out) == 1, want)
		}
	}
	f.send(parseMessages(t, `host_endpoint_remove { id { endpoint_id: "here" } }`)...)
	f.expectStatus("here gone")
	f.gone()
}

// The driver changes nothing before in_sync, and then everything at once.
func TestFelixWaitsForInSync(t *testing.T) {
	v := plainVPP(t)
	f := under(t, v)
	all := parseMessages(t, transcript)
	f.send(all[:len(all)-1]...)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		st, err := control.FetchStatus(t.Context(), f.socket, false)
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
	f.send(all[len(all)-1])
	f.expectStatus("prod/web-0 up")
	f.gone()
}

// Agents start and end under one Felix, and leave no goroutine and no file; CONTIV_CASES is their number.
func TestFelixSessionsLeaveNothing(t *testing.T) {
	v, cycles := plainVPP(t), 20
	if more, err := strconv.Atoi(os.Getenv("CONTIV_CASES")); err == nil {
		cycles = more
	}
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	session := func() {
		f := under(t, v)
		f.send(parseMessages(t, transcript)...)
		f.expectStatus("prod/web-0 up")
		f.gone()
		f.stop()
		if err := f.out.Close(); err != nil {
			t.Fatal(err)
		}
	}
	session()
	wantFiles, wantRoutines := files(), runtime.NumGoroutine()
	for range cycles {
		session()
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > wantRoutines || files() > wantFiles; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines became %d, %d files %d", wantRoutines, runtime.NumGoroutine(), wantFiles, files())
		}
	}
}
