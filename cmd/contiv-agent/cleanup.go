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
	cfg     cleanup.Config
	files   flags.CNIFolders
	state   string
	dry     bool
	timeout time.Duration
}

func newCleanup() *cobra.Command {
	var f cleanupFlags
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove from VPP the objects that agents have made",
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

Of an agent with --cni, cleanup first removes the network configuration list and the CNI plugin from the node's folders, so that container
runtimes start no more pods with them, and gives the node's NIC back to the kernel if VPP has it. Then it removes the links of pods and of the node. The files in --cni-state stay: a new agent connects
the pods again whose sandboxes still exist.

Exit code 1: an object could not be removed, or VPP could not be reached; 2: an agent is running; 3: --dry-run found objects to remove.`,
		Example: `  contiv-agent cleanup --dry-run
  contiv-agent cleanup
  contiv-agent cleanup --vpp-socket ./vpp.sock --journal ./journal -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.runCleanup(cmd) },
	}
	f.Log.AddFlags(cmd)
	f.Output.AddFlag(cmd)
	fs := cmd.Flags()
	flags.AddSocket(fs, &f.cfg.Socket)
	flags.AddLock(fs, &f.cfg.Lock)
	fs.StringVar(&f.cfg.Journal, "journal", flags.Auto, "journal of the agent; empty: none; auto: /run/contiv-agent/journal for root, else none")
	fs.StringVar(&f.cfg.StatusSocket, "status-socket", flags.Auto, "unix socket of the agent's status, which cleanup occupies while it runs; empty: none; auto: the default of run")
	f.files.AddFlags(fs, "cleanup removes the agent's file there; empty: it does not", "cleanup removes the agent's plugin there; empty: it does not")
	fs.StringVar(&f.state, "cni-state", flags.CNIState, "folder of the agent's files: cleanup gives a NIC that VPP has (run --node-nic) back to the kernel")
	fs.BoolVar(&f.dry, "dry-run", false, "print the objects to remove, and change nothing")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "how long VPP may take")
	return cmd
}

func (f *cleanupFlags) runCleanup(cmd *cobra.Command) (result error) {
	if err := f.Check(); err != nil {
		return err
	}
	log, err := f.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	cfg := f.cfg
	cfg.Lock = flags.LockPath(cfg.Lock, cfg.Socket)
	cfg.Logger, cfg.Journal, cfg.StatusSocket = log, flags.JournalPath(cfg.Journal, false), flags.StatusSocket(cfg.StatusSocket)
	cfg.Files = f.files.Files()
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	c, err := cleanup.New(ctx, cfg)
	if errors.Is(err, cleanup.ErrInUse) {
		return exit.Usage(err)
	}
	if !f.dry { // first, also without VPP: the node reaches nobody by a VPP without the agent's interfaces
		finish, failed := flags.SettleNIC(f.state)
		if failed != nil {
			return errors.Join(err, failed)
		}
		defer func() { result = errors.Join(result, finish()) }()
	}
	if err != nil {
		return err
	}
	defer c.Close()
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
	if len(report.Left) > 0 {
		return fmt.Errorf("%d values could not be removed", len(report.Left))
	}
	return nil
}
