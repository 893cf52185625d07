// Package acceptance has the commands of the connectivity test: the test itself, a command of the kubectl plugin, and the programs of its pods, which are
// commands of contiv-agent.
//
// Invariant: the commands hold no logic; package connectivity has it.
package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/cmd/whatif"
	"github.com/contiv-agent/contiv-agent/connectivity"
	"github.com/contiv-agent/contiv-agent/connectivity/probe"
	"github.com/contiv-agent/contiv-agent/trace"
)

// InPods returns the command of contiv-agent with the part of the connectivity test that runs in its pods.
func InPods() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connectivity",
		Short: "The programs in the pods of a connectivity test (kubectl contiv connectivity test)",
		Long: `connectivity serve and connectivity probe are the two ends of the paths that "kubectl contiv connectivity test" measures. That command starts
the first as the program of its pods, and runs the second in them.`,
		Example: `  contiv-agent connectivity serve --name here --ports 8080
  echo '[{"id":1,"kind":"tcp","to":"127.0.0.1:8080","limit":1000000000}]' | contiv-agent connectivity probe`,
	}
	cmd.AddCommand(newServe(), newProbe())
	return cmd
}

func newServe() *cobra.Command {
	var s probe.Server
	cmd := &cobra.Command{
		Use:         "serve",
		Annotations: map[string]string{exit.Serves: ""},
		Short:       "Answer the probes of a connectivity test",
		Long: `serve answers on TCP and UDP ports of all addresses, until it is ended. A TCP client sends lines, each with a number and then so many bytes;
the answer to each is a line with the server's name, the client's address and the number, and then the same bytes. The answer to a datagram
has the same length and begins with such a line.`,
		Example: "  contiv-agent connectivity serve --name here --ports 8080,8081",
		Args:    exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.ContainsAny(s.Name, " \n") || s.Name == "" {
				return exit.Usage(fmt.Errorf("--name %q: must be one word", s.Name))
			}
			return s.Serve(cmd.Context())
		},
	}
	host, _ := os.Hostname() // a machine without a name has this server's
	if host == "" {
		host = "server"
	}
	cmd.Flags().StringVar(&s.Name, "name", "", "name in the answers (default: the name of the host)")
	cmd.Flags().IntSliceVar(&s.Ports, "ports", []int{8080}, "ports, of TCP and UDP")
	cmd.PreRun = func(*cobra.Command, []string) {
		if s.Name == "" {
			s.Name = host
		}
	}
	return cmd
}

func newProbe() *cobra.Command {
	return &cobra.Command{
		Use:   "probe",
		Short: "Measure paths from this pod: probes on standard input, outcomes on standard output",
		Long: `probe reads a JSON list of probes from standard input, executes them, many at the same time, and writes one JSON object per line for each
outcome, in the order in which they end. The fields of a probe:

  id      number of the probe, for its outcome
  kind    tcp, udp, icmp, mtu, refused, tls, dns, hold or self
  to      address:port; icmp: an address; dns: a name
  server  dns: address:port of the name server (without it: those of resolv.conf)
  family  dns: 4 or 6 (without it: both)
  times   tcp: number of connections
  bytes   tcp: payload in each direction
  limit   nanoseconds that one connection or question may take

An outcome has answers (server, client), addresses (dns), mtu and passes (mtu: the largest packet that arrives), holds, links and servers
(self); of a failure failed, symptom (silence, refusal, unreachable, stalled, cut, unsupported, other) and error.`,
		Example: `  echo '[{"id":1,"kind":"icmp","to":"10.1.2.3","limit":1000000000}]' | contiv-agent connectivity probe`,
		Args:    exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var probes []probe.Probe
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&probes); err != nil {
				return exit.Usage(fmt.Errorf("standard input: %w", err))
			}
			enc := json.NewEncoder(cmd.OutOrStdout())
			var failed error
			probe.Run(cmd.Context(), probes, func(o probe.Outcome) { failed = errors.Join(failed, enc.Encode(o)) })
			return failed
		},
	}
}

// testFlags are those of kubectl contiv connectivity test.
type testFlags struct {
	agents *kubectl.Agents
	node   *string
	cfg    connectivity.Config
	output string
}

// OfCluster returns the command of the kubectl plugin. The node may be several, with commas; "": all.
func OfCluster(agents *kubectl.Agents, node *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connectivity",
		Short: "Test whether the network of the cluster works",
		Long:  `connectivity has one command: test.`,
	}
	cmd.AddCommand(newTest(agents, node))
	return cmd
}

