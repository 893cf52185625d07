package flags

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/flows/goldmane"
	"github.com/contiv-agent/contiv-agent/agent/flows/hubble"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	extgrpc "github.com/contiv-agent/contiv-agent/plugins/extconfig/grpc"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
	"github.com/contiv-agent/contiv-agent/vpp/flowprobe"
)

// Flows are the flags of the watcher of flows.
type Flows struct {
	every               time.Duration
	folder              string
	collector, exporter string
	hubble              struct{ listen, cert, key, ca string }
	goldmane            goldmane.Config
}

// AddFlags adds the flags.
func (f *Flows) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&f.every, "flows", 0, "how often to read connections from VPP, which the flows command shows, and at least every 250 ms dropped packets; 1s is a good value; 0: never")
	fs.StringVar(&f.collector, "flows-collector", "", "IPv4 address and port of this host that VPP reaches: VPP's plugin flowprobe sends counts of all connections there; empty: access lists' sessions show connections")
	fs.StringVar(&f.exporter, "flows-exporter", "", "IPv4 address of VPP from which it sends to --flows-collector")
	fs.StringVar(&f.folder, "flows-folder", "/tmp", "VPP's /tmp as the agent sees it: VPP writes captures of packets there (--flows, contiv-agent capture); the agent reads and removes them")
	fs.StringVar(&f.hubble.listen, "hubble-listen", "", "address of Hubble's API over the flows (HOST:PORT; Cilium's port is 4244), or unix:PATH for programs of the same user; without certificates it must be a loopback address")
	fs.StringVar(&f.hubble.cert, "hubble-cert", "", "file with the certificate for --hubble-listen; needs --hubble-key and --hubble-ca")
	fs.StringVar(&f.hubble.key, "hubble-key", "", "file with its private key")
	fs.StringVar(&f.hubble.ca, "hubble-ca", "", "file with the authorities that sign the clients' certificates")
	g := &f.goldmane
	fs.StringVar(&g.Addr, "goldmane", "", "Calico's Goldmane to which flows are pushed, as host:port (goldmane.calico-system.svc:7443); needs --flows")
	fs.StringVar(&g.CA, "goldmane-ca", "", "file with the authorities that sign Goldmane's certificate; needs --goldmane-cert and --goldmane-key")
	fs.StringVar(&g.Cert, "goldmane-cert", "", "file with the client certificate for Goldmane")
	fs.StringVar(&g.Key, "goldmane-key", "", "file with the key of that certificate")
	fs.BoolVar(&g.Insecure, "goldmane-insecure", false, "push flows in plaintext to an address that is not loopback: everyone on the path can read them")
}

// Check returns the errors of the flags.
func (f *Flows) Check() error {
	switch {
	case f.every < 0 || f.every > 0 && f.every < 100*time.Millisecond:
		return exit.Usage(fmt.Errorf("--flows %s: must be 0, or at least 100ms", f.every))
	case f.folder == "":
		return exit.Usage(errors.New("--flows-folder: must not be empty"))
	case f.collector != "" && f.every == 0:
		return exit.Usage(errors.New("--flows-collector: needs --flows"))
	case f.hubble.listen != "" && f.every == 0:
		return exit.Usage(errors.New("--hubble-listen: needs --flows"))
	case f.hubble.listen == "" && f.certificates() > 0:
		return exit.Usage(errors.New("--hubble-cert, --hubble-key and --hubble-ca need --hubble-listen"))
	case f.certificates()%3 != 0:
		return exit.Usage(errors.New("--hubble-cert, --hubble-key and --hubble-ca need each other"))
	case f.hubble.listen != "":
		if _, err := f.hubbleServer(hubble.Config{}); err != nil {
			return exit.Usage(err)
		}
	}
	_, err := f.probe()
	return errors.Join(err, f.checkGoldmane())
}

