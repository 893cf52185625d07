package bench

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/vppagent"
)

func stallConfig(n *stallNode) vppagent.Config {
	return vppagent.Config{Caller: n.meter, Pause: func(_ context.Context, d time.Duration) { n.pauses += d; time.Sleep(d) }}
}
