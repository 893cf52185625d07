package main

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// The paths and environment variables of felix-driver's configuration.
const (
	defaultDriverConfig = "/etc/contiv-agent/felix-driver.yaml"
	envConfig           = "CONTIV_FELIX_DRIVER_CONFIG"
	envSocket           = "CONTIV_FELIX_DRIVER_VPP_SOCKET"
	envSim              = "CONTIV_FELIX_DRIVER_SIM"
	envStatus           = "CONTIV_FELIX_DRIVER_STATUS_SOCKET"
	envListen           = "CONTIV_FELIX_DRIVER_LISTEN"
	envView             = "CONTIV_FELIX_DRIVER_VIEW"
	envJournal          = "CONTIV_FELIX_DRIVER_JOURNAL"
	envUplink           = "CONTIV_FELIX_DRIVER_UPLINK"
	envOverlay          = "CONTIV_FELIX_DRIVER_OVERLAY"
	envHost             = "CONTIV_FELIX_DRIVER_HOST"
)

// configHelp describes driverFile, in the manual.
const configHelp = `The configuration is a file in YAML; every field is optional:

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

Environment, before the file: ` + envSocket + `, ` + envSim + `=1, ` + envStatus + `,
` + envListen + `, ` + envView + `,
` + envJournal + `, ` + envUplink + `,
` + envOverlay + `, ` + envHost + `.
`

// driverFile is the configuration of felix-driver; configHelp describes it.
type driverFile struct {
	Node       string           `json:"node"`
	VPP        driverVPP        `json:"vpp"`
	Interfaces driverInterfaces `json:"interfaces"`
	View       string           `json:"view"`
	Services   driverServices   `json:"services"`
	MaxFrame   int              `json:"maxFrame"`
	Listen     string           `json:"listen"`
	Profiling  bool             `json:"profiling"`
	Status     string           `json:"statusSocket"`
	Journal    string           `json:"journal"`
	Recheck    string           `json:"recheck"`
	Log        driverLog        `json:"log"`

	level *slog.LevelVar // of the logger in use
}

type driverVPP struct {
	Socket string `json:"socket"`
	Sim    bool   `json:"sim"`
}

type driverInterfaces struct {
	Uplink  string `json:"uplink"`
	Overlay string `json:"overlay"`
	Host    string `json:"host"`
	// HostAddresses are the addresses that the node's own processes send from to pods. TrustNode also admits the node's
	// other addresses.
	HostAddresses []netip.Addr `json:"hostAddresses"`
	TrustNode     bool         `json:"trustNodeAddresses"`
}

type driverServices struct {
	Manifests  []string `json:"manifests"`
	Kubeconfig string   `json:"kubeconfig"`
	InCluster  bool     `json:"inCluster"`
	APIServer  string   `json:"apiServer"`
}

type driverLog struct {
	Level  string `json:"level"`
	Format string `json:"format"`
}

func (l driverLog) flags() *logFlags { return &logFlags{format: l.Format, level: l.Level} }

// none is the text for "no value", where an empty text means the default.
const none = "none"

// loadDriver reads the configuration: the file that the flag or the environment names, or the default file if it exists.
// Then the environment overrides single fields.
func loadDriver(path string, env func(string) string) (*driverFile, error) {
	f := &driverFile{
		Listen: "127.0.0.1:9191", Status: auto, Journal: auto, Log: driverLog{Level: "info", Format: "text"},
		VPP: driverVPP{Socket: "/run/vpp/api.sock"},
	}
	if path == "" {
		path = env(envConfig)
	}
	needed := path != ""
	if !needed {
		path = defaultDriverConfig
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
		envSocket: &f.VPP.Socket, envStatus: &f.Status, envListen: &f.Listen, envView: &f.View, envJournal: &f.Journal,
		envUplink: &f.Interfaces.Uplink, envOverlay: &f.Interfaces.Overlay, envHost: &f.Interfaces.Host,
	} {
		if v := env(name); v != "" {
			*into = v
		}
	}
	if v := env(envSim); v != "" {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: want 1 or 0", envSim, v)
		}
		f.VPP.Sim = on
	}
	for _, may := range []*string{&f.Listen, &f.Status, &f.Journal} {
		if *may == none {
			*may = ""
		}
	}
	return f, nil
}

// agent returns the configuration of an agent, without its Felix and without the embedded VPP.
func (f *driverFile) agent(log *slog.Logger) (agent.Config, error) {
	cfg := agent.Config{
		NodeName: nodeName(f.Node), VPP: vpp.Config{Socket: f.VPP.Socket}, Process: config.Process{Alone: true, Logger: log, LogLevel: f.level}, Listen: config.Listeners{Metrics: f.Listen, Profiling: f.Profiling, Status: statusSocket(f.Status)},
		VPPAgent: vppagent.Config{Journal: journalPath(f.Journal, f.VPP.Sim)},
		Limits:   budget.Defaults(),
	}
	if !f.VPP.Sim {
		cfg.Lock = lockPath(auto, f.VPP.Socket)
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
		from := runFlags{manifests: s.Manifests, kubeconfig: s.Kubeconfig, inCluster: s.InCluster, apiServer: s.APIServer}
		sources, err := from.sources(log)
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

// lines iterates over the lines of a text whose last line is complete.
func lines(text string) iter.Seq[string] {
	return strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n")
}
