package realvpp

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// felixSays lets only prod/api reach prod/db, in both families, as a Felix says it.
const felixSays = `
config_update { config { key: "FelixHostname" value: "node-1" } }

ipset_update { id: "s:api" type: NET members: "10.1.2.13/32" members: "fd00:1:2::13/128" }

active_policy_update { id { tier: "default" name: "prod/knp.default.db" } policy { inbound_rules { action: "allow" src_ip_set_ids: "s:api" } } }

active_profile_update { id { name: "kns.prod" } profile { inbound_rules { action: "allow" } outbound_rules { action: "allow" } } }

workload_endpoint_update {
  id { orchestrator_id: "k8s" workload_id: "prod/db" endpoint_id: "eth0" }
  endpoint { state: "active" name: "cali1" profile_ids: "kns.prod" ipv4_nets: "10.1.1.12/32" ipv6_nets: "fd00:1:1::12/128" tiers { name: "default" ingress_policies: "prod/knp.default.db" } }
}

workload_endpoint_update {
  id { orchestrator_id: "k8s" workload_id: "test/client" endpoint_id: "eth0" }
  endpoint { state: "active" name: "cali2" profile_ids: "kns.prod" ipv4_nets: "10.1.1.22/32" ipv6_nets: "fd00:1:1::22/128" }
}

in_sync { }
`

// TestVPPUnderFelix: a real VPP enforces a Felix's messages as the simulated one does, also after a restart of the driver, which writes
// nothing, and again after a restart of VPP; endpoints are reported up when VPP has them.
func TestVPPUnderFelix(t *testing.T) {
	var reports felix.Report
	w := startTwin(t, theVPP(t), "node-1", agent.Config{
		Services: config.Services{Off: true}, Policies: config.Policies{PostDNAT: true, Felix: &attachment.Felix{OnReport: func(r felix.Report) { reports = r }}},
	})
	f := &foreignCase{aclCase: newACLCase(w, 1), t: t}
	say := func(text string) {
		t.Helper()
		ev := &event.Dataplane{Source: felix.SourceName}
		for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
			m := &pb.ToDataplane{}
			f.check(prototext.Unmarshal([]byte(paragraph), m))
			ev.Messages = append(ev.Messages, m)
		}
		for _, s := range w.sides {
			f.check(s.agent.Feed(context.Background(), ev))
		}
	}
	reaches := func(when string, api, client bool) {
		t.Helper()
		f.check(f.wake())
		f.check(f.compareDumps())
		for _, family := range [][3]string{{"10.1.1.22", "10.1.1.12", "10.1.2.13"}, {"fd00:1:1::22", "fd00:1:1::12", "fd00:1:2::13"}} {
			for _, q := range []struct {
				door, from string
				want       bool
			}{{cni.Overlay, family[2], api}, {doorClient, family[0], client}} {
				p := packet.NewTCP(f.end(netip.MustParseAddr(q.from)), netip.AddrPortFrom(netip.MustParseAddr(family[1]), 5432))
				out, err := f.send(q.door, same(p))
				f.check(err)
				if (len(out) == 1 && out[0].at == doorDB) != q.want {
					t.Fatalf("%s: %s passes should be %v; %d packets left", when, &p, q.want, len(out))
				}
			}
		}
	}
	up := func(when string) {
		t.Helper()
		if len(reports) != 2 {
			t.Fatalf("%s: reports %v", when, reports)
		}
		for id, at := range reports {
			if at.Health != felix.Up {
				t.Fatalf("%s: %s is %s: %s", when, id, at.Health, at.Reason)
			}
		}
	}
	pods, err := manifest.Load(stories + "/shared/tenants.yaml")
	f.check(err)
	f.check(w.apply(pods))
	reaches("nothing said", false, false) // closed until Felix has spoken (ADR 14)
	say(felixSays)
	f.check(w.compareWrites())
	reaches("all said", true, false)
	up("all said")

	before := len(w.written)
	f.check(w.stopAgents())
	w.away = false
	for _, s := range w.sides {
		f.check(w.startAgent(s))
	}
	say(felixSays) // before in sync
	f.check(w.feedAll(w.all()))
	if len(w.written) != before {
		t.Fatalf("after a restart written: %v", w.written[before:])
	}
	reaches("driver restarted", true, false)
	up("driver restarted")

	f.check(w.restartVPPs())
	reaches("VPP restarted", true, false)
	up("VPP restarted")

	say(`ipset_delta_update { id: "s:api" added_members: "10.1.1.22/32" added_members: "fd00:1:1::22/128" removed_members: "10.1.2.13/32" removed_members: "fd00:1:2::13/128" }`)
	f.check(w.compareWrites())
	reaches("after a delta", false, true)
}
