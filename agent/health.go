package agent

import (
	"context"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/service/health"
)

// healthServer serves health checks of load balancers, if they are configured.
func (p *parts) healthServer() *health.Server {
	if p.cfg.Services.Health == nil || p.cfg.Services.Off {
		return nil
	}
	cfg := *p.cfg.Services.Health
	cfg.Logger, cfg.Healthy = p.log.With("room", "health"), func(ctx context.Context) bool { return p.reader.Serves(ctx) }
	return health.New(cfg)
}

// healthProblems returns why health checks of Services are not served.
func (p *parts) healthProblems() map[model.ServiceID][]string {
	if p.health == nil {
		return nil
	}
	return p.health.Problems()
}
