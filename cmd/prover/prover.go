// Package prover turns the flags of contiv-agent verify, and manifests, into a proof about the access lists and translations of a running VPP.
//
// Invariant: the package holds no logic; it maps verdicts and errors to exit codes.
package prover

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/verify"
)

// about is the description of the command.
const about = `verify reads the access lists and translations of a running VPP, and objects. For each pod of the node it compares the set of all packet headers
that the lists pass with the set that the policies allow. It changes nothing. A second implementation of the policies calculates their
meaning: NetworkPolicy, AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy and Calico's policies.

Without --manifests it asks the running agent of this node, over the agent's unix socket, to compare its VPP with its own objects and
settings. The agent compares again if it has programmed VPP meanwhile, and reports a difference that two comparisons find. With --manifests
it needs no agent: it reads VPP at --vpp-socket itself.

Each pod has these checks: ingress; ingress from local pods (what the sender's and the receiver's lists pass together), and the same by
Services under nat44 (the receiver's lists alone); egress; forged sources; answers to ingress and to egress (a rule that passes a new
connection of TCP, or of UDP to a server's port, also passes its answers). The verdict is equal for all headers, different, or not
compared. A difference is one packet, with both verdicts, the list and rule of VPP, the policy, and a question for the trace command.

For each Service, verify compares every address, port and protocol that clients may dial: the endpoints, the share of each, the source that
endpoints see, the clients of source ranges, and the rejection of all else. It also compares the interfaces that lead to clients and endpoints,
and names mappings that no Service has. With --manifests, give verify the agent's flags about Services.

Not compared: sessions that exist; by access lists, packets from or to addresses of nodes, of Services and of NAT; SCTP, UDP-Lite and protocol 0;
later fragments; the lists of the uplink, the overlay and the host link; host endpoints; the egress of pods of a node with a host
endpoint. With --manifests, while the agent programs VPP, a difference may be one of moments: ask again.

With --probe it also lets the node's pods send packets, one of each class that access lists and policies distinguish, and looks with VPP's packet tracer what becomes
of each. So it finds what no dump of VPP shows: lists that VPP does not look up, and sessions that let packets pass. The packets are real: a SYN, a
datagram without data, or an echo request, to other pods and to addresses outside. They make sessions, count in metrics, and reach their receivers. It
needs a running agent with --cni, and VPP's socket.

With --never, --always or --assert it asks about --manifests alone, without a VPP: policies allow no new connection from the left side of an
assertion to its right side, or every one. A violated assertion shows a packet and the objects that decide about it. Sides:

  pod:NS/NAME, workload:NS/NAME, ns:NAME, ns:NAME,app=web, pods:app=web, namespaces:stage=prod,
  service:NS/NAME, cidr:10.0.0.0/8, outside, any; the right side may end with ports: :443, :53/UDP, :80,8000-8080/TCP, :ICMP

With --diff it compares two folders of manifests, given as arguments, and shows which new connections policies allow in one of them alone.
With one folder it compares the objects of the running agent of this node with the same objects after those of the folder are created or
replaced, as kubectl apply does. It applies nothing, and removes no object.

Exit code 0: every check is equal, every assertion holds, or there is no difference. Exit code 3: a check is different or not compared, an
assertion is violated or not decided, or there is a difference. Exit code 2: a flag or a manifest is wrong. Exit code 1: VPP, or the agent, could not be reached.`

