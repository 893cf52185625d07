package flags

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/ipam"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
	"github.com/contiv-agent/contiv-agent/plugins/podnet/probe"
	"github.com/contiv-agent/contiv-agent/source/kube/removal"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/rcu"
)

// CNIState is the default of --cni-state.
const CNIState = "/var/lib/contiv-agent"

// Names in --cni-state, beside nicFile.
const (
	addressesFile   = "addresses.db"
	attachmentsFile = "attachments.db"
	memifFolder     = "memif"
	spoolFolder     = "cni"
)

// Pods are the flags of the node's network.
type Pods struct {
	on    bool
	state string
	mtu   int
	kind  string // of pods' interfaces
	brisk bool
	path  direct
	node  CNIFolders
	from  string // the plugin's program
	// deleted names the objects whose deletion removes the agent.
	deleted string
	set     *pflag.FlagSet // knows which flags are given
}

// Connect reports whether the agent connects pods.
func (f *Pods) Connect() bool { return f.on }

// CNIFolders are the folders in which container runtimes look for CNI plugins; "": none.
type CNIFolders struct{ Lists, Programs string }

// AddFlags adds the flags, with a text about each folder's file.
func (f *CNIFolders) AddFlags(set *pflag.FlagSet, list, program string) {
	set.StringVar(&f.Lists, "cni-conf-dir", "/etc/cni/net.d", "folder of network configuration lists: "+list)
	set.StringVar(&f.Programs, "cni-bin-dir", "/opt/cni/bin", "folder of CNI plugins: "+program)
}

// Files returns the paths of the agent's files in the folders.
func (f *CNIFolders) Files() (out []string) {
	if f.Lists != "" {
		out = append(out, filepath.Join(f.Lists, cni.ListName))
	}
	if f.Programs != "" {
		out = append(out, filepath.Join(f.Programs, cni.ProgramName))
	}
	return out
}

// AddFlags adds the flags.
func (f *Pods) AddFlags(set *pflag.FlagSet) {
	f.set = set
	set.BoolVar(&f.on, "cni", false, "connect pods: serve the CNI plugin contiv-cni at --status-socket, and make interfaces, addresses, routes, and VXLAN tunnels between nodes (see --node-to-node), in VPP and in the kernel. The node's NIC stays the kernel's, unless --node-nic gives it to VPP. VPP must run in the agent's network namespace, with the plugins af_packet and vxlan")
	set.StringVar(&f.state, "cni-state", CNIState, "folder with the Bolt files of attachments and addresses, and with the memif sockets of pods, which VPP must see under the same path; needs --cni")
	set.IntVar(&f.mtu, "link-mtu", 0, "MTU of the links between nodes; with tunnels between nodes pods get 50 bytes less, or 70 if the tunnels cross IPv6; needs --cni (default: 1500)")
	set.StringVar(&f.kind, "pod-interface", protocol.InterfaceVeth, "interfaces of pods that ask for none by the annotation "+protocol.AnnotationInterface+": veth, which VPP reads by af_packet; tap, by which VPP and the pod's kernel exchange packets through memory (vhost), for which VPP needs "+strings.Join(podnet.TapDevices, " and ")+", NET_ADMIN and, from 26.06 on, tap_plugin.so; auto: tap if this process can open these devices when the pod starts, else veth. A pod keeps the kind that it started with. A tap vanishes from the pod while VPP is away; needs --cni")
	set.BoolVar(&f.brisk, "expedite-rcu", true, "write 1 to "+rcu.SwitchPath+" while VPP makes or removes the interface of a pod, or ends, and 0 afterwards: VPP then stops forwarding for some 5 ms instead of 40, and the kernel interrupts all processors a few times. An agent that is killed meanwhile leaves 1, and the next one writes 0; needs --cni")
	f.path.addFlags(set)
	f.node.AddFlags(set, cni.ListName+" exists there while the node can serve pods, so that container runtimes start pods only then; empty: none is written; needs --cni",
		cni.ProgramName+" is copied there before VPP is configured; empty: it is not; needs --cni")
	set.StringVar(&f.deleted, "clean-when-deleted", "", "NAMESPACE/DAEMONSET/SERVICEACCOUNT of this agent: an agent that is stopped after both objects were deleted removes everything that agents made on the node, as cleanup --node does; it needs the right to list and watch them; empty: it leaves the node to the next agent; needs --cni and an API server (--kubeconfig or --in-cluster)")
	set.StringVar(&f.from, "cni-program", Auto, "the program that is copied to --cni-bin-dir; auto: contiv-cni beside this program; needs --cni")
}

