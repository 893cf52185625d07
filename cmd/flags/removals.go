package flags

import (
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/plugins/lossguard"
)

// Removals are the flags of the guard that holds the removal of many objects at once.
type Removals struct{ limits lossguard.Limits }

// AddFlags adds the flags.
func (f *Removals) AddFlags(fs *pflag.FlagSet) {
	fs.Uint8Var(&f.limits.Share, "hold-removals", lossguard.DefaultShare, "hold removals that would remove more than this part, in percent, of the objects of a kind, of the endpoints, of the frontends or of the allow rules of a source within 10 s, as of an API server that answers with empty lists; additions and other changes go on. Endpoints, pods and policies that others replace do not count, nor endpoints of a Service that keeps a tenth of them. After a restart of the agent, the first sync is held likewise. contiv-agent release carries them out. 0: never hold")
	fs.IntVar(&f.limits.Least, "hold-removals-min", lossguard.DefaultLeast, "never hold fewer removals than this")
	fs.DurationVar(&f.limits.For, "hold-removals-for", lossguard.DefaultFor, "how long removals are held; 0: until contiv-agent release")
}

// Apply puts the guard into the configuration, which has its pods and its journal.
func (f *Removals) Apply(cfg *agent.Config) {
	if f.limits.Share == 0 {
		return
	}
	guard := lossguard.Config{Limits: f.limits, Gone: cfg.Pods.Disconnected(cfg.NodeName), Logger: cfg.Process.Logger}
	if cfg.VPPAgent.Journal != "" { // the record lives as long as the journal, so as long as VPP can
		guard.Record = cfg.VPPAgent.Journal + ".counts"
	}
	cfg.Process.Removals = lossguard.New(guard)
}

// Check returns the errors of the flags.
func (f *Removals) Check() error {
	if f.limits.Share == 0 {
		return nil
	}
	return exit.Usage(f.limits.Validate())
}
