package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent"
)

// cleanupFlags are the flags of cleanup.
type cleanupFlags struct {
	logFlags
	output
	cfg     agent.CleanupConfig
	dry     bool
	timeout time.Duration
}

func newCleanup() *cobra.Command {
	var f cleanupFlags
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Take out of VPP what agents have put into it",
		Long: `cleanup removes from a VPP what an agent has left there: NAT44 mappings and addresses, cnat translations, access lists, routes,
interfaces. It knows them by the tag that VPP keeps with them, or by the agent's journal; everything else is somebody else's, and
stays. What other programs have asked of the agent, by gRPC or etcd, is removed as well: it carries the same tag. Things go in
reverse order, what stands on others first. With --dry-run the plan is printed, and nothing is changed.

It refuses while an agent is connected to VPP, and while it is at work none can program VPP, or start with the same --status-socket. A second time
there is nothing to do. The journal goes when all is removed. Without a journal, what VPP keeps no tag of stays (routes, NAT44 on
interfaces, addresses of NAT44, all of cnat).

NAT44 stays switched on, without forwarding and without anything of ours in it: switching it off would take what others have in it.
What VPP had, before there was an agent, exactly as the agent wanted it, counts as the agent's where there are no tags.

Connections through Services served by NAT44 end, as VPP forgets their sessions; those through cnat go on until their sessions are
forgotten. Policies are enforced no longer. See docs/handover.md.

Exit code 1: something could not be removed, or VPP could not be reached; 2: an agent is running; 3: --dry-run found something to
remove.`,
		Example: `  contiv-agent cleanup --dry-run
  contiv-agent cleanup
  contiv-agent cleanup --vpp-socket ./vpp.sock --journal ./journal -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.logFlags.add(cmd)
	f.output.flag(cmd)
	fs := cmd.Flags()
	socketFlag(fs, &f.cfg.Socket)
	lockFlag(fs, &f.cfg.Lock)
	fs.StringVar(&f.cfg.Journal, "journal", auto, "journal of the agent; empty: there is none; auto: /run/contiv-agent/journal for root, else none")
	fs.StringVar(&f.cfg.StatusSocket, "status-socket", auto, "unix socket where the agent would answer, taken meanwhile; empty: none; auto: where run listens by default")
	fs.BoolVar(&f.dry, "dry-run", false, "print what would be removed, and change nothing")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "how long VPP may take")
	return cmd
}

func (f *cleanupFlags) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	log, err := f.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	cfg := f.cfg
	cfg.Lock = lockPath(cfg.Lock, cfg.Socket)
	cfg.Logger, cfg.Journal, cfg.StatusSocket = log, journalPath(cfg.Journal, false), statusSocket(cfg.StatusSocket)
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	c, err := agent.NewCleaner(ctx, cfg)
	if errors.Is(err, agent.ErrInUse) {
		return usage(err)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if c.NoJournal() {
		fmt.Fprintf(cmd.ErrOrStderr(), "there is no journal %s: what VPP keeps no tag of stays\n", cfg.Journal)
	}
	if f.dry {
		plan, err := c.Plan(ctx)
		if err != nil {
			return err
		}
		if err := f.print(cmd.OutOrStdout(), plan, func(w io.Writer) { fmt.Fprint(w, plan) }); err != nil {
			return err
		}
		if !plan.Empty() {
			return &codeError{code: exitDiffers}
		}
		return nil
	}
	report, err := c.Clean(ctx)
	if err != nil {
		return err
	}
	if err := f.print(cmd.OutOrStdout(), report, func(w io.Writer) { writeCleanup(w, report) }); err != nil {
		return err
	}
	if len(report.Left) > 0 {
		return fmt.Errorf("%d values could not be removed", len(report.Left))
	}
	return nil
}

func writeCleanup(w io.Writer, r *agent.CleanupReport) {
	fmt.Fprintf(w, "%d values removed, with %d messages to VPP\n", r.Removed, r.Writes)
	for _, f := range r.Foreign {
		fmt.Fprintf(w, "left alone, made by somebody else: %s\n", f)
	}
	for _, v := range r.Left {
		fmt.Fprintf(w, "not removed: %s is %s\n", v.Key, join(v.State, v.Error))
	}
}
