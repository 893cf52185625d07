package query

import (
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/doctor"
	"github.com/contiv-agent/contiv-agent/plugins/cni"
)

// podFlags are the flags of doctor for a node with run --cni.
type podFlags struct {
	on            bool
	socket, state string
	folders       flags.CNIFolders
}

func (f *podFlags) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&f.on, "cni", false, "also examine what run --cni needs and makes on this node")
	fs.StringVar(&f.socket, "status-socket", flags.Auto, "unix socket of the agent, as for run; empty: not examined; needs --cni")
	fs.StringVar(&f.state, "cni-state", "/var/lib/contiv-agent", "folder as for run; empty: not examined; needs --cni")
	f.folders.AddFlags(fs, "the list of contiv-cni must be the first there; empty: not examined; needs --cni",
		"contiv-cni must be there; empty: not examined; needs --cni")
}

// config returns what to examine; nil: nothing.
func (f *podFlags) config() *doctor.Pods {
	if !f.on {
		return nil
	}
	p := &doctor.Pods{Socket: flags.StatusSocket(f.socket), State: f.state}
	if f.folders.Lists != "" {
		p.List = filepath.Join(f.folders.Lists, cni.ListName)
	}
	if f.folders.Programs != "" {
		p.Program = filepath.Join(f.folders.Programs, cni.ProgramName)
	}
	if self, err := os.Executable(); err == nil {
		p.Original = filepath.Join(filepath.Dir(self), cni.ProgramName)
	}
	return p
}
