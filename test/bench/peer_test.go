package bench

import (
	"context"
	"sync"
	"testing"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
)

// plumbed is a simulated VPP on a unix socket, as a CNI leaves it for the node of the cluster.
type plumbed struct {
	*sim.VPP
	path string
	dial dialer
	stop func()
}

func startSim(tb testing.TB, c *cluster) *plumbed {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	v, path, wait, err := sim.Start(ctx, tb.TempDir(), sim.Config{PuntLocal: true})
	if err != nil {
		cancel()
		tb.Fatal(err)
	}
	p := &plumbed{VPP: v, path: path, dial: socket(path), stop: sync.OnceFunc(func() { cancel(); wait() })}
	tb.Cleanup(p.stop)
	if err := cni.New(v, nodeName).Apply(c.changes()); err != nil {
		tb.Fatal(err)
	}
	return p
}
