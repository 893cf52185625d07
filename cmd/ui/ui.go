// Package ui turns flags into a page for a browser: of the agent of this node, or of the agents of a cluster.
//
// Invariant: the package listens on loopback alone, and changes nothing.
package ui

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/cmd/whatif"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/ui"
	"github.com/contiv-agent/contiv-agent/ui/watch"
)

// page are the flags that both commands have.
type page struct {
	listen string
	every  time.Duration
}

func (p *page) addFlags(cmd *cobra.Command, every time.Duration) {
	cmd.Flags().StringVar(&p.listen, "ui-listen", usualAddress, "loopback address of the page; port 0: any free port")
	cmd.Flags().DurationVar(&p.every, "every", every, "how often to query agents while the page is open")
}

// about says what every page shows.
const about = `The page has a map of connections between workloads, Services and the outside, with those that were dropped; the flows, with the policy and rule that
decided; what policies allow between namespaces; what a policy that you paste would open and close; the state of nodes and of their VPPs; and traces. It follows
the agents while it is open. Agents run with --flows, otherwise the page has no flows. docs/ui.md shows it.

It listens on loopback alone. The address that the command prints has a key, which other users of this machine do not know. The page changes nothing.`

// New returns the command for the agent of this node.
func New() *cobra.Command {
	var p page
	var socket string
	var objects whatif.Source
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page for a browser: flows, policies and the state of this node",
		Long: `ui serves a page about the agent of this node until Ctrl-C. ` + about + `

The matrix, traces and the effects of a policy use the objects that the agent has, and its settings. They can use other objects: give --manifests, --kubeconfig
or --in-cluster, as for trace.`,
		Example: `  contiv-agent ui
  contiv-agent ui --manifests examples/guestbook
  contiv-agent ui --kubeconfig ~/.kube/config --ui-listen 127.0.0.1:0`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source := &node{socket: flags.StatusSocket(socket)}
			load := source.objects
			if objects.Manifests != nil || objects.Kubeconfig != "" || objects.Context != "" || objects.InCluster {
				if err := objects.Validate(); err != nil {
					return err
				}
				load = objects.Changes
			}
			q := newQuestions(load, source.settings)
			defer q.closeCluster()
			return p.servePage(cmd, ui.Config{Where: "this node", Objects: q.objects, Trace: q.trace}, source)
		},
	}
	p.addFlags(cmd, time.Second)
	fs := cmd.Flags()
	fs.StringVar(&socket, "status-socket", flags.Auto, "unix socket of the agent; auto: $"+flags.EnvStatusSocket+", or the default of run")
	fs.StringSliceVar(&objects.Manifests, "manifests", nil, "ask about the objects in these folders or files, not about those of the agent")
	fs.StringVar(&objects.Kubeconfig, "kubeconfig", "", "ask about the objects of this kubeconfig's API server")
	fs.StringVar(&objects.Context, "context", "", "context of the kubeconfig (default: its current one)")
	fs.BoolVar(&objects.InCluster, "in-cluster", false, "ask about the objects of the API server of the cluster that ui runs in")
	return cmd
}

// OfCluster returns the command for the agents of a cluster, or for that of one node.
func OfCluster(agents *kubectl.Agents, only *string) *cobra.Command {
	var p page
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page for a browser: flows, policies and the state of all nodes",
		Long: `ui serves a page about the agents of the cluster on this machine until Ctrl-C. ` + about + `

It queries agents by kubectl exec, all at the same time, once in --every, and only while the page is open. It follows the flows of up to 16 nodes, and reads those
of others completely. The matrix, traces and the effects of a policy use the
API server's objects, with the kubeconfig's rights, and the settings of the first node's agent.`,
		Example: `  kubectl contiv ui
  kubectl contiv ui --node node-1 --every 2s`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source := &cluster{agents: agents, only: *only, now: time.Now, follow: newFollowed(agents, time.Now)}
			defer source.follow.stop()
			q := newQuestions((&whatif.Source{Kubeconfig: agents.Kubeconfig, Context: agents.Context, API: true}).Changes, source.settings)
			defer q.closeCluster()
			where := cmp.Or(*only, agents.Context, "cluster")
			return p.servePage(cmd, ui.Config{Where: where, Objects: q.objects, Trace: q.trace}, source)
		},
	}
	p.addFlags(cmd, 5*time.Second)
	return cmd
}

// checkListen returns the errors of the flags.
func (p *page) checkListen() error {
	host, _, err := net.SplitHostPort(p.listen)
	switch {
	case err != nil:
		return exit.Usage(fmt.Errorf("--ui-listen %s: want ADDRESS:PORT: %w", p.listen, err))
	case !httpserver.LoopbackHost(host):
		return exit.Usage(fmt.Errorf("--ui-listen %s: must be a loopback address, such as %s", p.listen, usualAddress))
	case p.every < 100*time.Millisecond:
		return exit.Usage(fmt.Errorf("--every %s: must be at least 100ms", p.every))
	}
	return nil
}

// listenOn listens on a loopback address.
func (p *page) listenOn(ctx context.Context) (net.Listener, error) {
	if err := p.checkListen(); err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.listen)
	if err == nil && !httpserver.Loopback(listener.Addr()) { // the name localhost may have another address
		err = errors.Join(exit.Usage(fmt.Errorf("--ui-listen %s: %s is no loopback address", p.listen, listener.Addr())), listener.Close())
	}
	return listener, err
}

// servePage serves the page until the command's context ends.
func (p *page) servePage(cmd *cobra.Command, cfg ui.Config, source watch.Source) error {
	listener, err := p.listenOn(cmd.Context())
	if err != nil {
		return err
	}
	return p.serveOn(cmd.Context(), cmd.OutOrStdout(), listener, cfg, source)
}

// serveOn serves the page on a listener until ctx ends, and prints its address.
func (p *page) serveOn(ctx context.Context, w io.Writer, listener net.Listener, cfg ui.Config, source watch.Source) error {
	cfg.Key, cfg.Watcher = rand.Text(), watch.New(source, p.every, time.Now)
	server, err := ui.New(cfg)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan error, 1)
	go func() { watched <- cfg.Watcher.Run(ctx) }()
	fmt.Fprintf(w, "open http://%s/?key=%s\n", listener.Addr(), cfg.Key)
	err = httpserver.HTTP(ctx, listener, server.Handler(), nil)
	cancel()
	<-watched // its error is that of the context
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // an open page had its stream
	}
	return err
}
