package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/cmd/acceptance"
	"github.com/contiv-agent/contiv-agent/cmd/capture"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flows"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/cmd/live"
	"github.com/contiv-agent/contiv-agent/cmd/recommend"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/support"
	"github.com/contiv-agent/contiv-agent/cmd/ui"
)

// PluginName is the file that kubectl runs from PATH for `kubectl contiv`.
const PluginName = "kubectl-contiv"

// pluginFlags select the agents.
type pluginFlags struct {
	agents kubectl.Agents
	node   string
}

// NewPlugin returns the command line of the kubectl plugin.
func NewPlugin() *cobra.Command {
	var f pluginFlags
	root := &cobra.Command{
		Use:         PluginName,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl contiv"},
		Short:       "Query the agents of a cluster: their state, and the fate of packets",
		Long: `kubectl contiv queries the agents of a cluster as contiv-agent queries the one on its node. It is contiv-agent itself: put a link to it
named ` + PluginName + ` into a folder in PATH, where kubectl finds it.

    ln -s "$(command -v contiv-agent)" /usr/local/bin/` + PluginName + `

A second link, named ` + CompletionName + `, completes its commands and flags in a shell that completes kubectl's.

It finds the pods of the DaemonSet by --namespace and --selector, and runs contiv-agent in them with kubectl, the one in PATH or $KUBECTL. It
has the rights of the kubeconfig, and needs the right to list these pods and to create pods/exec in them. Without
--node it queries every node, one after the other, and prints a heading for each; with -o json or yaml, one List, whose items have node, pod,
exitCode and answer. With --node the output is the answer itself.

Exit codes are those of contiv-agent, the worst of all nodes: 1 failed, or no agent was found; 2 wrong flags or arguments; 3 a
node has a finding; 0 no finding.`,
		Example: `  kubectl contiv status
  kubectl contiv policy guestbook/redis-leader-0
  kubectl contiv status policies -o yaml
  kubectl contiv plan --node node-1
  kubectl contiv doctor
  kubectl contiv flows -f --verdict dropped
  kubectl contiv trace '{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP"}'`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(exit.FlagError)
	fs := root.PersistentFlags()
	fs.StringVar(&f.agents.Kubeconfig, "kubeconfig", "", "kubeconfig, for kubectl")
	fs.StringVar(&f.agents.Context, "context", "", "context of the kubeconfig, for kubectl")
	fs.StringVarP(&f.agents.Namespace, "namespace", "n", "contiv-system", "namespace of the agents")
	fs.StringVarP(&f.agents.Selector, "selector", "l", "app.kubernetes.io/name=contiv-vswitch", "label selector of the agents' pods")
	fs.StringVarP(&f.agents.Container, "container", "c", "agent", "container of the agent in its pod")
	fs.StringVar(&f.agents.Program, "program", "contiv-agent", "path of contiv-agent in that container; if Felix runs it: /driver/contiv-agent in container felix")
	fs.StringVar(&f.node, "node", "", "query only the agent of this node")
	root.AddCommand(f.status(), f.plan(), f.policy(), f.trace(), f.doctor(), f.logLevel(), f.config(), flows.OfCluster(&f.agents, &f.node), support.OfCluster(&f.agents, &f.node), f.everywhere(flows.NewStaged()), acceptance.OfCluster(&f.agents, &f.node))
	root.AddCommand(ui.OfCluster(&f.agents, &f.node), capture.OfCluster(&f.agents, &f.node))
	return root
}

// like returns a command of the plugin with the name, texts and some flags of a contiv-agent command.
func like(other *cobra.Command, flags ...string) *cobra.Command {
	cmd := &cobra.Command{
		Use: other.Use, Short: other.Short, Long: other.Long,
		Example: strings.ReplaceAll(other.Example, "contiv-agent ", "kubectl contiv "),
	}
	for _, name := range flags {
		cmd.Flags().AddFlag(other.Flags().Lookup(name))
	}
	if output := other.Flags().Lookup("output"); output != nil { // log-level has no formats
		cmd.Flags().AddFlag(output)
	}
	return cmd
}

// given returns the command's own flags of the command line, as text, but not those that are used here. A list is made of JSON.
func (p *pluginFlags) given(cmd *cobra.Command, here ...string) (out []string) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case slices.Contains(here, f.Name):
		case f.Changed && f.Name == "output" && f.Value.String() == "yaml" && p.node == "":
			out = append(out, "--output=json")
		case f.Changed:
			out = append(out, "--"+f.Name+"="+f.Value.String())
		}
	})
	return out
}

