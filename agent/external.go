package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
)

// registerExternal registers the metrics of external sources.
func registerExternal(sources []controller.ExternalConfigSource, r prometheus.Registerer) error {
	var errs []error
	for _, src := range sources {
		if figures, ok := src.(prometheus.Collector); ok {
			errs = append(errs, r.Register(figures))
		}
	}
	return errors.Join(errs...)
}

// giveViews gives a view of all values to the external sources that need one.
func (p *parts) giveViews() {
	for _, src := range p.cfg.External {
		if o, ok := src.(controller.Onlooker); ok {
			o.Show(p.allValues)
			p.onlookers = append(p.onlookers, o)
		}
	}
}

// allValues returns all values, sorted by key.
func (p *parts) allValues() []event.Value {
	all := p.vppagent.Snapshot().Values()
	out := make([]event.Value, 0, len(all))
	for _, v := range all {
		if v.Value == nil {
			continue // a derived value, or a value that is being removed
		}
		out = append(out, event.Value{
			ValueStatus: event.ValueStatus{Key: v.Key, State: v.State, Err: v.Err, Details: v.Wait}, Message: v.Value, Since: v.Since,
		})
	}
	return out
}

// runExternal runs the external sources in goroutines.
func (a *Agent) runExternal(ctx context.Context, g *errgroup.Group, emit func(event.Event)) {
	for _, src := range a.cfg.External {
		g.Go(func() error {
			if err := src.Run(ctx, emit); err != nil {
				return fmt.Errorf("external source %s: %w", src, err)
			}
			return nil
		})
	}
}
