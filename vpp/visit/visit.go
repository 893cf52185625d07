// Package visit turns a configuration into a connection to VPP that is up, for a command that asks and ends.
//
// Invariant: it tries once; only an agent waits for a VPP that does not run.
package visit

import (
	"context"
	"fmt"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Open connects. The function that it returns ends the connection. OnState of the configuration is replaced.
func Open(ctx context.Context, cfg vpp.Config) (*vpp.Conn, func(), error) {
	states := make(chan vpp.State, 1)
	cfg.OnState = func(s vpp.State) {
		select {
		case states <- s:
		default: // only the first state counts
		}
	}
	conn := vpp.New(cfg)
	running, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = conn.Run(running) // cancel ends it
	}()
	stop := func() {
		cancel()
		<-ended
	}
	select {
	case s := <-states:
		if s.Connected {
			return conn, stop, nil
		}
		stop()
		return nil, nil, fmt.Errorf("connect to vpp: %w", s.Err)
	case <-ctx.Done():
		stop()
		return nil, nil, fmt.Errorf("connect to vpp: %w", ctx.Err())
	}
}