func (f *Flows) checkGoldmane() error {
	switch g := &f.goldmane; {
	case g.Addr == "" && g.CA+g.Cert+g.Key == "" && !g.Insecure:
		return nil
	case g.Addr == "":
		return exit.Usage(errors.New("--goldmane-ca, -cert, -key and -insecure need --goldmane"))
	case f.every == 0:
		return exit.Usage(errors.New("--goldmane needs --flows"))
	}
	err := f.goldmane.Validate()
	if errors.Is(err, goldmane.ErrPlaintext) {
		err = fmt.Errorf("%w: give --goldmane-ca, --goldmane-cert and --goldmane-key, or --goldmane-insecure", err)
	}
	if err != nil {
		return exit.Usage(fmt.Errorf("--goldmane: %w", err))
	}
	return nil
}

// probe returns where VPP sends counts of connections; nil: nowhere.
func (f *Flows) probe() (*flowprobe.Target, error) {
	if f.collector == "" && f.exporter == "" {
		return nil, nil
	}
	collector, err := netip.ParseAddrPort(f.collector)
	if err != nil || !collector.Addr().Is4() || collector.Addr().IsUnspecified() || collector.Port() == 0 {
		return nil, exit.Usage(fmt.Errorf("--flows-collector %q: must be an IPv4 address and a port of this host, like 192.0.2.1:4739", f.collector))
	}
	exporter, err := netip.ParseAddr(f.exporter)
	if err != nil || !exporter.Is4() || exporter.IsUnspecified() {
		return nil, exit.Usage(fmt.Errorf("--flows-exporter %q: must be an IPv4 address of VPP, beside --flows-collector", f.exporter))
	}
	return &flowprobe.Target{Collector: collector, Exporter: exporter}, nil
}

// certificates counts the files of certificates.
func (f *Flows) certificates() (n int) {
	for _, file := range []string{f.hubble.cert, f.hubble.key, f.hubble.ca} {
		if file != "" {
			n++
		}
	}
	return n
}

// Apply puts the watcher into the configuration, which has its logger and the socket of its VPP, if the flags ask for one. The version is
// the agent's, for clients.
func (f *Flows) Apply(cfg *agent.Config, version string) error {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(cfg.NodeName + " " + cfg.VPP.Socket)) // a hash returns no error
	name := fmt.Sprintf("%08x", sum.Sum32())
	if f.every == 0 {
		cfg.Process.Capture = capture.NewInterface(f.folder, name, nil)
		return nil
	}
	watcher := flows.Config{Node: cfg.NodeName, Every: f.every, DropsEvery: flows.DropsEvery, Folder: f.folder, Name: name, Logger: cfg.Process.Logger}
	if to, _ := f.probe(); to != nil { // Check has returned the error
		watcher.Probe = &flows.Probe{Target: *to, Collector: flowprobe.NewCollector(flowprobe.Socket(to.Collector), to.Exporter)}
	}
	if f.hubble.listen != "" {
		server, err := f.hubbleServer(hubble.Config{Node: cfg.NodeName, Version: version, Logger: cfg.Process.Logger})
		if err != nil {
			return err
		}
		watcher.Beside = append(watcher.Beside, server.Serve)
	}
	if f.goldmane.Addr != "" {
		to := f.goldmane
		to.Logger = cfg.Process.Logger
		watcher.Beside = append(watcher.Beside, goldmane.New(to).Run)
	}
	cfg.Process.Flows = flows.New(watcher)
	cfg.Process.Capture = capture.NewInterface(f.folder, name, cfg.Process.Flows.Drops())
	return nil
}

func (f *Flows) hubbleServer(cfg hubble.Config) (*hubble.Server, error) {
	cfg.Listen = f.hubble.listen
	if f.hubble.cert != "" {
		var err error
		if cfg.TLS, err = extgrpc.LoadTLS(f.hubble.cert, f.hubble.key, f.hubble.ca); err != nil {
			return nil, fmt.Errorf("hubble: %w", err)
		}
	}
	return hubble.New(cfg)
}
