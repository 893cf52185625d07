package flags

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/budget"
)

// Limits bound what objects may require.
type Limits struct{ text [budget.Dimensions]string }

func (f *Limits) addFlags(fs *pflag.FlagSet) {
	usage := [budget.Dimensions]string{
		budget.Rules:      "rules of access lists that policies may make: of one policy, of a namespace, and on the node, as OBJECT/NAMESPACE/NODE; 0: no limit. A rule of a policy counts as ranges, or members of what it selects, times ports. Policies that apply to no pod of the node do not count. A policy that exceeds a limit denies all that it applies to; older objects come first",
		budget.Tables:     "access lists that policies may make, likewise: one for each run of rules with one action, more for long ones",
		budget.RangeRules: "rules that loadBalancerSourceRanges may make, likewise: for each port of each load-balancer IP the prefixes outside all ranges. VPP stops forwarding for about 40 µs for each when any of them changes. A Service that exceeds a limit is not served at its load-balancer IPs",
		budget.Backends:   "backends of Services, likewise: endpoints times ports times addresses. A Service that exceeds a limit rejects at all its addresses",
		budget.Memory:     "memory of the agent, in KiB, that objects may take, likewise; two thirds for policies, one third for Services. The agent lowers it to its cgroup's memory, or GOMEMLIMIT, minus 192 MiB for itself, and a namespace's limit to half of that",
	}
	defaults := budget.Defaults()
	for d := range budget.Dimensions {
		fs.StringVar(&f.text[d], d.Flag(), defaults[d].String(), usage[d])
	}
}

// applyTo writes the flags into the configuration. The error names all wrong flags.
func (f *Limits) applyTo(cfg *agent.Config) error {
	var errs []error
	for d := range budget.Dimensions {
		l, err := budget.ParseLimit(f.text[d])
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", d.Flag(), err))
		}
		cfg.Limits[d] = l
	}
	return errors.Join(errs...)
}
