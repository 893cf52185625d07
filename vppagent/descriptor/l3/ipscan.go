package l3

import (
	"errors"
	"fmt"

	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// neighbourAge is the lifetime of a silent neighbour, by family: seconds; 0: for ever.
type neighbourAge [2]uint32

// IPScanNeighbor describes ligato's IPScanNeighbor. VPP no longer scans (ip_neighbor_config, VPP 24.06): it checks each neighbour
// when that is due. So stale_threshold is the only field with an effect, and the pace of a scan cannot be set. The limit of the
// number of neighbours stays unchanged.
func IPScanNeighbor() *descriptor.Descriptor {
	return descriptor.Spec[*l3.IPScanNeighbor, *neighbourAge]{
		Name: "ip-scan-neighbor", Prefix: kv.IPScanNeighborKey,
		Compile: compileScan, Message: (*neighbourAge).scanMessage,
		Equal: func(have, want *neighbourAge) bool { return *have == *want },
		Create: func(_ *descriptor.World, a *neighbourAge) ([]descriptor.Op, error) {
			return neighbourAge{}.changeAge(*a), nil
		},
		Update: func(_ *descriptor.World, have, want *neighbourAge) ([]descriptor.Op, error) {
			return have.changeAge(*want), nil
		},
		Delete: func(_ *descriptor.World, a *neighbourAge) ([]descriptor.Op, error) {
			return a.changeAge(neighbourAge{}), nil
		},
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{ageRequest(0), ageRequest(1)}
		},
		Retrieve: retrieveAges,
	}.Descriptor()
}

func ageRequest(family int) descriptor.Request {
	af := ip_types.AddressFamily(family)
	return descriptor.AskRequest("ip_neighbor_config_get "+af.String(), &ip_neighbor.IPNeighborConfigGet{Af: af})
}

func compileScan(_ string, m *l3.IPScanNeighbor) (*neighbourAge, error) {
	for _, pace := range []struct {
		field string
		n     uint32
	}{
		{"scan_interval", m.GetScanInterval()}, {"max_proc_time", m.GetMaxProcTime()}, {"max_update", m.GetMaxUpdate()}, {"scan_int_delay", m.GetScanIntDelay()},
	} {
		if pace.n != 0 {
			return nil, fmt.Errorf("%s: not supported: VPP has no scan to pace", pace.field)
		}
	}
	a := &neighbourAge{}
	switch {
	case m.GetMode() < 0 || m.GetMode() > l3.IPScanNeighbor_BOTH:
		return nil, fmt.Errorf("mode: unknown %d", m.GetMode())
	case m.GetMode() == l3.IPScanNeighbor_DISABLED:
		return a, nil
	case m.GetStaleThreshold() == 0:
		return nil, errors.New("stale_threshold: 0, and VPP's default is that neighbours stay")
	case m.GetStaleThreshold() > 1<<20:
		return nil, fmt.Errorf("stale_threshold: %d is above %d", m.GetStaleThreshold(), 1<<20)
	}
	for family, bit := range []l3.IPScanNeighbor_Mode{l3.IPScanNeighbor_IPV4, l3.IPScanNeighbor_IPV6} {
		if m.GetMode()&bit != 0 {
			a[family] = m.GetStaleThreshold() * 60
		}
	}
	return a, nil
}

func (a *neighbourAge) scanMessage() *l3.IPScanNeighbor {
	m := &l3.IPScanNeighbor{StaleThreshold: max(a[0], a[1]) / 60}
	if a[0] != 0 {
		m.Mode |= l3.IPScanNeighbor_IPV4
	}
	if a[1] != 0 {
		m.Mode |= l3.IPScanNeighbor_IPV6
	}
	return m
}

// changeAge first asks for the other settings of a family, because one message sets them together with the age.
func (a neighbourAge) changeAge(want neighbourAge) (ops []descriptor.Op) {
	for family := range want {
		if a[family] == want[family] {
			continue
		}
		ops = append(ops, descriptor.Op{Asks: true, Call: ageRequest(family).Call, Then: func(r vpp.Reply) []descriptor.Op {
			m := r.Msg.(*ip_neighbor.IPNeighborConfigGetReply)
			return []descriptor.Op{{Call: descriptor.Write(&ip_neighbor.IPNeighborConfig{
				Af: ip_types.AddressFamily(family), MaxNumber: m.MaxNumber, MaxAge: want[family], Recycle: m.Recycle,
			})}}
		}})
	}
	return ops
}

func retrieveAges(_ *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	var got neighbourAge
	for family := range got {
		id := ageRequest(family).ID
		r, err := d.Reply(id)
		if err != nil {
			return nil, err
		}
		m, ok := r.Msg.(*ip_neighbor.IPNeighborConfigGetReply)
		if !ok {
			return nil, fmt.Errorf("%s: got %T", id, r.Msg)
		}
		got[family] = m.MaxAge
	}
	var out []descriptor.Found
	c.Each(func(key string, state any, wanted bool) {
		if (wanted || c.Wanted(key) == nil) && (got != neighbourAge{} || *state.(*neighbourAge) == neighbourAge{}) && len(out) == 0 {
			out = append(out, descriptor.Found{Key: key, State: &got})
		}
	})
	return out, nil
}
