package hostif

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/contiv-agent/contiv-agent/sim"
)

// Options are what a VPP with real packets does in tests alone.
type Options struct {
	Deaf   time.Duration // a new interface receives nothing for so long, as one of a VPP that is busy
	Memifs bool          // memifs have sockets, at which nobody answers; otherwise memifs are refused
}

// Serve runs a VPP with real packets and answers its API on l until ctx ends or VPP crashes, as a process of VPP does. The clock is the
// real one.
func Serve(ctx context.Context, cfg sim.Config, l net.Listener, o Options) error {
	h, err := New()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	h.deaf, h.mute = o.Deaf, o.Memifs
	cfg.Wire, cfg.Now, cfg.PID = h, time.Now(), uint32(os.Getpid())
	v := sim.New(cfg)
	alive, stop := v.Living(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- v.Serve(alive, l) }()
	err = h.Run(alive, v)
	stop() // Serve, too, if only Run has ended
	if end := <-served; !errors.Is(end, context.Canceled) {
		err = errors.Join(err, end)
	}
	return errors.Join(err, v.Crashed())
}
