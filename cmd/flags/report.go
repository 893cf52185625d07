package flags

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/kube/report"
)

// Report configure what the agent reports through the API server that it follows, or the API server of the cluster
// whose fan-out server it follows.
type Report struct {
	events     bool
	conditions bool
	lease      string
	node       bool
	// Pods says that the agent connects pods: report.Config.Pods.
	Pods bool

	objects report.Objects // nil: no API server
	named   bool           // only the names of objects are known
	api     *kube.Config
}

// AddFlags adds the flags to a command.
func (f *Report) AddFlags(fs *pflag.FlagSet) {
	const needs = "eeds an API server (--kubeconfig or --in-cluster)"
	fs.BoolVar(&f.events, "events", true, "report in Events of Services and policies when VPP does not serve them as they ask, and when it does again; n"+needs)
	fs.BoolVar(&f.conditions, "policy-conditions", true, "also report it in status conditions of AdminNetworkPolicies, BaselineAdminNetworkPolicies and ClusterNetworkPolicies, while it lasts; needs an agent that follows an API server itself")
	fs.StringVar(&f.lease, "lease-namespace", "", "keep a Lease with the node's name in this namespace, which shows whether the agent runs and is ready; empty: none. N"+needs)
	fs.BoolVar(&f.node, "node-condition", false, "report in the condition "+string(report.NodeCondition)+" of the Node whether the agent is ready; with --cni also write NetworkUnavailable: False when it is ready first; n"+needs+", and the right to patch the status of Nodes")
}

// Follow returns the source, whose objects are also reported on.
func (f *Report) Follow(api *kube.Config) *kube.Source {
	api.Identities = f.any()
	source := kube.New(*api)
	f.api, f.objects = api, source
	return source
}

// Behind wraps a source that follows a fan-out server; the agent reports on its objects to the API server, if there is one.
func (f *Report) Behind(api *kube.Config, source agent.Source) agent.Source {
	if api == nil {
		return source
	}
	heard := &report.Named{}
	f.api, f.objects, f.named = api, heard, true
	return overheard{source, heard}
}

// overheard is a source whose events a reporter also receives.
type overheard struct {
	agent.Source
	by *report.Named
}

// Run implements agent.Source.
func (o overheard) Run(ctx context.Context, emit func(event.Event)) error {
	return o.Source.Run(ctx, func(ev event.Event) {
		o.by.Heard(ev)
		emit(ev)
	})
}

func (f *Report) any() bool {
	c := f.config("", nil)
	return c.Any()
}

func (f *Report) config(node string, log *slog.Logger) report.Config {
	return report.Config{
		Node: node, Events: f.events, Conditions: f.conditions && !f.named, LeaseNamespace: f.lease, NodeCondition: f.node, Pods: f.Pods, Logger: log,
	}
}

// Reporter returns the reporter; nil: it would report nothing, or has no API server and no flag requires one.
func (f *Report) Reporter(fs *pflag.FlagSet, node string, once bool, log *slog.Logger) (config.Reporter, error) {
	if err := f.needless(fs); err != nil {
		return nil, err
	}
	cfg := f.config(node, log)
	if once || f.objects == nil || !cfg.Any() { // the agent ends before a problem lasts
		return nil, nil
	}
	return report.New(cfg, f.objects, f.api.Clients), nil
}

// needless returns an error for flags without effect, because the agent has no API server, or does not follow it.
func (f *Report) needless(fs *pflag.FlagSet) error {
	given := func(flags ...string) (names []string) {
		for _, name := range flags {
			if flag := fs.Lookup(name); flag.Changed && flag.Value.String() != "false" && flag.Value.String() != "" {
				names = append(names, "--"+name)
			}
		}
		return names
	}
	if names := given("events", "lease-namespace", "node-condition"); f.objects == nil && len(names) > 0 {
		return errors.New(fmt.Sprint(strings.Join(names, ", "), ": needs an API server (--kubeconfig or --in-cluster)"))
	}
	if len(given("policy-conditions")) > 0 && (f.objects == nil || f.named) {
		return errors.New("--policy-conditions: needs an agent that follows an API server itself (--source kube)")
	}
	return nil
}
