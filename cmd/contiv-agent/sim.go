package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/hostif"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

func newSim() *cobra.Command {
	var socket, node string
	var manifests []string
	var seed uint64
	var hostInterfaces bool
	var tests hostif.Options
	cmd := &cobra.Command{
		Use:         "sim",
		Annotations: map[string]string{exit.Serves: ""},
		Short:       "Run the embedded VPP alone, on a unix socket",
		Long: `sim is a VPP in Go: it speaks the binary API on a unix socket, keeps NAT44, interface and FIB state with VPP's
return codes and traps, and forwards packets. Any binary-API client may connect.

With --host-interfaces its af_packet interfaces are Linux interfaces of the network namespace it runs in, and its taps make
some, by /dev/net/tun: programs in other namespaces talk through it. It needs CAP_NET_RAW and CAP_NET_ADMIN, and stands for
VPP 25.10.

With --manifests it starts with the interfaces and routes that a CNI makes for --node.`,
		Example: `  contiv-agent sim --socket /run/contiv-agent/sim.sock
  contiv-agent sim --socket ./sim.sock --manifests examples/guestbook --node node-1
  contiv-agent run --vpp-socket ./sim.sock --manifests examples/guestbook --node node-1`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if hostInterfaces {
				return serveHostInterfaces(cmd, socket, tests)
			}
			if tests != (hostif.Options{}) {
				return exit.Usage(errors.New("--receive-after, --memif-sockets: need --host-interfaces"))
			}
			v := sim.New(sim.Config{Seed: seed, PuntLocal: true})
			defer v.Close()
			if len(manifests) > 0 {
				changes, err := manifest.LoadUntil(cmd.Context(), manifests...)
				if err != nil {
					return exit.Usage(err)
				}
				if err := cni.New(v, flags.NodeName(node)).Apply(changes); err != nil {
					return err
				}
			}
			l, err := httpserver.Unix(cmd.Context(), socket)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "sim: binary API at %s\n", socket)
			return v.Serve(cmd.Context(), l)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "sim.sock", "unix socket to listen on")
	cmd.Flags().StringSliceVar(&manifests, "manifests", nil, "folders or files with the cluster's Nodes and Pods")
	cmd.Flags().StringVar(&node, "node", "", "name of the node of this VPP (default: $NODE_NAME, or the name of the host)")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of random choices")
	cmd.Flags().BoolVar(&hostInterfaces, "host-interfaces", false, "af_packet interfaces and taps carry the packets of Linux interfaces")
	cmd.Flags().DurationVar(&tests.Deaf, "receive-after", 0, "a new interface of --host-interfaces receives nothing for so long, as one of a VPP that is busy")
	cmd.Flags().BoolVar(&tests.Memifs, "memif-sockets", false, "memif interfaces of --host-interfaces have a socket, at which nobody answers; otherwise they are refused")
	cmd.MarkFlagsMutuallyExclusive("host-interfaces", "manifests")
	return cmd
}

// serveHostInterfaces is a VPP for real packets: a client makes every interface, and the choices are random.
func serveHostInterfaces(cmd *cobra.Command, socket string, tests hostif.Options) error {
	l, err := httpserver.Unix(cmd.Context(), socket)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "sim: binary API at %s, with host interfaces\n", socket)
	const logged = 1 << 10
	return hostif.Serve(cmd.Context(), sim.Config{Version: "25.10-release", Seed: rand.Uint64() | 1, LogLimit: logged}, l, tests)
}
