package query

import (
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/owner"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/doctor"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
)

// NewDoctor returns the command doctor.
func NewDoctor() *cobra.Command {
	var cfg doctor.Config
	var renderer, stats, lock string
	var hosts []string
	var all bool
	var out show.Output
	var pods podFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine a VPP: what is missing, wrong or dangerous, and the line of startup.conf that corrects it",
		Long: `doctor connects to a VPP and reads its version, messages and plugins, the use of its main heap and stats segment, the state and
session tables of NAT44, access lists and cnat, and foreign objects. It changes nothing. VPP does not forward while it prints its tables:
some milliseconds for tens of thousands of sessions or rules.

Each finding has a verdict: ok; skipped (the simulated VPP does not have it); note (worth knowing); unknown (VPP did not report it); missing (the agent needs it); wrong (it works, but
not as it should); dangerous (traffic is lost or let through, or VPP may end). Give --service-renderer, --no-policies, --host-address and
--host-interface as for run, so that doctor knows what the agent will need. With --cni it also examines this node: forwarding and rules of
the kernel, the links of pods, the CNI plugin and its configuration, and the running agent. Without --all, doctor only counts the checks that are ok.

Exit code 3: something is missing, wrong or dangerous. Exit code 1: VPP could not be reached, or went away.`,
		Example: `  contiv-agent doctor
  contiv-agent doctor --vpp-socket /run/vpp/api.sock --all
  contiv-agent doctor --service-renderer cnat -o json`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch builtin.Choice(renderer) {
			case builtin.Auto:
			case builtin.NAT44:
				cfg.NAT44 = true
			case builtin.CNAT:
				cfg.CNAT = true
			default:
				return exit.Usage(fmt.Errorf("--service-renderer %s: must be auto, nat44 or cnat", renderer))
			}
			for _, text := range hosts {
				a, err := netip.ParseAddr(text)
				if err != nil {
					return exit.Usage(fmt.Errorf("--host-address %s: must be an IPv4 or IPv6 address", text))
				}
				if a.Is4() { // nat44 translates IPv4 only
					cfg.HostAddresses = append(cfg.HostAddresses, a)
				}
			}
			if cfg.Stats = stats; stats == flags.Auto {
				cfg.Stats = filepath.Join(filepath.Dir(cfg.Socket), "stats.sock")
			}
			cfg.Pods = pods.config()
			cfg.Locks = owner.LockFiles(flags.LockPath(lock, cfg.Socket))
			report, err := doctor.Examine(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := out.Print(cmd.OutOrStdout(), report, func(w io.Writer) { show.Findings(w, report, all) }); err != nil {
				return err
			}
			if !report.Well() {
				return &exit.Error{Code: exit.Differs}
			}
			return nil
		},
	}
	out.AddFlag(cmd)
	fs := cmd.Flags()
	flags.AddSocket(fs, &cfg.Socket)
	fs.StringVar(&lock, "vpp-lock", flags.Auto, "lock files of this VPP, as for run; empty: not examined; auto: --vpp-socket with .owner")
	fs.StringVar(&stats, "stats-socket", flags.Auto, "stats socket of VPP; empty: not examined; auto: stats.sock beside --vpp-socket")
	fs.StringVar(&renderer, "service-renderer", string(builtin.Auto), "renderer of Services: nat44, cnat, or auto (nat44 for IPv4, cnat for IPv6)")
	fs.BoolVar(&cfg.NoPolicies, "no-policies", false, "policies will not be enforced")
	fs.StringSliceVar(&hosts, "host-address", nil, "addresses that the node's own processes send from to pods, as for run: VPP must have a route to them")
	fs.StringVar(&cfg.HostInterface, "host-interface", "", "VPP interface to the node's own network stack, as for run: VPP must have it, and a neighbour on it")
	pods.addFlags(fs)
	fs.BoolVar(&all, "all", false, "also show checks that are ok")
	fs.DurationVar(&cfg.Timeout, "timeout", 10*time.Second, "how long VPP may take")
	return cmd
}
