package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

func newPolicy() *cobra.Command {
	var socket string
	var manifests []string
	var flags agentFlags
	var out output
	cmd := &cobra.Command{
		Use:   "policy NAMESPACE/POD ...",
		Short: "Show the policies of a pod as they are applied, rule by rule",
		Long: `policy shows, for each direction of a pod, the tiers in the order in which a packet meets them, their policies, the
rules with what they match, and the verdict for packets that no rule decides. It queries the agent of the pod's node over its
unix socket; with --manifests it uses a cluster given as files instead.

If VPP counts (see run --stats-socket), each rule shows its count:
` + counting + `
The counts are of the lists that the pod's own packets meet. Packets that leave the node are evaluated, and counted, there as well.
Packets to a Service that egress denies are denied at the backend's address, and are not counted here. A rule without a count is in
no list: it never decides, or selects no peer.`,
		Example: "  contiv-agent policy prod/web-0\n  contiv-agent policy prod/web-0 -o json\n  contiv-agent policy --manifests examples/guestbook guestbook/frontend-0",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			pods, err := podIDs(args)
			if err != nil {
				return usage(err)
			}
			var described []*policy.Description
			if len(manifests) > 0 {
				described, err = describeManifests(cmd.Context(), pods, manifests, &flags, cmd.ErrOrStderr())
			} else {
				described, err = describeRunning(cmd.Context(), pods, statusSocket(socket))
			}
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), described, func(w io.Writer) {
				for _, d := range described {
					writePolicies(w, d)
				}
			})
		},
	}
	flags.addFlags(cmd)
	out.flag(cmd)
	cmd.Flags().StringVar(&socket, "status-socket", auto, "unix socket of the agent; auto: $"+envStatusSocket+", or the default of run")
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
func describeManifests(ctx context.Context, pods []model.PodID, paths []string, flags *agentFlags, warn io.Writer) ([]*policy.Description, error) {
	cluster, err := loadCluster(ctx, paths, flags, false, warn)
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
			return nil, usage(fmt.Errorf("pod %s has no endpoint on any node: it is unknown, has finished, or uses the host's network", pod))
		}
	}
	return out, nil
}

// counting explains the counts.
const counting = "packets that the rule decided since its list last changed, of all pods here that share the list; later packets of an allowed flow are not counted"

func writePolicies(w io.Writer, d *policy.Description) {
	where := strings.Join(d.Interfaces, ", ")
	if where == "" {
		where = "no interface in VPP yet"
	}
	fmt.Fprintf(w, "%s: %s, %s\n", d.Endpoint, where, strings.Join(d.Addresses, " "))
	counts := counts(hasHits(d.Ingress) || hasHits(d.Egress))
	writeDirection(w, "ingress", d.Ingress, d.Profiles, counts)
	writeDirection(w, "egress", d.Egress, d.Profiles, counts)
	switch {
	case d.Uncounted != "":
		fmt.Fprintf(w, "  no counts: %s\n", d.Uncounted)
	case d.Spoofed != nil:
		fmt.Fprintf(w, "  source check: %d packets dropped with a source address that is not the pod's\n", d.Spoofed.Packets)
	}
	switch {
	case d.Uncounted != "":
	case bool(counts):
		fmt.Fprintf(w, "  counts: %s\n", counting)
	}
}

func hasHits(tiers []policy.Tier) bool {
	for _, t := range tiers {
		for _, p := range t.Policies {
			if slices.ContainsFunc(p.Rules, func(r policy.Rule) bool { return r.Hits != nil }) {
				return true
			}
		}
	}
	return false
}

// counts means that the output has a column of counts.
type counts bool

// cell returns the count of a rule, padded for the next column.
func (c counts) cell(h *policy.Hits) string {
	switch {
	case !bool(c):
		return ""
	case h == nil:
		return "-\t"
	case h.Packets == 1:
		return fmt.Sprintf("1 packet, %d bytes\t", h.Bytes)
	}
	return fmt.Sprintf("%d packets, %d bytes\t", h.Packets, h.Bytes)
}

// writeDirection writes the tiers of one direction as a packet meets them.
func writeDirection(w io.Writer, name string, tiers []policy.Tier, profiles []string, counts counts) {
	fmt.Fprintf(w, "  %s\n", name)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, t := range tiers {
		fmt.Fprintf(tw, "    tier %s\n", t.Name)
		for _, p := range t.Policies {
			staged := ""
			if p.Staged {
				staged = " (staged: not enforced)"
			}
			fmt.Fprintf(tw, "      %s%s\n", p.Object, staged)
			for _, r := range p.Rules {
				fmt.Fprintf(tw, "        %s\t%s\t%s%s\n", r.Name, r.Action, counts.cell(r.Hits), orAny(r.Match))
			}
		}
		fmt.Fprintf(tw, "      packets that no rule decides: %s\n", t.End)
	}
	if len(tiers) == 0 || tiers[len(tiers)-1].End == "pass" {
		fmt.Fprintf(tw, "    profiles decide: %s\n", orDash(strings.Join(profiles, ", ")))
	}
	_ = tw.Flush() // an error means that standard output is closed
}

func orAny(match string) string {
	if match == "" {
		return "anything"
	}
	return match
}