func newTest(agents *kubectl.Agents, node *string) *cobra.Command {
	c := testFlags{agents: agents, node: node}
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Make pods and Services, measure all kinds of paths between them, and say what fails and why",
		Long: `test is an acceptance test of the cluster's network. It makes a namespace with two pods and a pod on the host's network on each node, Services of
each kind and network policies, measures paths between all nodes in both families that pods have, and removes the namespace, also when it is
interrupted. The pods run the agents' own image.

Each check is one line: ok, FAILED or skipped, its group, its name, and the number of its paths. Below a failed check, each failing path has a line
with its symptom, and then the probable causes follow: what the agents report, where a VPP differs from its agent's desired state, what a
trace of the packet by the cluster's objects finds, and what the pattern of the failures means.

Groups of checks (--checks):
  agents    each node has an agent that is in sync, with a VPP that answers; nothing of the node has failed
  pods      pods of one node and of all pairs of nodes: TCP, UDP, ICMP, packets of the full MTU, transfers
  hosts     processes of nodes and pods, in both directions; nodes and nodes
  services  cluster IPs (TCP, UDP, named port), node ports, traffic policies, session affinity, no endpoints, the API server
  dns       kubernetes.default and a headless Service by the cluster's DNS; each DNS server
  policies  default deny, allow by label and by ipBlock, egress; a revoked connection ends

It needs the rights to make namespaces, pods (privileged, because of the host's network), Services and NetworkPolicies, and to create pods/exec. With --node (a name, or
several with commas) only these nodes are tested. A second test in the namespace that --keep left uses its pods.

Exit codes: 0 all checks that were not skipped are ok; 1 the test could not be done or was interrupted; 2 wrong flags; 3 a check failed.`,
		Example: `  kubectl contiv connectivity test
  kubectl contiv connectivity test --node node-1,node-2 --checks pods,hosts
  kubectl contiv connectivity test -o junit >connectivity.xml`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.test(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&c.output, "output", "o", "text", "output format: text, json or junit")
	fs.StringVar(&c.cfg.Namespace, "test-namespace", "contiv-connectivity-test", "namespace to make")
	fs.StringVar(&c.cfg.Image, "image", "", "image of the test's pods, with contiv-agent in its PATH (default: that of the agents)")
	fs.StringSliceVar(&c.cfg.Groups, "checks", nil, "groups of checks (default: all): "+strings.Join(connectivity.Groups(), ", "))
	fs.DurationVar(&c.cfg.Limit, "limit", 4*time.Second, "how long one connection or question may take; a large transfer: how long it may make no progress")
	fs.DurationVar(&c.cfg.Start, "start-limit", 2*time.Minute, "how long the test's pods may take to start")
	fs.IntVar(&c.cfg.HostPort, "host-port", 28571, "port of the test's pods on the nodes' network, which no other process may have")
	fs.BoolVar(&c.cfg.Keep, "keep", false, "leave the namespace")
	return cmd
}

// check validates the flags.
func (c *testFlags) check() error {
	if !slices.Contains([]string{"text", "json", "junit"}, c.output) {
		return exit.Usage(fmt.Errorf("-o %s: must be text, json or junit", c.output))
	}
	for _, g := range c.cfg.Groups {
		if !slices.Contains(connectivity.Groups(), g) {
			return exit.Usage(fmt.Errorf("--checks %s: must be of %s", g, strings.Join(connectivity.Groups(), ", ")))
		}
	}
	if c.cfg.Limit < 100*time.Millisecond || c.cfg.Start <= 0 {
		return exit.Usage(errors.New("--limit must be 100ms or more, --start-limit more than 0"))
	}
	if c.cfg.HostPort < 1 || c.cfg.HostPort > 65535 {
		return exit.Usage(fmt.Errorf("--host-port %d: must be 1 to 65535", c.cfg.HostPort))
	}
	return nil
}

func (c *testFlags) test(cmd *cobra.Command) error {
	if err := c.check(); err != nil {
		return err
	}
	c.cfg.Agents, c.cfg.Selector, c.cfg.Container = c.agents.Namespace, c.agents.Selector, c.agents.Container
	if *c.node != "" {
		c.cfg.Nodes = strings.Split(*c.node, ",")
	}
	out := cmd.OutOrStdout()
	emit := func(r *connectivity.Result) {
		if c.output == "text" {
			terminal.PlainAll(r)
			r.WriteText(out)
		}
	}
	report, err := connectivity.Run(cmd.Context(), c.cfg, c.agents.Objects(), &tracer{Agents: c.agents}, emit)
	if report != nil {
		err = errors.Join(writeReport(out, report, c.output), err)
	}
	switch {
	case err != nil:
		return &exit.Error{Code: exit.Failed, Err: err}
	case !report.Passed:
		return &exit.Error{Code: exit.Differs}
	}
	return nil
}

func writeReport(w io.Writer, r *connectivity.Report, format string) error {
	switch format {
	case "json":
		return r.WriteJSON(w)
	case "junit":
		return r.WriteJUnit(w)
	}
	r.WriteSummary(w)
	return nil
}

// tracer are the agents, and trace on this machine.
type tracer struct{ *kubectl.Agents }

// Trace implements connectivity.Agents.
func (t *tracer) Trace(ctx context.Context, questions []connectivity.Question) ([]string, error) {
	pods, err := t.List(ctx, "")
	if err != nil {
		return nil, err
	}
	var set map[string]string // without an answer: the default settings
	if st, err := t.StatusOf(ctx, pods[0]); err == nil {
		set = st.Settings
	}
	var settings flags.Agent
	if err := settings.Apply(set); err != nil {
		return nil, err
	}
	from := whatif.Source{Kubeconfig: t.Kubeconfig, Context: t.Context, API: true}
	cluster, err := from.Load(ctx, &settings, false, io.Discard)
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	out := make([]string, len(questions))
	for i, q := range questions {
		line, err := json.Marshal(q)
		if err != nil {
			return nil, err
		}
		step, err := trace.ParseStep(line)
		if err != nil {
			continue // no question that trace knows: a pod on the host's network
		}
		if a := cluster.AnswerStep(step); a.Error == "" && a.Verdict != trace.Delivered {
			out[i] = a.Reason
		}
	}
	return out, nil
}
