package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/cleanup"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
)

// cleanupFlags are the flags of cleanup.
type cleanupFlags struct {
	flags.Log
	show.Output
	flags   flags.Cleanup
	dry     bool
	wait    bool
	stay    bool
	timeout time.Duration
}

func newCleanup() *cobra.Command {
	var f cleanupFlags
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove from VPP, or from the whole node, the objects that agents have made",
		Long: `cleanup removes from a VPP the objects that an agent has made: NAT44 mappings and addresses, cnat translations, access lists,
routes, interfaces. It recognises them by the tag that VPP keeps with them, or by the agent's journal. All other objects are foreign, and
stay. cleanup also removes what other programs have configured through the agent, by gRPC or etcd: it carries the same tag. It removes in
reverse order of dependencies. With --dry-run it prints the plan, and changes nothing.

It refuses to run while an agent is connected to VPP. While it runs, no agent can program VPP or start with the same --status-socket. A
second run finds nothing to remove. It deletes the journal when all objects are removed. Without a journal, objects that VPP keeps no tag
for stay (routes, NAT44 on interfaces, addresses of NAT44, all of cnat).

NAT44 stays enabled, without forwarding and without any object of the agent: disabling it would remove other programs' objects. An object
without a tag that existed before the agent, exactly as the agent wanted it, counts as the agent's.

Connections through Services served by NAT44 end, because VPP removes their sessions; connections through cnat continue until their
sessions expire. Policies are no longer enforced. See docs/handover.md.

Of an agent with --cni, cleanup first gives the node's NIC back to the kernel if VPP has it. It removes the network configuration list and the
CNI plugin from the node's folders, so that container runtimes start no more pods with them, and then the links of pods and of the node that
the journal names. The files in --cni-state stay: a new agent connects the pods again whose sandboxes still exist.

With --node the node is as it was before the first agent. cleanup also removes everything in the kernel that has an agent's mark, with or without
journal and VPP: links, routes, tables of the packet filter. Then it removes the files in --cni-state, sockets, the journal and locks. It
removes nothing that has no mark of an agent. If no process listens at --vpp-socket, VPP counts as ended, with all objects in it. If VPP does not
answer, cleanup cleans the kernel, keeps the journal and the files for another run, and ends with code 1. Remove pods, or drain the node, before:
pods that still run lose their network, and a container runtime cannot delete them until it has another CNI plugin. See docs/install.md.

Exit code 1: an object could not be removed, or VPP could not be reached; 2: an agent is running; 3: --dry-run found objects to remove.`,
		Example: `  contiv-agent cleanup --dry-run
  contiv-agent cleanup
  contiv-agent cleanup --node --dry-run
  contiv-agent cleanup --node
  contiv-agent cleanup --vpp-socket ./vpp.sock --journal ./journal -o json`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := f.runCleanup(cmd)
			if err == nil && f.stay {
				<-cmd.Context().Done()
			}
			return err
		},
	}
	f.Log.AddFlags(cmd)
	f.Output.AddFlag(cmd)
	fs := cmd.Flags()
	f.flags.AddFlags(fs)
	fs.BoolVar(&f.dry, "dry-run", false, "print the objects to remove, and change nothing")
	fs.BoolVar(&f.wait, "wait", false, "while an agent runs, wait for its end instead of refusing to run")
	fs.BoolVar(&f.stay, "stay", false, "when everything is removed, or with --dry-run nothing is left, wait for Ctrl-C or SIGTERM: for a DaemonSet, whose pods must not end")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "how long VPP may take")
	return cmd
}

func (f *cleanupFlags) runCleanup(cmd *cobra.Command) error {
	log, err := f.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	cfg := f.flags.Config()
	cfg.Logger = log
	c, err := f.begin(cmd, cfg)
	switch {
	case errors.Is(err, cleanup.ErrInUse):
		return exit.Usage(err)
	case err != nil && !f.dry: // the node reaches nobody by a VPP without the agent's interfaces
		return errors.Join(err, cfg.GiveBackNIC())
	case err != nil:
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	if c.NoJournal() {
		fmt.Fprintf(cmd.ErrOrStderr(), "no journal %s: objects that VPP keeps no tag for stay\n", cfg.Journal)
	}
	if f.dry {
		plan, err := c.Plan(ctx)
		if err != nil {
			return err
		}
		if err := f.Print(cmd.OutOrStdout(), plan, func(w io.Writer) { fmt.Fprint(w, plan) }); err != nil {
			return err
		}
		if !plan.Empty() {
			return &exit.Error{Code: exit.Differs}
		}
		return nil
	}
	report, err := c.Clean(ctx)
	if err != nil {
		return err
	}
	if err := f.Print(cmd.OutOrStdout(), report, func(w io.Writer) { show.Cleanup(w, report) }); err != nil {
		return err
	}
	if !report.Whole() {
		return fmt.Errorf("%d values and %d other things could not be removed", len(report.Left), len(report.Failed))
	}
	return nil
}

// begin connects to VPP. With --wait it first waits for the end of the agent.
func (f *cleanupFlags) begin(cmd *cobra.Command, cfg cleanup.Config) (*cleanup.Cleaner, error) {
	said := false
	for {
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		c, err := cleanup.New(ctx, cfg)
		cancel()
		if !f.wait || !errors.Is(err, cleanup.ErrInUse) {
			return c, err
		}
		if !said {
			fmt.Fprintf(cmd.ErrOrStderr(), "waiting: %v\n", err)
			said = true
		}
		again := time.NewTimer(time.Second)
		select {
		case <-cmd.Context().Done():
			again.Stop()
			return nil, err
		case <-again.C:
		}
	}
}