// New returns the command.
func New() *cobra.Command {
	var cfg verify.Config
	var manifests, hosts []string
	var socket string
	var all, changed bool
	var probing time.Duration
	var services flags.Served
	var out show.Output
	var asked questions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove for all packets that a running VPP does what the policies and Services of manifests mean, or show a packet",
		Long:  about,
		Example: `  contiv-agent verify
  contiv-agent verify --probe 2m
  contiv-agent verify --manifests examples/guestbook --node node-1
  contiv-agent verify --vpp-socket ./sim.sock --manifests examples/guestbook --node node-1 --all
  contiv-agent verify --manifests cluster/ --node node-1 -o json
  contiv-agent verify --manifests cluster/ --never 'ns:dev -> ns:prod' --always 'workload:shop/web -> service:shop/db:5432'
  contiv-agent verify --manifests examples/guestbook --assert examples/intent/assertions.yaml --all
  contiv-agent verify --diff before/ after/
  contiv-agent verify --diff new-policies.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if changed {
				return nil
			}
			return exit.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkProbe(cmd, probing, len(manifests) > 0 || changed || asked.given()); err != nil {
				return exit.Usage(err)
			}
			if changed {
				return diff(cmd, args, manifests, socket, &asked, &out)
			}
			if asked.given() {
				return asked.run(cmd, manifests, all, &out)
			}
			report, err := reportOf(cmd, &cfg, &services, manifests, hosts, socket)
			if err != nil {
				return err
			}
			if probing > 0 && report.Why == "" {
				if err := probePods(cmd, cfg, flags.StatusSocket(socket), probing, report); err != nil {
					return err
				}
			}
			if err := out.Print(cmd.OutOrStdout(), report, func(w io.Writer) { show.Verified(w, report, all) }); err != nil {
				return err
			}
			if report.Verdict != verify.Equal {
				return &exit.Error{Code: exit.Differs}
			}
			return nil
		},
	}
	out.AddFlag(cmd)
	fs := cmd.Flags()
	services.AddFlags(fs)
	flags.AddSocket(fs, &cfg.Socket)
	fs.StringSliceVar(&manifests, "manifests", nil, "folders or files with the cluster's objects; none: the running agent of this node compares its VPP with its own objects")
	fs.StringVar(&cfg.Node, "node", "", "name of the node whose VPP it is (default: $NODE_NAME, or the name of this host)")
	fs.StringSliceVar(&hosts, "host-address", nil, "addresses that only the node's own processes send from to pods, as for run: packets from them are not compared")
	fs.StringVar(&socket, "status-socket", flags.Auto, "without --manifests, or --diff with one folder: unix socket of the agent; auto: $"+flags.EnvStatusSocket+", or the default of run")
	fs.BoolVar(&all, "all", false, "also show checks that are equal, and assertions that hold")
	asked.addFlags(fs)
	fs.BoolVar(&changed, "diff", false, "show the connections that policies allow in one of two folders of manifests alone, given as arguments; with one folder: what changes when its objects are applied to those of the running agent")
	fs.DurationVar(&probing, "probe", 0, "also let the node's pods send packets for up to this time, one of each class that the access lists and policies distinguish; needs a running agent with --cni; 0: none")
	fs.DurationVar(&cfg.Timeout, "timeout", 10*time.Second, "how long VPP may take")
	return cmd
}

// reportOf returns the report of the running agent, or without its help, with manifests, one about a VPP.
func reportOf(cmd *cobra.Command, cfg *verify.Config, services *flags.Served, manifests, hosts []string, socket string) (*verify.Report, error) {
	if len(manifests) == 0 {
		names := append(services.Names(), "node", "host-address")
		if !cmd.Flags().Changed("probe") { // which reads VPP
			names = append(names, "vpp-socket", "timeout")
		}
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				return nil, exit.Usage(fmt.Errorf("--%s: needs --manifests; a running agent uses its own objects and flags", name))
			}
		}
		return control.FetchReport(cmd.Context(), flags.StatusSocket(socket))
	}
	if cmd.Flags().Changed("status-socket") {
		return nil, exit.Usage(errors.New("--status-socket: a running agent has its own objects; give no --manifests"))
	}
	var err error
	if cfg.HostAddresses, err = parseAddresses("--host-address", hosts); err != nil {
		return nil, exit.Usage(err)
	}
	if cfg.Services, err = services.Config(); err != nil {
		return nil, exit.Usage(err)
	}
	objects, err := objectsOf(manifests, cmd.ErrOrStderr())
	if err != nil {
		return nil, exit.Usage(err)
	}
	cfg.Node = flags.NodeName(cfg.Node)
	return verify.Run(cmd.Context(), *cfg, objects)
}

// objectsOf reads the objects of manifests. Refused ones are reported, and keep the parts that were understood.
func objectsOf(manifests []string, warn io.Writer) ([]model.Object, error) {
	if len(manifests) == 0 {
		return nil, errors.New("--manifests is required")
	}
	changes, err := manifest.Load(manifests...)
	if err != nil {
		return nil, err
	}
	return understood(changes, warn), nil
}

func parseAddresses(flag string, texts []string) (list []netip.Addr, err error) {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("%s %s: must be an IPv4 or IPv6 address", flag, text)
		}
		list = append(list, a)
	}
	return list, nil
}
