package flags

import (
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent/cleanup"
	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/rcu"
)

// Cleanup are the flags of the removal of an ended agent's objects. The defaults are those of run.
type Cleanup struct {
	cfg   cleanup.Config
	files CNIFolders
	state string
	node  bool
}

// AddFlags adds the flags.
func (f *Cleanup) AddFlags(fs *pflag.FlagSet) {
	AddSocket(fs, &f.cfg.Socket)
	AddLock(fs, &f.cfg.Lock)
	fs.StringVar(&f.cfg.Journal, "journal", Auto, "journal of the agent; empty: none; auto: /run/contiv-agent/journal for root, else none")
	fs.StringVar(&f.cfg.StatusSocket, "status-socket", Auto, "unix socket of the agent's status, which cleanup occupies while it runs; empty: none; auto: the default of run")
	f.files.AddFlags(fs, "cleanup removes the agent's file there; empty: it does not", "cleanup removes the agent's plugin there; empty: it does not")
	fs.StringVar(&f.state, "cni-state", CNIState, "folder of the agent's files: cleanup gives a NIC that VPP has (run --node-nic) back to the kernel, and with --node removes the files")
	fs.BoolVar(&f.node, "node", false, "also remove what agents with --cni make on the node outside of VPP, by its marks in the kernel, and the files in --cni-state. VPP need not run. Pods that still run lose their network for good")
}

// Config returns the configuration, without a logger.
func (f *Cleanup) Config() cleanup.Config {
	cfg := f.cfg
	cfg.Lock, cfg.Journal, cfg.StatusSocket = LockPath(cfg.Lock, cfg.Socket), JournalPath(cfg.Journal, false), StatusSocket(cfg.StatusSocket)
	cfg.Files = f.files.Files()
	cfg.SettleNIC = func() (func() error, error) { return settleNIC(f.state) }
	if f.node {
		cfg.Node = nodeOf(&cfg, f.files, f.state)
	}
	return cfg
}

// nodeOf returns what agents make on a node.
func nodeOf(cfg *cleanup.Config, files CNIFolders, state string) *cleanup.Node {
	in := func(name string) string { return filepath.Join(state, name) }
	n := &cleanup.Node{
		Databases: []string{in(addressesFile), in(attachmentsFile)},
		Patterns:  []string{in(addressesFile + "*"), in(attachmentsFile + "*"), in(spoolFolder), in(memifFolder), in(nicFile), in("." + nicFile + ".*.tmp"), GRPCSocket(Auto)},
		Folders:   []string{state},
		Recover: func() error {
			e := expedite(state)
			if _, err := os.Stat(e.Mark); err != nil {
				return nil // no agent was killed while it was on
			}
			return e.Recover()
		},
	}
	if files.Lists != "" {
		n.Patterns = append(n.Patterns, filepath.Join(files.Lists, "."+cni.ListName+".*.tmp"))
	}
	if files.Programs != "" {
		n.Patterns = append(n.Patterns, filepath.Join(files.Programs, "."+cni.ProgramName+".*.tmp"))
	}
	for _, path := range []string{cfg.Journal, cfg.StatusSocket} {
		if path != "" {
			n.Folders = append(n.Folders, filepath.Dir(path))
		}
	}
	if cfg.Journal != "" {
		dir, base := filepath.Split(cfg.Journal) // with the files of the guard and of quarantine beside it
		n.Patterns = append(n.Patterns, cfg.Journal+".*", filepath.Join(dir, "."+base+".*.tmp"))
	}
	return n
}

// expedite is the kernel's switch, and the agent's mark that it is on.
func expedite(state string) rcu.Expedite {
	return rcu.Expedite{Switch: rcu.SwitchPath, Mark: filepath.Join(state, "rcu_expedited")}
}
