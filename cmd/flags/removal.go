package flags

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/cleanup"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/source/kube/removal"
)

const (
	cleanWithin = 20 * time.Second // less than the 30 s that a kubelet gives a pod
	vppEndsIn   = 8 * time.Second  // VPP of the same pod
)

// Removal cleans the node of an agent that ends because it is removed from the cluster.
type Removal struct {
	watch *removal.Watch
	stop  func()
	cfg   cleanup.Config
	log   *slog.Logger
}

// Removal begins to follow the objects of --clean-when-deleted; nil: there is no such flag.
func (f *Pods) Removal(ctx context.Context, cfg *agent.Config, from *Sources) (*Removal, error) {
	if f.deleted == "" {
		return nil, nil
	}
	if from.Kubeconfig == "" && !from.InCluster {
		return nil, exit.Usage(errors.New("--clean-when-deleted: needs an API server (--kubeconfig or --in-cluster)"))
	}
	names, err := removal.Parse(f.deleted)
	if err != nil {
		return nil, err // Check has reported it
	}
	_, client, err := from.api(cfg.Process.Logger).Clients()
	if err != nil {
		return nil, fmt.Errorf("--clean-when-deleted: %w", err)
	}
	r := &Removal{watch: removal.New(names, client), log: cfg.Process.Logger, cfg: cleanup.Config{
		Socket: cfg.VPP.Socket, Lock: cfg.Lock, Journal: cfg.VPPAgent.Journal, StatusSocket: cfg.Listen.Status, Files: f.node.Files(), Logger: cfg.Process.Logger,
		SettleNIC: func() (func() error, error) { return settleNIC(f.state) },
	}}
	r.cfg.Node = nodeOf(&r.cfg, f.node, f.state)
	r.cfg.Node.Databases, r.cfg.Node.Patience = nil, vppEndsIn    // this process has them open
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the objects are deleted when the agent ends
	done := make(chan struct{})
	go func() { defer close(done); r.watch.Run(ctx) }()
	r.stop = func() { cancel(); <-done }
	return r, nil
}

// End cleans the node if the objects are deleted. The agent has ended; ended: it was asked to.
func (r *Removal) End(ctx context.Context, ended bool) {
	if r == nil {
		return
	}
	defer r.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanWithin)
	defer cancel()
	if !ended || !r.watch.Removed(ctx) {
		return
	}
	r.log.Info("DaemonSet and ServiceAccount are deleted: the node is cleaned")
	if err := r.clean(ctx); err != nil {
		r.log.Error("the node is not clean: run contiv-agent cleanup --node, or apply deploy/remove", "err", err)
		return
	}
	r.log.Info("the node is clean")
}

func (r *Removal) clean(ctx context.Context) error {
	c, err := cleanup.New(ctx, r.cfg)
	if err != nil {
		return errors.Join(err, r.cfg.GiveBackNIC())
	}
	defer c.Close()
	report, err := c.Clean(ctx)
	if err != nil {
		return err
	}
	if !report.Whole() {
		return fmt.Errorf("not removed: %q %v", report.Failed, report.Left)
	}
	return nil
}
