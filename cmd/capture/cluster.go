package capture

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
)

// OfCluster returns the command of the kubectl plugin. It asks the agent of the pod's node, or that of one node.
func OfCluster(agents *kubectl.Agents, node *string) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "capture NAMESPACE/POD",
		Short: "Capture the packets of a pod in the VPP of its node, as a pcap file",
		Long: `capture writes a pcap file on this machine with the packets that the pod's interface in VPP receives from the pod and sends to it, for Wireshark and
tcpdump. It queries the agent of the pod's node, or with --node that agent.

` + limitsText + "\n\n" + exitText,
		Example: `  kubectl contiv capture prod/web-0 -w web.pcap
  kubectl contiv capture prod/web-0 --count 100 | tcpdump -nr -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			pod, err := s.checkArgs(cmd.OutOrStdout(), args)
			if err != nil {
				return err
			}
			at := *node
			if at == "" {
				if at, err = agents.NodeOf(cmd.Context(), pod.Namespace, pod.Name); err != nil {
					return err
				}
			}
			places, err := agents.List(cmd.Context(), at)
			if err != nil {
				return err
			}
			whole, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), s.limits.Time+2*answerLimit)
			defer cancel()
			var file bytes.Buffer
			if err := agents.Fetch(whole, places[0], cmd.Context().Done(), &file, append(s.args(), "--", pod.String())...); err != nil {
				return err
			}
			return s.save(file.Bytes(), pod, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s.addFlags(cmd)
	return cmd
}

// args are the arguments of contiv-agent in a pod.
func (s *settings) args() []string {
	return []string{
		"capture", "--write=" + stdout, fmt.Sprintf("--count=%d", s.limits.Packets), fmt.Sprintf("--duration=%s", s.limits.Time),
		fmt.Sprintf("--bytes=%d", s.limits.Bytes), "--" + flags.UntilInputEnds,
	}
}