// named returns arguments that kubectl must not read as flags, whatever they begin with.
func named(args []string) []string {
	if len(args) == 0 {
		return nil
	}
	return append([]string{"--"}, args...)
}

// everywhere returns a command that runs in the pod of each agent.
func (f *pluginFlags) everywhere(other *cobra.Command, flags ...string) *cobra.Command {
	cmd := like(other, flags...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pods, err := f.agents.List(cmd.Context(), f.node)
		if err != nil {
			return err
		}
		var asks []kubectl.Question
		for _, pod := range pods {
			asks = append(asks, kubectl.Question{Place: pod, Args: slices.Concat(strings.Fields(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().CommandPath())), f.given(cmd), named(args))})
		}
		return f.queryAll(cmd, asks)
	}
	return cmd
}

func (f *pluginFlags) status() *cobra.Command {
	cmd := f.everywhere(NewStatus(), "all", "history")
	cmd.Long = `status shows the state of agents, and of every Service and policy that is not configured, or has remarks; with names it shows these
Services; with --all it shows every Service and policy.

Exit code 3: an agent is not in sync, or not healthy: an object or value is refused, failed or pending.`
	return cmd
}

func (f *pluginFlags) plan() *cobra.Command {
	cmd := f.everywhere(NewPlan(), "sessions")
	cmd.Long = `plan makes agents compare their VPPs with the desired state, and prints the operations that would make them equal. It executes none. There
are changes if another program has changed VPP, or VPP refuses a value.

Exit code 0: nothing to change; 3: there are changes.`
	cmd.Example = "  kubectl contiv plan\n  kubectl contiv plan --node node-1 -o json"
	return cmd
}

// doctor examines the VPP of each node from the agent's container, which has its sockets.
func (f *pluginFlags) doctor() *cobra.Command {
	cmd := f.everywhere(NewDoctor(), "all", "vpp-socket", "stats-socket", "service-renderer", "no-policies", "cni")
	cmd.Example = "  kubectl contiv doctor\n  kubectl contiv doctor --node node-1 --all"
	return cmd
}

func (f *pluginFlags) logLevel() *cobra.Command {
	other := NewLogLevel()
	cmd := f.everywhere(other)
	cmd.Args, cmd.ValidArgs = other.Args, other.ValidArgs
	return cmd
}

// config has the subcommands that change nothing.
func (f *pluginFlags) config() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show the configuration of other programs in agents, and VPP's actual state"}
	get := f.everywhere(newConfigGet(&configFlags{}), "vpp")
	get.Long = "get shows the desired state of the client without a name, in agents that serve their gRPC API on a unix socket. With --vpp it shows the values that VPP has acknowledged, of all owners."
	get.Example = "  kubectl contiv config get --node node-1\n  kubectl contiv config get --vpp vpp.interfaces -o json"
	cmd.AddCommand(get, f.configDiff())
	return cmd
}

// configDiff reads the files here, and sends them to each agent on its standard input.
func (f *pluginFlags) configDiff() *cobra.Command {
	var files []string
	cmd := like(newConfigDiff(&configFlags{}), "resync")
	cmd.Args = exit.NoArgs
	cmd.Long = "diff compares every item of the files with the item of the client without a name in each agent, and with VPP's value of the same key: see contiv-agent config diff.\n\n" +
		"Exit code 0: no difference; 3: a difference on a node."
	cmd.Example = "  kubectl contiv config diff -f loop.yaml --node node-1\n  kubectl contiv config diff -f loop.yaml -o json"
	cmd.Flags().StringSliceVarP(&files, "file", "f", nil, "file of YAML documents on this machine; - is standard input")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text, err := readTexts(cmd, files)
		if err != nil {
			return err
		}
		args := append([]string{"config", "diff", "--file=-"}, f.given(cmd, "file")...)
		pods, err := f.agents.List(cmd.Context(), f.node)
		if err != nil {
			return err
		}
		var asks []kubectl.Question
		for _, pod := range pods {
			asks = append(asks, kubectl.Question{Place: pod, Args: args, Input: text})
		}
		return f.queryAll(cmd, asks)
	}
	return cmd
}

