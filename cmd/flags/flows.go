package flags

import (
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
)

// Flows are the flags of the watcher of flows.
type Flows struct {
	every  time.Duration
	folder string
}

// AddFlags adds the flags.
func (f *Flows) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&f.every, "flows", 0, "how often to read dropped packets and connections from VPP, which the flows command shows; 1s is a good value; 0: never")
	fs.StringVar(&f.folder, "flows-folder", "/tmp", "VPP's /tmp as the agent sees it: VPP writes captures of dropped packets there; the agent reads and removes them")
}

// Check returns the errors of the flags.
func (f *Flows) Check() error {
	switch {
	case f.every < 0 || f.every > 0 && f.every < 100*time.Millisecond:
		return exit.Usage(fmt.Errorf("--flows %s: must be 0, or at least 100ms", f.every))
	case f.every > 0 && f.folder == "":
		return exit.Usage(errors.New("--flows-folder: must not be empty"))
	}
	return nil
}

// Apply puts the watcher into the configuration, which has its logger and the socket of its VPP, if the flags ask for one.
func (f *Flows) Apply(cfg *agent.Config) {
	if f.every == 0 {
		return
	}
	name := fnv.New32a()
	_, _ = name.Write([]byte(cfg.NodeName + " " + cfg.VPP.Socket)) // a hash returns no error
	cfg.Process.Flows = flows.New(flows.Config{
		Node: cfg.NodeName, Every: f.every, Folder: f.folder, Name: fmt.Sprintf("%08x", name.Sum32()), Logger: cfg.Process.Logger,
	})
}
