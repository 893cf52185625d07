package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/felix"
)

// validateExternal names external sources that could not be told from one another.
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

// waitedFor are the names of all sources that have to be in sync before anything is programmed.
func waitedFor(cfg Config) []string {
	names := sourceNames(cfg.Sources)
	for _, src := range cfg.External {
		names = append(names, src.String())
	}
	slices.Sort(names)
	return names
}

// runExternal runs the external sources beside everything else.
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
