package interop

import (
	"fmt"
	"maps"
	"sync"

	"github.com/projectcalico/calico/felix/calc"
	"github.com/projectcalico/calico/felix/config"
	external "github.com/projectcalico/calico/felix/dataplane/external"
	theirs "github.com/projectcalico/calico/felix/proto"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	v1 "github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/sirupsen/logrus"
	"google.golang.org/protobuf/proto"

	ours "github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Felix is the real calculation graph with its event sequencer, as a synchronous function.
type Felix struct {
	graph     *calc.CalcGraph
	sequencer *calc.EventSequencer
	sent      []any
	keep      bool
	count     int
}

// parameters makes the package of the configuration fill its tables, which it does at first use and without a lock.
var parameters = sync.OnceFunc(func() { config.New() })

// NewFelix returns an empty graph. keep: its messages are kept until they are taken; otherwise they are counted.
func NewFelix(cfg ours.Config, tunnels, keep bool) *Felix {
	logrus.SetLevel(logrus.ErrorLevel)
	parameters()
	conf := config.New()
	conf.FelixHostname = cfg.Node
	conf.SetUseNodeResourceUpdates(cfg.NodeResources)
	conf.RouteSource = "CalicoIPAM"
	if cfg.WorkloadRoutes {
		conf.RouteSource = "WorkloadIPs"
	}
	if tunnels {
		conf.Encapsulation = config.Encapsulation{VXLANEnabled: true, VXLANEnabledV6: true}
	}
	f := &Felix{sequencer: calc.NewEventSequencer(&settings{}), keep: keep}
	f.sequencer.Callback = func(msg any) {
		f.count++
		if f.keep {
			f.sent = append(f.sent, msg)
		}
	}
	f.graph = calc.NewCalculationGraph(f.sequencer, nil, conf, func() {})
	f.Update([]api.Update{put(v1.ReadyFlagKey{}, true)})
	return f
}

// settings is the configuration as the sequencer sees it. It has only the datastore's two sources, unchanged: Felix's
// parsing and defaults are not part of the graph.
type settings struct{ global, host map[string]string }

// UpdateFrom implements the sequencer's interface.
func (s *settings) UpdateFrom(params map[string]string, source config.Source) (changed bool, err error) {
	mine := &s.global
	if source == config.DatastorePerHost {
		mine = &s.host
	}
	changed = *mine == nil || !maps.Equal(*mine, params)
	*mine = params
	return changed, nil
}

// RawValues implements the sequencer's interface.
func (s *settings) RawValues() map[string]string {
	merged := maps.Clone(s.global)
	maps.Copy(merged, s.host)
	return merged
}

// ToConfigUpdate implements the sequencer's interface.
func (s *settings) ToConfigUpdate() *theirs.ConfigUpdate {
	return &theirs.ConfigUpdate{Config: s.RawValues()}
}

// Update feeds objects.
func (f *Felix) Update(updates []api.Update) { f.graph.OnUpdates(updates) }

// InSync marks the end of the initial snapshot.
func (f *Felix) InSync() { f.graph.OnStatusUpdated(api.InSync) }

// Flush sends what is due.
func (f *Felix) Flush() {
	f.graph.Flush()
	f.sequencer.Flush()
}

// Take returns the messages sent since the last call, by way of their bytes on the wire.
func (f *Felix) Take() ([]*felix.ToDataplane, error) {
	out := make([]*felix.ToDataplane, 0, len(f.sent))
	for i, msg := range f.sent {
		envelope, err := external.WrapPayloadWithEnvelope(msg, uint64(i))
		if err != nil {
			return nil, err
		}
		raw, err := proto.Marshal(envelope)
		if err != nil {
			return nil, fmt.Errorf("%T: %w", msg, err)
		}
		m := &felix.ToDataplane{}
		if err := proto.Unmarshal(raw, m); err != nil {
			return nil, fmt.Errorf("%T: %w", msg, err)
		}
		m.SequenceNumber = 0
		out = append(out, m)
	}
	f.sent = f.sent[:0]
	return out, nil
}
