package flags

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/kube/reach"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// Sources are the flags of the sources of objects, and of what the agent reports on these objects.
type Sources struct {
	Manifests  []string
	Kubeconfig string
	InCluster  bool
	APIServer  string
	Typha      Typha
	Report     Report
	source     string
	ignored    []string
	finder     *reach.Finder // nil: the address is given
}

// AddFlags adds the flags to a command.
func (f *Sources) AddFlags(cmd *cobra.Command) {
	f.Typha.AddFlags(cmd, "typha")
	Group(cmd.Flags(), ForReports, func() { f.Report.AddFlags(cmd.Flags()) })
	fs := cmd.Flags()
	fs.StringVar(&f.source, "source", "", "source of objects: manifest, kube or typha (default: the one that other flags name; typha before kube, which then only finds the endpoints of --typha-service)")
	fs.StringSliceVar(&f.Manifests, "manifests", nil, "follow folders or files of Kubernetes YAML or JSON; - reads standard input once")
	fs.StringVar(&f.Kubeconfig, "kubeconfig", "", "follow the API server of this kubeconfig")
	fs.BoolVar(&f.InCluster, "in-cluster", false, "follow the API server of the cluster the agent runs in")
	fs.StringVar(&f.APIServer, "api-server", "", "address of the API server (https://host:port), instead of the kubeconfig's; do not use a cluster IP that this agent programs. Empty with --in-cluster: where a connection of the node leads, as the kubelet's, to a server with a certificate for the cluster IP; the cluster IP if there is none")
	fs.StringSliceVar(&f.ignored, "ignore-policy-kinds", nil, "kinds of policies to ignore although the API server serves them, as RESOURCE.GROUP (adminnetworkpolicies.policy.networking.k8s.io, tiers.crd.projectcalico.org): packets that they deny pass. The agent waits for the right to read every served kind that is not named here")
}

// ServerHostPort returns the API server's host and port; "": none. In a pod without --api-server it looks for the server, for 6 s at most.
func (f *Sources) ServerHostPort(ctx context.Context) string {
	if f.Kubeconfig == "" && !f.InCluster {
		return ""
	}
	api := f.api(nil)
	if f.finder != nil {
		if at := f.finder.Find(ctx); at.IsValid() {
			return at.String()
		}
	}
	return api.HostPort()
}

// searches reports that no flag says where the API server is.
func (f *Sources) searches() bool { return f.InCluster && f.Kubeconfig == "" && f.APIServer == "" }

// api returns how to reach the API server. In a pod without --api-server that is where connections of the node lead, and only else the cluster IP.
func (f *Sources) api(log *slog.Logger) *kube.Config {
	c := &kube.Config{Kubeconfig: f.Kubeconfig, Server: f.APIServer, Logger: log}
	if f.finder == nil && f.searches() {
		f.finder, _ = reach.InCluster(cmp.Or(log, slog.Default())) // nil: no pod, or no service account, which the client reports
	}
	if f.finder != nil {
		c.Dial = f.finder.DialContext
	}
	return c
}

// Sources returns the sources of objects for the agent of a node. The error names all wrong flags.
func (f *Sources) Sources(node, version string, watch bool, log *slog.Logger) (map[string]agent.Source, error) {
	out := map[string]agent.Source{}
	errs := []error{f.checkSource()}
	if len(f.Manifests) > 0 {
		cfg := manifest.Config{Paths: f.Manifests, Watch: watch, Logger: log}
		if err := cfg.Validate(); err != nil {
			errs = append(errs, err)
		} else {
			out[manifest.Name] = manifest.New(cfg)
		}
	}
	var api *kube.Config
	if f.Kubeconfig != "" || f.InCluster {
		api = f.api(log)
		api.IgnorePolicyKinds = f.ignored
		errs = append(errs, api.Validate())
	}
	switch {
	case f.Typha.Given():
		cfg, err := f.Typha.Config(node, version, api, log)
		if err != nil {
			errs = append(errs, err)
		} else {
			out[typha.Name] = f.Report.Behind(api, typha.New(cfg))
		}
	case api != nil && errors.Join(errs...) == nil:
		out[kube.Name] = f.Report.Follow(api)
	}
	if len(f.ignored) > 0 && (api == nil || f.Typha.Given()) {
		errs = append(errs, errors.New("--ignore-policy-kinds needs --kubeconfig or --in-cluster"))
	}
	if len(out) == 0 && errors.Join(errs...) == nil {
		errs = append(errs, errors.New("no source: give --manifests, --kubeconfig, --in-cluster, --typha-addr or --typha-service"))
	}
	return out, exit.Usage(errors.Join(errs...))
}

// checkSource compares --source with the other flags.
func (f *Sources) checkSource() error {
	if useless := f.Typha.Needless(); useless != "" {
		return exit.Usage(fmt.Errorf("%s: no server given: add --typha-addr or --typha-service", useless))
	}
	switch f.source {
	case "":
	case manifest.Name:
		if len(f.Manifests) == 0 {
			return exit.Usage(errors.New("--source manifest needs --manifests"))
		}
	case kube.Name:
		if f.Typha.Given() {
			return exit.Usage(errors.New("--source kube: conflicts with --typha-addr and --typha-service"))
		}
		f.InCluster = f.InCluster || f.Kubeconfig == ""
	case typha.Name:
		if !f.Typha.Given() {
			return exit.Usage(errors.New("--source typha needs --typha-addr or --typha-service"))
		}
	default:
		return exit.Usage(fmt.Errorf("--source %s: must be manifest, kube or typha", f.source))
	}
	return nil
}
