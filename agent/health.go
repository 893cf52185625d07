package agent

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/service/health"
)

// silentTooLong is how long VPP may be silent before health checks fail.
const silentTooLong = 10 * time.Second

// healthServer serves health checks of load balancers, if they are configured.
func (p *parts) healthServer() *health.Server {
	if p.cfg.HealthChecks == nil || p.cfg.NoServices {
		return nil
	}
	cfg := *p.cfg.HealthChecks
	cfg.Logger, cfg.Healthy = p.log.With("room", "health"), p.proxies
	return health.New(cfg)
}

// proxies reports whether VPP has the desired state. Sources do not count: while the API server is away, VPP keeps its
// state, and load balancers must not leave all nodes at once. They must not leave a node whose VPP works on a large change
// for some seconds, either. proxies does not wait for the loop.
func (p *parts) proxies(context.Context) bool {
	st := p.controller.Health()
	return p.conn.State().Silent.For(time.Now()) < silentTooLong && !st.Ended && p.stuck() == "" && st.VPP.Connected && st.Started && st.Last != nil && st.Last.Err == nil && !st.Overdue
}

// healthProblems returns why health checks of Services are not served.
func (p *parts) healthProblems() map[model.ServiceID][]string {
	if p.health == nil {
		return nil
	}
	return p.health.Problems()
}
