package nat

import (
	"slices"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// only is a set of one candidate.
type only struct {
	d *dnat
}

func (o only) Wanted(string) any              { return o.d }
func (o only) Each(f func(string, any, bool)) { f(o.d.key, o.d, true) }

// Retrieve finds the wanted state regardless of the order in VPP, and every drift gives another state.
func TestRetrieveSeesDrift(t *testing.T) {
	d, err := compileDNat("config/vpp/nat/v2/dnat44/web", &nat.DNat44{Label: "web", StMappings: []*nat.DNat44_StaticMapping{{
		ExternalIp: "10.96.0.1", ExternalPort: 80, TwiceNat: nat.DNat44_StaticMapping_SELF, SessionAffinity: 60,
		LocalIps: []*nat.DNat44_StaticMapping_LocalIP{{LocalIp: "10.1.1.1", LocalPort: 80}, {LocalIp: "10.1.1.2", LocalPort: 80}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	type details = nat44_ed.Nat44LbStaticMappingDetails
	for _, tc := range []struct {
		name  string
		drift func(*details)
		same  bool
	}{
		{"none", func(*details) {}, true},
		{"order", func(m *details) { slices.Reverse(m.Locals) }, true},
		{"flags", func(m *details) { m.Flags = nat_types.NAT_IS_OUT2IN_ONLY }, false},
		{"weight", func(m *details) { m.Locals[2].Probability = 2 }, false},
		{"pad", func(m *details) { m.Locals = m.Locals[1:] }, false},
		{"backend more", func(m *details) {
			m.Locals = append(m.Locals, nat44_ed.Nat44LbAddrPort{Addr: [4]byte{10, 1, 1, 3}, Port: 80, Probability: 1})
		}, false},
		{"backend less", func(m *details) { m.Locals = m.Locals[:3] }, false},
		{"port", func(m *details) { m.ExternalPort = 81 }, false},
		{"affinity", func(m *details) { m.Tag = descriptor.NewTag("n", descriptor.Fingerprint("affinity 61"), "web") }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := descriptor.NewWorld(descriptor.Options{}, func(string) any { return nil })
			create := d.mappings[0].create(w).Call.Msg.(*nat44_ed.Nat44AddDelLbStaticMapping)
			m := &details{
				ExternalAddr: create.ExternalAddr, ExternalPort: create.ExternalPort, Protocol: create.Protocol, Flags: create.Flags,
				Tag: create.Tag, Locals: slices.Clone(create.Locals),
			}
			tc.drift(m)
			requests := dnatDumps(w, nil)
			found, err := retrieveDNat(w, descriptor.NewDump(requests, []vpp.Reply{{Details: []api.Message{m}}, {}, {}}), only{d})
			if err != nil || len(found) != 1 || !found[0].Ours || found[0].Key != d.key {
				t.Fatalf("found %+v, %v", found, err)
			}
			got := found[0].State.(*dnat)
			if equalDNat(got, d) != tc.same {
				t.Errorf("equal: %t, want %t: %+v", !tc.same, tc.same, got.mappings)
			}
			if ops, err := updateDNat(w, got, d); err != nil || (len(ops) == 0) != tc.same {
				t.Errorf("%d requests, %v", len(ops), err)
			}
		})
	}
}
