// Package driver has both ends of a dataplane driver for Felix as a process: the configuration, pipes and installation of this program as a
// driver, and the supervision of a driver's program.
//
// Invariant: it sends no message; calico/felix does.
package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// The paths and environment variables of felix-driver's configuration.
const (
	DefaultFile = "/etc/contiv-agent/felix-driver.yaml"
	EnvConfig   = "CONTIV_FELIX_DRIVER_CONFIG"
	EnvSocket   = "CONTIV_FELIX_DRIVER_VPP_SOCKET"
	EnvSim      = "CONTIV_FELIX_DRIVER_SIM"
	EnvStatus   = "CONTIV_FELIX_DRIVER_STATUS_SOCKET"
	EnvListen   = "CONTIV_FELIX_DRIVER_LISTEN"
	envView     = "CONTIV_FELIX_DRIVER_VIEW"
	EnvJournal  = "CONTIV_FELIX_DRIVER_JOURNAL"
	envUplink   = "CONTIV_FELIX_DRIVER_UPLINK"
	envOverlay  = "CONTIV_FELIX_DRIVER_OVERLAY"
	envHost     = "CONTIV_FELIX_DRIVER_HOST"
)

// Help describes driverFile, in the manual.
const Help = `The configuration is a file in YAML; every field is optional:

    node: worker-7           name of this node (default: $NODE_NAME, or the name of the host)
    vpp:
      socket: /run/vpp/api.sock
      sim: false             the embedded VPP, with an interface for each endpoint, instead
    interfaces:              default: found by the node's address, the default route and the routes to other nodes' pods
      uplink: ""             leads out of the node
      overlay: ""            leads to pods of other nodes
      host: ""               leads to the node's own network stack
      hostAddresses: []      addresses that only the node's own processes send from to pods (default: VPP's neighbours on host)
      trustNodeAddresses: false   pre-dnat: also admit the node's other addresses, which nat44 also gives to pods
    view: ""                 post-dnat: access lists see the address of the backend, as with kube-proxy or cnat; pre-dnat: they
                             see the address of the Service, as with nat44. Default: pre-dnat with services, post-dnat without
    services:                also configure Services in VPP (nat44), from these sources; none: another program serves Services
      manifests: []          folders or files
      kubeconfig: ""
      inCluster: false
      apiServer: ""          instead of the kubeconfig's
    maxFrame: 268435456      bytes of the longest message
    listen: 127.0.0.1:9191   metrics and health; none: no listener
    profiling: false
    statusSocket: auto       as for run; none: no socket
    journal: auto            as for run; none: memory only
    recheck: 30s             period in which the driver compares all its objects in VPP with the desired state; 0s: never
    log: {level: info, format: text}    on standard error, which Felix forwards

Environment, before the file: ` + EnvSocket + `, ` + EnvSim + `=1, ` + EnvStatus + `,
` + EnvListen + `, ` + envView + `,
` + EnvJournal + `, ` + envUplink + `,
` + envOverlay + `, ` + envHost + `.
`

// File is the configuration of felix-driver; configHelp describes it.
type File struct {
	Node       string         `json:"node"`
	VPP        vppFile        `json:"vpp"`
	Interfaces interfacesFile `json:"interfaces"`
	View       string         `json:"view"`
	Services   servicesFile   `json:"services"`
	MaxFrame   int            `json:"maxFrame"`
	Listen     string         `json:"listen"`
	Profiling  bool           `json:"profiling"`
	Status     string         `json:"statusSocket"`
	Journal    string         `json:"journal"`
	Recheck    string         `json:"recheck"`
	Log        logFile        `json:"log"`

	Level *slog.LevelVar // of the logger in use
}

type vppFile struct {
	Socket string `json:"socket"`
	Sim    bool   `json:"sim"`
}

type interfacesFile struct {
	Uplink  string `json:"uplink"`
	Overlay string `json:"overlay"`
	Host    string `json:"host"`
	// HostAddresses are the addresses that the node's own processes send from to pods. TrustNode also admits the node's
	// other addresses.
	HostAddresses []netip.Addr `json:"hostAddresses"`
	TrustNode     bool         `json:"trustNodeAddresses"`
}

type servicesFile struct {
	Manifests  []string `json:"manifests"`
	Kubeconfig string   `json:"kubeconfig"`
	InCluster  bool     `json:"inCluster"`
	APIServer  string   `json:"apiServer"`
}

