package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/kube/report"
)

// reportFlags say what the agent tells others through the API server it follows.
type reportFlags struct {
	events     bool
	conditions bool
	lease      string
	node       bool

	source *kube.Source // nil: it follows none
	api    *kube.Config
}

func (f *reportFlags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.events, "events", true, "tell in Events of Services and policies what of them is not in VPP as they ask for, and when it is again; needs the agent to follow an API server")
	fs.BoolVar(&f.conditions, "policy-conditions", true, "tell it of AdminNetworkPolicies, BaselineAdminNetworkPolicies and ClusterNetworkPolicies in conditions of their status, too, while it is so; needs the agent to follow an API server")
	fs.StringVar(&f.lease, "lease-namespace", "", "keep a Lease of the node's name in this namespace, which says whether the agent is there, and ready; empty: none. Needs the agent to follow an API server")
	fs.BoolVar(&f.node, "node-condition", false, "tell in the condition "+string(report.NodeCondition)+" of the Node whether the agent is ready; needs the agent to follow an API server, and the right to patch the status of Nodes")
}

// follow makes the source whose objects are told of.
func (f *reportFlags) follow(api *kube.Config) *kube.Source {
	api.Identities = f.any()
	f.api, f.source = api, kube.New(*api)
	return f.source
}

func (f *reportFlags) any() bool {
	c := f.config("", nil)
	return c.Any()
}

func (f *reportFlags) config(node string, log *slog.Logger) report.Config {
	return report.Config{
		Node: node, Events: f.events, Conditions: f.conditions, LeaseNamespace: f.lease, NodeCondition: f.node, Logger: log,
	}
}

// reporter is what tells others; nil: there is nothing to tell, or, if nobody has asked for it, nobody to tell it to.
func (f *reportFlags) reporter(fs *pflag.FlagSet, node string, once bool, log *slog.Logger) (agent.Reporter, error) {
	if f.source == nil {
		return nil, f.needless(fs)
	}
	cfg := f.config(node, log)
	if once || !cfg.Any() { // gone before anything has lasted
		return nil, nil
	}
	return report.New(cfg, f.source, f.api.Clients), nil
}

// needless names the flags that were given and do nothing, because there is no API server.
func (f *reportFlags) needless(fs *pflag.FlagSet) error {
	var names []string
	for _, name := range []string{"events", "policy-conditions", "lease-namespace", "node-condition"} {
		if flag := fs.Lookup(name); flag.Changed && flag.Value.String() != "false" && flag.Value.String() != "" {
			names = append(names, "--"+name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return errors.New(fmt.Sprint(strings.Join(names, ", "), ": nothing is told but by an agent that follows an API server itself (--source kube)"))
}
