package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/datastore"
)

// calcFlags are the flags of calc.
type calcFlags struct {
	hostname      string
	nodeResources bool
	routeSource   string
}

func newCalc() *cobra.Command {
	var f calcFlags
	cmd := &cobra.Command{
		Use:   "calc",
		Short: "Calculate what Felix would send to its dataplane driver",
		Long: `calc is the calculation graph alone: it reads changes of Calico's datastore, in the datastore's own keys and values, and
writes the messages that a dataplane driver of this node is to get, as Felix v3.31 sends them.

In come lines of JSON:

    {"key":"/calico/v1/host/n1/bird_ip","value":"10.0.0.1"}   a value, as text, or as JSON itself
    {"key":"/calico/v1/host/n1/bird_ip","deleted":true}       a key that is gone
    {"status":"in-sync"}                                      all there was at the start has come; before that nothing is said of
                                                              policies and endpoints. Also: wait-for-ready, resync
    {"flush":true}                                            now write what follows from all that

Out go lines of JSON: one for each message (ToDataplane, in protobuf's JSON), and {"flushed":true} behind those of each flush. The
end of the input is a flush, if anything came since the last. A line that is not understood gives {"error":…} with its number and
key; what it was to set counts as deleted, and the next line is read. So does a policy whose selector is not understood, at the
flush.

Policies may have the keys of Calico up to v3.31 (/calico/v1/policy/tier/TIER/policy/NAME) and of v3.32
(/calico/v1/policy/KIND/NAMESPACE/NAME); the messages name them by tier and name.`,
		Example: `  contiv-agent calc --hostname node-1 <changes.jsonl
  printf '%s\n' '{"status":"in-sync"}' '{"key":"/calico/v1/config/LogSeverity","value":"info"}' '{"flush":true}' |
    contiv-agent calc --hostname node-1`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.hostname, "hostname", "", "name of this node in the datastore (default: $NODE_NAME, or the name of the host)")
	fs.BoolVar(&f.nodeResources, "use-node-resources", false, "take nodes' addresses from Node resources rather than from bird_ip")
	fs.StringVar(&f.routeSource, "route-source", "CalicoIPAM", "what routes to workloads are made of: CalicoIPAM (blocks), or WorkloadIPs (all workloads)")
	return cmd
}

func (f *calcFlags) run(cmd *cobra.Command) error {
	lines := datastore.Lines{Graph: calc.Config{Node: nodeName(f.hostname), NodeResources: f.nodeResources}}
	switch f.routeSource {
	case "CalicoIPAM":
	case "WorkloadIPs":
		lines.Graph.WorkloadRoutes = true
	default:
		return usage(fmt.Errorf("--route-source %s: must be CalicoIPAM or WorkloadIPs", f.routeSource))
	}
	return lines.Run(cmd.InOrStdin(), cmd.OutOrStdout())
}
