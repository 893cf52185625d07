// Command calc turns datastore entries on its standard input into the messages Felix v3.31.0 sends to its dataplane: the
// real calculation graph and event sequencer as a filter, with the contract of `contiv-agent calc`.
//
// Input: {"key":…,"value":…}, {"key":…,"deleted":true}, {"status":"in-sync"}, {"flush":true}. Output: one ToDataplane per
// line as protobuf-JSON, or with -frames each as Felix frames it for a driver; after a flush {"flushed":true}, or a frame of
// no bytes.
// Invariant: entries are parsed, and messages are made, by Calico's own code alone.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"

	"github.com/sirupsen/logrus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/projectcalico/calico/felix/calc"
	"github.com/projectcalico/calico/felix/config"
	external "github.com/projectcalico/calico/felix/dataplane/external"
	felix "github.com/projectcalico/calico/felix/proto"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
)

type line struct {
	Key, Value, Status string
	Deleted, Flush     bool
}

// settings is the configuration as the sequencer sees it: the datastore's two sources, unchanged.
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
func (s *settings) ToConfigUpdate() *felix.ConfigUpdate {
	return &felix.ConfigUpdate{Config: s.RawValues()}
}

// sink is what takes entries: the graph, or a filter before it.
type sink interface {
	OnUpdates([]api.Update)
	OnStatusUpdated(api.SyncStatus)
}

func main() {
	logrus.SetLevel(logrus.FatalLevel)
	conf := config.New()
	flag.StringVar(&conf.FelixHostname, "hostname", "node-1", "the node")
	flag.StringVar(&conf.RouteSource, "route-source", "CalicoIPAM", "CalicoIPAM or WorkloadIPs")
	nodes := flag.Bool("use-node-resources", false, "addresses of nodes come from Nodes")
	frames := flag.Bool("frames", false, "write what Felix writes to a driver")
	validate := flag.Bool("validate", false, "let Felix's validation filter replace what is not valid by a deletion")
	flag.Parse()
	conf.SetUseNodeResourceUpdates(*nodes)
	conf.Encapsulation = config.Encapsulation{VXLANEnabled: true, VXLANEnabledV6: true}
	out := bufio.NewWriterSize(os.Stdout, 1<<16)
	if err := run(conf, out, *frames, *validate); err != nil {
		fmt.Fprintln(os.Stderr, "calc:", err)
		os.Exit(1)
	}
}

func run(conf *config.Config, out *bufio.Writer, frames, validate bool) error {
	sequencer := calc.NewEventSequencer(&settings{})
	var failed error
	sent := uint64(0)
	sequencer.Callback = func(msg any) {
		envelope, err := external.WrapPayloadWithEnvelope(msg, sent)
		if err == nil {
			err = write(out, envelope, frames)
		}
		if err != nil && failed == nil {
			failed = fmt.Errorf("%T: %w", msg, err)
		}
		sent++
	}
	graph := calc.NewCalculationGraph(sequencer, nil, conf, func() {})
	graph.OnUpdates([]api.Update{{KVPair: model.KVPair{Key: model.ReadyFlagKey{}, Value: true}, UpdateType: api.UpdateTypeKVNew}})
	var to sink = graph
	if validate {
		to = calc.NewValidationFilter(graph, conf)
	}
	synced, told := false, false
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() && failed == nil {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return fmt.Errorf("%q: %w", in.Text(), err)
		}
		switch {
		case l.Status == "in-sync":
			to.OnStatusUpdated(api.InSync)
			synced = true
		case l.Flush:
			graph.Flush()
			sequencer.Flush()
			if synced && !told { // as Felix's own loop around the graph does
				sequencer.Callback(&felix.InSync{})
				told = true
			}
			if err := flushed(out, frames); err != nil {
				return err
			}
		default:
			u, err := update(l)
			if err != nil {
				return err
			}
			to.OnUpdates([]api.Update{u})
		}
	}
	if failed != nil {
		return failed
	}
	return in.Err()
}

func update(l line) (u api.Update, err error) {
	if u.Key = model.KeyFromDefaultPath(l.Key); u.Key == nil {
		return u, fmt.Errorf("Calico has no key %q", l.Key)
	}
	u.UpdateType = api.UpdateTypeKVUpdated
	if l.Deleted {
		u.UpdateType = api.UpdateTypeKVDeleted
		return u, nil
	}
	if u.Value, err = model.ParseValue(u.Key, []byte(l.Value)); err != nil {
		return u, fmt.Errorf("%s: %w", l.Key, err)
	}
	return u, nil
}

func write(out *bufio.Writer, m *felix.ToDataplane, frames bool) error {
	if !frames {
		raw, err := protojson.Marshal(m)
		if err != nil {
			return err
		}
		_, err = out.Write(append(raw, '\n'))
		return err
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	_, err = out.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw...))
	return err
}

// flushed marks the end of a flush and lets the reader have all of it.
func flushed(out *bufio.Writer, frames bool) error {
	mark := []byte("{\"flushed\":true}\n")
	if frames {
		mark = make([]byte, 8)
	}
	if _, err := out.Write(mark); err != nil {
		return err
	}
	return out.Flush()
}
