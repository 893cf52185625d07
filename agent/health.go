package agent

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/service/health"
)

// silentTooLong is how long VPP may answer nothing before load balancers are to leave the node.
const silentTooLong = 10 * time.Second

// healthServer answers load balancers, if they are to be answered.
func (p *parts) healthServer() *health.Server {
	if p.cfg.HealthChecks == nil || p.cfg.NoServices {
		return nil
	}
	cfg := *p.cfg.HealthChecks
	cfg.Logger, cfg.Healthy = p.log.With("room", "health"), p.proxies
	return health.New(cfg)
}

// proxies reports whether VPP has what was asked for. Sources do not matter: when the API server is away, what is in VPP goes on,
// and no load balancer shall leave all nodes at once for it. Neither shall it leave a node whose VPP works on a large change for some
// seconds. It does not wait for the loop.
func (p *parts) proxies(context.Context) bool {
	st := p.controller.Health()
	return p.conn.State().Silent.For(time.Now()) < silentTooLong && !st.Ended && p.stuck() == "" && st.VPP.Connected && st.Started && st.Last != nil && st.Last.Err == nil && !st.Overdue
}

// healthProblems is why health checks of Services are not answered.
func (p *parts) healthProblems() map[model.ServiceID][]string {
	if p.health == nil {
		return nil
	}
	return p.health.Problems()
}
