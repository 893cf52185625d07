package agent

import (
	"context"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/service/health"
)

// healthServer answers load balancers, if they are to be answered.
func (p *parts) healthServer() *health.Server {
	if p.cfg.HealthChecks == nil || p.cfg.NoServices {
		return nil
	}
	cfg := *p.cfg.HealthChecks
	cfg.Logger, cfg.Healthy = p.log.With("room", "health"), p.proxies
	return health.New(cfg)
}

// proxies tells whether what was asked for is in VPP. Sources do not matter: when the API server is away, what is in VPP goes on,
// and no load balancer shall leave all nodes at once for it.
func (p *parts) proxies(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	well := false
	err := p.controller.Ask(ctx, func(c *controller.Controller) {
		st := c.Status()
		well = st.VPP.Connected && st.Started && st.Last != nil && st.Last.Err == nil && !st.Overdue
	})
	return err == nil && well
}

// healthProblems is why health checks of Services are not answered.
func (p *parts) healthProblems() map[model.ServiceID][]string {
	if p.health == nil {
		return nil
	}
	return p.health.Problems()
}
