package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
)

// validateExternal returns errors for external sources with an empty or duplicate name.
func (c *Config) validateExternal() error {
	var errs []error
	seen := map[string]bool{}
	for _, src := range c.External {
		name := src.String()
		_, taken := c.Sources[name]
		switch {
		case name == "":
			errs = append(errs, errors.New("external source: its name must not be empty"))
		case taken || seen[name] || c.Felix != nil && name == felix.SourceName:
			errs = append(errs, fmt.Errorf("external source %s: another source has this name", name))
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}

// waitedFor returns the names of all sources that must be in sync before the agent programs VPP.
func waitedFor(cfg Config) []string {
	names := sourceNames(cfg.Sources)
	for _, src := range cfg.External {
		names = append(names, src.String())
	}
	slices.Sort(names)
	return names
}

// registerExternal registers the metrics of external sources.
func (c *Config) registerExternal(r prometheus.Registerer) error {
	var errs []error
	for _, src := range c.External {
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
