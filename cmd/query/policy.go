package query

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/recommend"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/whatif"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// NewPolicy returns the command policy.
func NewPolicy() *cobra.Command {
	var socket string
	var manifests []string
	var settings flags.Agent
	var out show.Output
	cmd := &cobra.Command{
		Use:   "policy NAMESPACE/POD ...",
		Short: "Show the policies of a pod as they are applied, rule by rule",
		Long: `policy shows, for each direction of a pod, the tiers in the order in which a packet meets them, their policies, the
rules with what they match, and the verdict for packets that no rule decides. It queries the agent of the pod's node over its
unix socket; with --manifests it uses a cluster given as files instead.

If VPP counts (see run --stats-socket), each rule shows its count:
` + show.Counting + `
The counts are of the lists that the pod's own packets meet. Packets that leave the node are evaluated, and counted, there as well.
Packets to a Service that egress denies are denied at the backend's address, and are not counted here. A rule without a count is in
no list: it never decides, or selects no peer.`,
		Example:           "  contiv-agent policy prod/web-0\n  contiv-agent policy prod/web-0 -o json\n  contiv-agent policy --manifests examples/guestbook guestbook/frontend-0",
		ValidArgsFunction: completePods(&manifests, &socket),
		RunE: func(cmd *cobra.Command, args []string) error {
			pods, err := podIDs(args)
			if err != nil {
				return exit.Usage(err)
			}
			var described []*policy.Description
			if len(manifests) > 0 {
				described, err = describeManifests(cmd.Context(), pods, manifests, &settings, cmd.ErrOrStderr())
			} else {
				described, err = describeRunning(cmd.Context(), pods, flags.StatusSocket(socket))
			}
			if err != nil {
				return err
			}
			return out.PrintNamed(cmd.OutOrStdout(), described, func(w io.Writer) {
				for _, d := range described {
					show.Policies(w, d)
				}
			}, func() []string { return show.PolicyNames(described) })
		},
	}
	cmd.AddCommand(recommend.New())
	settings.AddFlags(cmd)
	out.AddNameFlag(cmd)
	addSocket(cmd.Flags(), &socket)
	cmd.Flags().StringSliceVar(&manifests, "manifests", nil, "show the cluster of these folders or files instead of a running agent's")
	return cmd
}

func podIDs(names []string) ([]model.PodID, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("no pod given: want NAMESPACE/POD")
	}
	var pods []model.PodID
	for _, s := range names {
		ns, name, ok := strings.Cut(s, "/")
		if !ok || ns == "" || name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("pod %q: want NAMESPACE/POD", s)
		}
		pods = append(pods, model.PodID{Namespace: ns, Name: name})
	}
	return pods, nil
}

func describeRunning(ctx context.Context, pods []model.PodID, socket string) ([]*policy.Description, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var out []*policy.Description
	for _, pod := range pods {
		d, err := control.FetchPolicy(ctx, socket, pod)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// describeManifests queries the agent of each pod's node in a what-if cluster.
func describeManifests(ctx context.Context, pods []model.PodID, paths []string, settings *flags.Agent, warn io.Writer) ([]*policy.Description, error) {
	cluster, err := whatif.Load(ctx, paths, settings, false, warn)
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	var out []*policy.Description
	for _, pod := range pods {
		found := false
		for _, node := range cluster.Nodes() {
			if d, ok := cluster.Agent(node).Policy(pod); ok {
				out, found = append(out, d), true
			}
		}
		if !found {
			return nil, exit.Usage(fmt.Errorf("pod %s has no endpoint on any node: it is unknown, has finished, or uses the host's network", pod))
		}
	}
	return out, nil
}
