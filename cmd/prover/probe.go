package prover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/live"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/classes"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/probes"
)

// probeTime is how long VPP looks for a packet that a pod has sent.
const probeTime = 2 * time.Second

// probePods lets pods send packets by the running agent, and adds what VPP does with them to its report.
func probePods(cmd *cobra.Command, cfg verify.Config, socket string, length time.Duration, report *verify.Report) error {
	cfg.Node = report.Node
	checks, sent, err := probes.Run(cmd.Context(), probes.Config{
		Node: report.Node, For: length,
		Read: func(ctx context.Context) (*classes.Finder, error) {
			changes, err := control.FetchObjects(ctx, socket)
			if err != nil {
				return nil, err
			}
			objects := report.Complete(understood(changes, io.Discard))
			state, err := verify.ReadLists(ctx, cfg, objects)
			return classes.New(objects, map[string]*dump.State{report.Node: state}), err
		},
		Send: func(ctx context.Context, from model.PodID, h space.Header, echo uint16) (*probes.Fate, error) {
			q := live.Question{From: from, To: netip.AddrPortFrom(h.Dst, h.DstPort).String(), Protocol: model.Protocol(h.Protocol).String(), Time: probeTime, Inject: true, SourcePort: h.SrcPort}
			if h.Protocol == space.ICMP || h.Protocol == space.ICMPv6 {
				q.To, q.Protocol, q.SourcePort = h.Dst.String(), model.ICMP.String(), echo
			}
			a, err := control.FetchTrace(ctx, socket, q)
			if err != nil {
				return nil, err
			}
			return a.Fate(), nil
		},
	})
	report.AddProbes(checks, sent)
	return err
}

// checkProbe is an error if the flag cannot be used.
func checkProbe(cmd *cobra.Command, length time.Duration, offline bool) error {
	switch {
	case !cmd.Flags().Changed("probe"):
		return nil
	case length <= 0:
		return fmt.Errorf("--probe %s: must be more than 0, such as 2m", length)
	case offline:
		return errors.New("--probe: needs a running agent; give no --manifests, --never, --always, --assert or --diff")
	}
	return nil
}
