package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/kube/report"
)

// reportFlags say what the agent tells others through the API server it follows, or that of the cluster whose fan-out server it follows.
type reportFlags struct {
	events     bool
	conditions bool
	lease      string
	node       bool

	objects report.Objects // nil: it knows of no API server
	named   bool           // they are known by name only
	api     *kube.Config
}

func (f *reportFlags) add(fs *pflag.FlagSet) {
	const needs = "eeds an API server (--kubeconfig or --in-cluster)"
	fs.BoolVar(&f.events, "events", true, "tell in Events of Services and policies what of them is not in VPP as they ask for, and when it is again; n"+needs)
	fs.BoolVar(&f.conditions, "policy-conditions", true, "tell it of AdminNetworkPolicies, BaselineAdminNetworkPolicies and ClusterNetworkPolicies in conditions of their status, too, while it is so; needs the agent to follow an API server itself")
	fs.StringVar(&f.lease, "lease-namespace", "", "keep a Lease of the node's name in this namespace, which says whether the agent is there, and ready; empty: none. N"+needs)
	fs.BoolVar(&f.node, "node-condition", false, "tell in the condition "+string(report.NodeCondition)+" of the Node whether the agent is ready; n"+needs+", and the right to patch the status of Nodes")
}

// follow makes the source whose objects are told of.
func (f *reportFlags) follow(api *kube.Config) *kube.Source {
	api.Identities = f.any()
	source := kube.New(*api)
	f.api, f.objects = api, source
	return source
}

// behind listens to a source that follows a fan-out server; what it hears of is told to an API server, if there is one.
func (f *reportFlags) behind(api *kube.Config, source agent.Source) agent.Source {
	if api == nil {
		return source
	}
	heard := &report.Named{}
	f.api, f.objects, f.named = api, heard, true
	return overheard{source, heard}
}

// overheard is a source that somebody listens to.
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

func (f *reportFlags) any() bool {
	c := f.config("", nil)
	return c.Any()
}

func (f *reportFlags) config(node string, log *slog.Logger) report.Config {
	return report.Config{
		Node: node, Events: f.events, Conditions: f.conditions && !f.named, LeaseNamespace: f.lease, NodeCondition: f.node, Logger: log,
	}
}

// reporter is what tells others; nil: there is nothing to tell, or, if nobody has asked for it, nobody to tell it to.
func (f *reportFlags) reporter(fs *pflag.FlagSet, node string, once bool, log *slog.Logger) (agent.Reporter, error) {
	if err := f.needless(fs); err != nil {
		return nil, err
	}
	cfg := f.config(node, log)
	if once || f.objects == nil || !cfg.Any() { // gone before anything has lasted
		return nil, nil
	}
	return report.New(cfg, f.objects, f.api.Clients), nil
}

// needless names the flags that were given and do nothing, because there is no API server, or because it is not followed.
func (f *reportFlags) needless(fs *pflag.FlagSet) error {
	given := func(flags ...string) (names []string) {
		for _, name := range flags {
			if flag := fs.Lookup(name); flag.Changed && flag.Value.String() != "false" && flag.Value.String() != "" {
				names = append(names, "--"+name)
			}
		}
		return names
	}
	if names := given("events", "lease-namespace", "node-condition"); f.objects == nil && len(names) > 0 {
		return errors.New(fmt.Sprint(strings.Join(names, ", "), ": nothing is told without an API server (--kubeconfig or --in-cluster)"))
	}
	if len(given("policy-conditions")) > 0 && (f.objects == nil || f.named) {
		return errors.New("--policy-conditions: they are known to an agent alone that follows an API server itself (--source kube)")
	}
	return nil
}