type logFile struct {
	Level  string `json:"level"`
	Format string `json:"format"`
}

// Flags returns the same as flags.
func (l logFile) Flags() *flags.Log { return &flags.Log{Format: l.Format, Level: l.Level} }

// None is the text for "no value", where an empty text means the default.
const None = "none"

// Load reads the configuration: the file that the flag or the environment names, or the default file if it exists.
// Then the environment overrides single fields.
func Load(path string, env func(string) string) (*File, error) {
	f := &File{
		Listen: "127.0.0.1:9191", Status: flags.Auto, Journal: flags.Auto, Log: logFile{Level: "info", Format: "text"},
		VPP: vppFile{Socket: "/run/vpp/api.sock"},
	}
	if path == "" {
		path = env(EnvConfig)
	}
	needed := path != ""
	if !needed {
		path = DefaultFile
	}
	switch content, err := os.ReadFile(path); {
	case errors.Is(err, fs.ErrNotExist) && !needed:
	case err != nil:
		return nil, err
	default:
		if err := yaml.UnmarshalStrict(content, f); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for name, into := range map[string]*string{
		EnvSocket: &f.VPP.Socket, EnvStatus: &f.Status, EnvListen: &f.Listen, envView: &f.View, EnvJournal: &f.Journal,
		envUplink: &f.Interfaces.Uplink, envOverlay: &f.Interfaces.Overlay, envHost: &f.Interfaces.Host,
	} {
		if v := env(name); v != "" {
			*into = v
		}
	}
	if v := env(EnvSim); v != "" {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: want 1 or 0", EnvSim, v)
		}
		f.VPP.Sim = on
	}
	for _, may := range []*string{&f.Listen, &f.Status, &f.Journal} {
		if *may == None {
			*may = ""
		}
	}
	return f, nil
}

// Agent returns the configuration of an agent, without its Felix and without the embedded VPP.
func (f *File) Agent(version string, log *slog.Logger) (agent.Config, error) {
	cfg := agent.Config{
		NodeName: flags.NodeName(f.Node), VPP: vpp.Config{Socket: f.VPP.Socket}, Process: config.Process{Version: version, Alone: true, Logger: log, LogLevel: f.Level}, Listen: config.Listeners{Metrics: f.Listen, Profiling: f.Profiling, Status: flags.StatusSocket(f.Status)},
		VPPAgent: vppagent.Config{Journal: flags.JournalPath(f.Journal, f.VPP.Sim)},
		Limits:   budget.Defaults(),
	}
	if !f.VPP.Sim {
		cfg.Lock = flags.LockPath(flags.Auto, f.VPP.Socket)
	}
	cfg.Override.Uplink, cfg.Override.Overlay, cfg.Override.Host = f.Interfaces.Uplink, f.Interfaces.Overlay, f.Interfaces.Host
	cfg.Override.HostIPs, cfg.Policies.TrustNodeAddresses = f.Interfaces.HostAddresses, f.Interfaces.TrustNode
	if f.MaxFrame < 0 {
		return cfg, fmt.Errorf("maxFrame %d: must not be negative", f.MaxFrame)
	}
	cfg.VPPAgent.Recheck = config.DefaultRecheck
	if f.Recheck != "" {
		every, err := time.ParseDuration(f.Recheck)
		if err != nil {
			return cfg, fmt.Errorf("recheck: %w", err)
		}
		cfg.VPPAgent.Recheck = every
	}
	s := f.Services
	cfg.Services.Off = len(s.Manifests) == 0 && s.Kubeconfig == "" && !s.InCluster
	if !cfg.Services.Off {
		from := flags.Sources{Manifests: s.Manifests, Kubeconfig: s.Kubeconfig, InCluster: s.InCluster, APIServer: s.APIServer}
		sources, err := from.Sources(cfg.NodeName, version, true, log)
		if err != nil {
			return cfg, err
		}
		cfg.Sources, cfg.NATTable.Every = sources, time.Second
	}
	switch f.View {
	case "":
		cfg.Policies.PostDNAT = cfg.Services.Off
	case "post-dnat":
		cfg.Policies.PostDNAT = true
	case "pre-dnat":
	default:
		return cfg, fmt.Errorf("view %q: must be post-dnat or pre-dnat", f.View)
	}
	return cfg, nil
}
