package vppagent_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestPartsAreWorkedOutInTime: the parts that the agent gives to values of interfaces follow every change that concerns them, although the agent works
// them out only when it knows of such a change. lab.note compares after each transaction.
func TestPartsAreWorkedOutInTime(t *testing.T) {
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		tt := &rapidTB{TB: t, r: r}
		defer tt.done()
		l := newLab(tt, vppagent.Config{DenyUnknown: true, Journal: filepath.Join(dir, fmt.Sprint(runs))})
		l.sim.AddInterface(sim.Interface{Name: "uplink"})
		pods(l)
		l.located(event.Located{Uplink: "uplink"})
		for range rapid.IntRange(5, 40).Draw(r, "steps") {
			partsStep(r, l)
		}
		l.sim.Fail(nil)
		l.note(l.resync())
	})
}

// partsStep makes a random change of the desired state, of VPP's interfaces or of the node's.
func partsStep(r *rapid.T, l *lab) {
	names := []string{"tap1", "tap2", "tap3", "uplink"}
	name := rapid.SampledFrom(names).Draw(r, "interface")
	switch rapid.IntRange(0, 9).Draw(r, "step") {
	case 0:
		l.note(l.put(&nat.Nat44Global{Forwarding: rapid.Bool().Draw(r, "forwarding")}))
	case 1:
		l.located(event.Located{Uplink: "uplink", Host: rapid.SampledFrom(names).Draw(r, "host")})
	case 2:
		addPod(l, name, fmt.Sprintf("10.1.1.%d", 2+rapid.IntRange(0, 3).Draw(r, "address")))
		l.note(l.agent.Interfaces(context.Background()))
	case 3:
		if name != "uplink" {
			l.sim.RemoveInterface(name)
			l.note(l.agent.Interfaces(context.Background()))
		}
	case 4:
		refused := rapid.SampledFrom([]string{"", "nat44_interface_add_del_feature", "acl_interface_set_acl_list", "acl_add_replace", "feature_enable_disable", "nat44_ed_plugin_enable_disable", "nat44_forwarding_enable_disable"}).Draw(r, "refused")
		l.sim.Fail(func(request string) (int32, bool) {
			if request == refused {
				return -1, false
			}
			return 0, false
		})
	case 5:
		l.note(l.agent.Retry(context.Background()))
	case 6:
		l.note(l.put(dnat("default/web", "10.96.0.10", uint32(80+rapid.IntRange(0, 3).Draw(r, "port")), "10.1.1.2:8080")))
	case 7:
		if key := rapid.SampledFrom(keysOf(name)).Draw(r, "key"); l.want[key] != nil {
			l.note(l.del(key))
		}
	default:
		l.note(l.put(rapid.SampledFrom(valuesOn(name)).Draw(r, "value")))
	}
}

// valuesOn are values that concern an interface.
func valuesOn(name string) []proto.Message {
	return []proto.Message{
		&nat.Nat44Interface{Name: name, NatInside: true, NatOutside: true},
		&nat.Nat44Interface{Name: name, OutputFeature: true},
		&contivacl.InterfaceACLs{Interface: name},
		&contivacl.InterfaceACLs{Interface: "default/" + name},
		&acl.ACL{Name: "a", Rules: []*acl.ACL_Rule{rule(acl.ACL_Rule_PERMIT, "tcp", "", "", 80)}, Interfaces: &acl.ACL_Interfaces{Ingress: []string{name}}},
		&l3.ARPEntry{Interface: name, IpAddress: "10.1.1.9", PhysAddress: "02:fe:00:00:00:01", Static: true},
		&l3.Route{DstNetwork: netip.MustParsePrefix("10.9.0.0/24").String(), OutgoingInterface: name, NextHopAddr: "10.1.1.9"},
		&interfaces.Interface{Name: name, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true},
	}
}

func keysOf(name string) (keys []string) {
	for _, m := range valuesOn(name) {
		keys = append(keys, kv.Key(m))
	}
	return keys
}
