package flags

import (
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/counters"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/vpp/stats"
	"github.com/contiv-agent/contiv-agent/vppagent/quarantine"
)

// VPP are the flags of the VPP that run programs.
type VPP struct {
	Socket   string
	Sim      bool
	lock     string
	journal  string
	recheck  time.Duration
	sessions time.Duration
	stats    string
	keepOut  bool
}

// AddFlags adds the flags.
func (f *VPP) AddFlags(fs *pflag.FlagSet) {
	AddSocket(fs, &f.Socket)
	AddLock(fs, &f.lock)
	fs.BoolVar(&f.Sim, "sim", false, "use the embedded VPP, with interfaces as a CNI makes them, instead of --vpp-socket")
	fs.StringVar(&f.journal, "journal", Auto, "file that records the agent's objects in VPP that VPP keeps no tag for; empty: memory only; auto: /run/contiv-agent/journal for root and a real VPP")
	fs.BoolVar(&f.keepOut, "quarantine", true, "keep out a value if VPP ends twice when it gets that value alone, until the object changes or contiv-agent release; a file beside --journal remembers it")
	fs.DurationVar(&f.recheck, "recheck", config.DefaultRecheck, "period in which the agent compares all its objects in VPP once, part by part, with the desired state, and repairs them; 0: only after a reconnect")
	fs.DurationVar(&f.sessions, "count-sessions", time.Second, "count NAT sessions this often, and free some when 80 % of the table is in use; less often without --stats-socket, because VPP then stops forwarding while it counts; 0: never")
	fs.StringVar(&f.stats, "stats-socket", Auto, "stats socket of VPP: VPP counts the packets that each rule of a policy matches, and the policy command shows them; empty: VPP does not count; auto: stats.sock beside --vpp-socket")
}

// Apply writes the flags into the configuration.
func (f *VPP) Apply(cfg *agent.Config) {
	cfg.VPP.Socket = f.Socket
	if !f.Sim {
		cfg.Lock = LockPath(f.lock, f.Socket)
	}
	cfg.VPPAgent.Journal, cfg.VPPAgent.Recheck, cfg.NATTable.Every = JournalPath(f.journal, f.Sim), f.recheck, f.sessions
	cfg.VPPAgent.Quarantine = f.quarantine(cfg)
	cfg.Policies.Counters = f.ruleCounters()
	if c, ok := cfg.Policies.Counters.(nattable.SessionCounter); ok {
		cfg.NATTable.Counter = c
	}
}

// quarantine returns what keeps values out that end VPP; nil: none is kept out.
func (f *VPP) quarantine(cfg *agent.Config) *quarantine.Ward {
	if !f.keepOut {
		return nil
	}
	out := quarantine.Config{Logger: cfg.Process.Logger}
	if cfg.VPPAgent.Journal != "" {
		out.File = cfg.VPPAgent.Journal + ".quarantine"
	}
	return quarantine.New(out)
}

// ruleCounters returns VPP's counters; nil: VPP does not count.
func (f *VPP) ruleCounters() counters.RuleCounters {
	switch {
	case f.stats == "" || f.Sim:
		return nil
	case f.stats == Auto: // startup.conf may name another path
		return counters.IfThere{Reader: stats.Reader{Socket: filepath.Join(filepath.Dir(f.Socket), "stats.sock")}}
	}
	return stats.Reader{Socket: f.stats}
}
