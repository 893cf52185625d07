package hostif

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/contiv-agent/contiv-agent/sim"
)

// Serve runs a VPP with real packets and answers its API on l until ctx ends or VPP crashes, as a process of VPP does. The clock is the
// real one. A new interface receives nothing for the time deaf, as one of a VPP that is busy.
func Serve(ctx context.Context, cfg sim.Config, l net.Listener, deaf time.Duration) error {
	h, err := New()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	h.deaf = deaf
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
