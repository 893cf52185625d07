package flags

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/recorder"
)

// Recorder are the flags of the flight recorder.
type Recorder struct {
	dir  string
	size int
}

// AddFlags adds the flags.
func (f *Recorder) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.dir, "flight-recorder", "", "folder for a journal of everything that the agent receives and does, which the replay command plays; it has objects of the cluster, so only the agent's user can read it; one folder for each agent; empty: no journal")
	fs.IntVar(&f.size, "flight-recorder-size", recorder.DefaultBound>>20, "largest size of the journal in MiB; the oldest records are removed")
}

// largestSize is the largest journal, in MiB.
const largestSize = 1 << 20

// Apply adds the recorder to the configuration, if the flags ask for one. The configuration must have its sources.
func (f *Recorder) Apply(cfg *agent.Config, version string) error {
	switch {
	case f.dir == "":
		return nil
	case f.size < 1 || f.size > largestSize:
		return exit.Usage(fmt.Errorf("--flight-recorder-size %d: must be 1 to %d", f.size, largestSize))
	}
	r, err := recorder.New(recorder.Config{
		Dir: f.dir, Bound: int64(f.size) << 20, Node: cfg.NodeName, Version: version, Settings: cfg.Process.Flags, Sources: cfg.SourceNames(), Logger: cfg.Process.Logger,
	})
	cfg.Process.Recorder = r
	return err
}