// Check returns the errors of the flags.
func (f *Pods) Check(node string, embedded bool) error {
	switch {
	case !f.on:
		for _, name := range append([]string{"cni-state", "link-mtu", "pod-interface", "expedite-rcu", "cni-conf-dir", "cni-bin-dir", "cni-program"}, directFlags...) {
			if f.set.Changed(name) {
				return exit.Usage(fmt.Errorf("--%s: needs --cni", name))
			}
		}
		if f.deleted != "" { // manifests give an empty one
			return exit.Usage(errors.New("--clean-when-deleted: needs --cni"))
		}
		return nil
	case embedded:
		return exit.Usage(errors.New("--cni: the embedded VPP carries no packets of pods; give --vpp-socket"))
	}
	if !slices.Contains([]string{protocol.InterfaceVeth, protocol.InterfaceTap, Auto}, f.kind) {
		return exit.Usage(fmt.Errorf("--pod-interface %q: must be veth, tap or auto", f.kind))
	}
	s := podnet.Settings{NodeName: node, MTU: f.mtu}
	if err := s.Validate(); err != nil {
		return exit.Usage(fmt.Errorf("--link-mtu: %w", err))
	}
	if _, err := f.path.settings(); err != nil {
		return exit.Usage(err)
	}
	if _, err := removal.Parse(f.deleted); f.deleted != "" && err != nil {
		return exit.Usage(fmt.Errorf("--clean-when-deleted: %w", err))
	}
	return nil
}

// Open opens the files and completes the configuration. server is the API server's host and port. Without --cni it changes nothing.
func (f *Pods) Open(cfg *agent.Config, server string, now time.Time, log *slog.Logger) error {
	if !f.on {
		return nil
	}
	path, err := f.path.settings()
	if err != nil {
		return err
	}
	if err := f.install(log); err != nil {
		return err
	}
	pool, err := ipam.Open(now, ipam.Config{File: filepath.Join(f.state, addressesFile)})
	if err != nil {
		return err
	}
	network, err := podnet.New(podnet.Config{
		Settings: podnet.Settings{NodeName: cfg.NodeName, MTU: f.mtu, ServiceCIDRs: cfg.Services.ServiceCIDRs, Direct: path},
		File:     filepath.Join(f.state, attachmentsFile), Memifs: filepath.Join(f.state, memifFolder), Prefer: f.prefer(podnet.TapDevices, log), Pool: pool, Closed: cfg.DeniesUnknown(), Probe: probe.Ask, Logger: log,
	})
	if err != nil {
		return errors.Join(err, pool.Close())
	}
	cfg.Pods = &config.Pods{Network: network, ToNodes: path.ToNodes(), Spool: filepath.Join(f.state, spoolFolder), Expedite: f.expedite(log)}
	if cfg.Pods.NIC, err = f.path.takeOver(f.state, network, server, log); err != nil {
		return err
	}
	if f.node.Lists != "" {
		content, err := cni.ListConfig{Socket: other(cfg.Listen.Status, protocol.DefaultSocket), Spool: other(cfg.Pods.Spool, protocol.DefaultSpool)}.Encode()
		if err != nil {
			return err
		}
		cfg.Pods.List = &cni.Publisher{Path: filepath.Join(f.node.Lists, cni.ListName), Content: content}
		f.warn(cfg.Pods.List, log)
	}
	return nil
}

// prefer returns what chooses the interface of a pod that asks for none. The log has what it chooses now.
func (f *Pods) prefer(devices []string, log *slog.Logger) func() string {
	if f.kind != Auto {
		return func() string { return f.kind }
	}
	kind, why := podnet.PreferTaps(devices)
	log.Info("interfaces of pods", "kind", kind, "reason", why)
	return func() string {
		kind, _ := podnet.PreferTaps(devices) // the pod has a veth then, as the log of the start says
		return kind
	}
}

// expedite returns how the kernel's waits are shortened: not at all if the kernel has no such switch, or this process may not use it.
func (f *Pods) expedite(log *slog.Logger) rcu.Expedite {
	if !f.brisk {
		return rcu.Expedite{}
	}
	e := expedite(f.state)
	if err := e.Recover(); err != nil {
		log.Info("VPP makes and removes interfaces of pods as slowly as the kernel waits for its processors", "err", err)
		return rcu.Expedite{}
	}
	return e
}

// other returns a path unless it is the plugin's default.
func other(path, usual string) string {
	if path == usual {
		return ""
	}
	return path
}

// warn logs which files a runtime prefers to the list.
func (f *Pods) warn(list *cni.Publisher, log *slog.Logger) {
	if rivals, err := list.Rivals(); err != nil || len(rivals) > 0 {
		log.Warn("container runtimes read another network configuration first: remove it", "files", rivals, "list", list.Path, "err", err)
	}
}

// install copies the plugin's program.
func (f *Pods) install(log *slog.Logger) error {
	if f.node.Programs == "" {
		return nil
	}
	from := f.from
	if from == Auto {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("CNI plugin: %w", err)
		}
		from = filepath.Join(filepath.Dir(self), cni.ProgramName)
	}
	change, err := cni.InstallPlugin(from, f.node.Programs)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: give --cni-program, or an empty --cni-bin-dir if another program installs it", err)
	}
	if change != cni.Unchanged {
		log.Info("CNI plugin", "path", filepath.Join(f.node.Programs, cni.ProgramName), "change", change.String())
	}
	return err
}