// policy queries the agent of each pod's node.
func (f *pluginFlags) policy() *cobra.Command {
	cmd := like(NewPolicy())
	cmd.Long = `policy shows, for each direction of a pod, the tiers in the order in which a packet meets them, their policies, the rules with what they
match, and the verdict for packets that no rule decides. It queries the agent of the pod's node, or with --node that agent.

If VPP counts (see contiv-agent run --stats-socket), each rule shows its count:
` + show.Counting + `.`
	cmd.Example = "  kubectl contiv policy prod/web-0\n  kubectl contiv policy prod/web-0 prod/web-1 -o json"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pods, err := podIDs(args)
		if err != nil {
			return exit.Usage(err)
		}
		var asks []kubectl.Question
		for _, pod := range pods {
			node := f.node
			if node == "" {
				if node, err = f.agents.NodeOf(cmd.Context(), pod.Namespace, pod.Name); err != nil {
					return err
				}
			}
			if at := slices.IndexFunc(asks, func(a kubectl.Question) bool { return a.Node == node }); at >= 0 {
				asks[at].Args = append(asks[at].Args, pod.String())
				continue
			}
			agents, err := f.agents.List(cmd.Context(), node)
			if err != nil {
				return err
			}
			asks = append(asks, kubectl.Question{Place: agents[0], Args: slices.Concat([]string{"policy"}, f.given(cmd), named([]string{pod.String()}))})
		}
		return f.queryAll(cmd, asks)
	}
	cmd.AddCommand(recommend.OfCluster(&f.agents, &f.node))
	return cmd
}

// trace answers on this machine, for the objects of the API server, with the settings of a running agent.
func (f *pluginFlags) trace() *cobra.Command {
	var t traceFlags
	cmd := &cobra.Command{
		Use:   NewTrace().Use,
		Short: "Show the fate of packets in the current cluster",
		Long: `trace reads questions, one JSON object per line, from standard input (or from its arguments), and answers each with one line, in order; the
questions are those of contiv-agent trace. It reads the API server's objects, with the kubeconfig's rights, builds an agent and an
embedded VPP for every Node on this machine, and follows packets through them. These agents have the settings of the agent of --node,
or of the first node; trace queries its settings and its state. Only --live --inject sends a packet in the cluster. The cluster's VPPs do the same
if "kubectl contiv plan" finds nothing to change. With --cni, packets that leave the cluster are shown as VPP sends them to the node's
network stack, which then gives them the node's address.

With --diff and a folder (or file) of manifests on this machine, it shows which connections start and stop to be possible when the folder's objects are
created or replaced in the cluster, as kubectl apply does. It applies nothing, and removes no object.

` + live.Text + ` The agent of the pod's node, or of
--node, is queried.`,
		Example: `  kubectl contiv trace guestbook/client guestbook/frontend:80
  kubectl contiv trace '{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP"}'
  kubectl contiv trace --matrix --port 6379/TCP
  kubectl contiv trace --diff new-policies.yaml --port 80/TCP
  kubectl contiv trace --live guestbook/client guestbook/frontend:80
  kubectl contiv trace --live --inject guestbook/client guestbook/frontend:80`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if t.matrix.Diff && len(args) != 1 {
				return exit.Usage(errors.New("--diff takes one folder here, whose objects are applied to those of the cluster; contiv-agent trace --diff compares two"))
			}
			pods, err := f.agents.List(cmd.Context(), f.node)
			if err != nil {
				return err
			}
			st, err := f.agents.StatusOf(cmd.Context(), pods[0])
			if err != nil {
				return err
			}
			if !st.InSync {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is not in sync, its VPP may differ: %s\n", st.Node, st.Waiting)
			}
			if err := t.applySettings(st); err != nil {
				return err
			}
			t.Kubeconfig, t.Context, t.API = f.agents.Kubeconfig, f.agents.Context, true
			return t.runTrace(cmd, args, live.Of(&f.agents, f.node))
		},
	}
	t.addFlags(cmd)
	cmd.Flags().StringSliceVar(&t.Ignored, "ignore-policy-kinds", nil, "kinds of policies to ignore although the API server serves them, as for contiv-agent run")
	return cmd
}

// queryAll queries one agent after the other; the error has the worst exit code. JSON and YAML of all nodes are one list.
func (f *pluginFlags) queryAll(cmd *cobra.Command, asks []kubectl.Question) error {
	out := show.Output("text")
	if flag := cmd.Flags().Lookup("output"); flag != nil {
		out = show.Output(flag.Value.String())
	}
	worst, err := 0, error(nil)
	if out.IsData() && f.node == "" {
		var all *kubectl.Answers
		if all, worst, err = f.agents.Collect(cmd.Context(), cmd.ErrOrStderr(), asks); err == nil {
			err = out.Print(cmd.OutOrStdout(), all, nil)
		}
	} else {
		worst, err = f.agents.Ask(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), out != "name", asks)
	}
	if err == nil && worst != exit.OK {
		err = &exit.Error{Code: worst} // each agent's error is already printed
	}
	return err
}
