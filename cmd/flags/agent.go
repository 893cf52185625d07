// Package flags turns command lines into the configurations of rooms: one type and one file for each group of flags.
//
// Invariant: a group names all its wrong flags in one error, and touches nothing but its part of a configuration.
package flags

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
)

// Agent are the flags that run, plan and trace have in common, in groups as in agent.Config.
type Agent struct {
	services   services
	renderers  renderers
	policies   policies
	interfaces interfaces
	nat        NAT
	limits     Limits
}

// AddFlags adds the flags to a command.
func (f *Agent) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	for _, group := range []struct {
		title string
		flags interface{ addFlags(*pflag.FlagSet) }
	}{{ForServices, &f.services}, {ForServices, &f.renderers}, {ForPolicies, &f.policies}, {ForVPP, &f.interfaces}, {ForServices, &f.nat}, {ForLimits, &f.limits}} {
		Group(fs, group.title, func() { group.flags.addFlags(fs) })
	}
}

// AgentNames returns the names of agentFlags.
func AgentNames() (out []string) {
	cmd := &cobra.Command{}
	new(Agent).AddFlags(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { out = append(out, f.Name) })
	return out
}

// Settings returns the values of the agent flags that the command line sets, as text.
func Settings(fs *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	for _, name := range AgentNames() {
		f := fs.Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		out[name] = f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			out[name] = strings.Join(list.GetSlice(), ",")
		}
	}
	return out
}

// Apply sets the flags from the settings of another process.
func (f *Agent) Apply(settings map[string]string) error {
	cmd := &cobra.Command{}
	f.AddFlags(cmd)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if err := cmd.Flags().Set(name, settings[name]); err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
	}
	return nil
}

// OutByHost says that packets to the outside leave VPP by the link to the node's network stack, as with --cni: that stack gives them their address, and nat44 has none to give.
func (f *Agent) OutByHost() { f.renderers.byHost = true }

// Config turns the flags into an agent's configuration. The error names all wrong flags.
func (f *Agent) Config() (agent.Config, error) {
	var cfg agent.Config
	err := errors.Join(
		f.renderers.applyTo(&cfg.Services.Renderer), f.services.applyTo(&cfg.Services), f.policies.applyTo(&cfg.Policies), f.interfaces.applyTo(&cfg.Override),
		f.nat.applyTo(&cfg), f.limits.applyTo(&cfg),
	)
	return cfg, exit.Usage(err)
}
