package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/plugins/service/health"
)

// healthzAddress returns the flag's address; auto: kube-proxy's default address.
func healthzAddress(flag string, embedded bool) string {
	switch {
	case flag != auto:
		return flag
	case embedded:
		return ""
	}
	return ":10256"
}

// healthChecks reads --health-check-addresses; nil: no health checks are served.
func healthChecks(list []string) (*health.Config, error) {
	if slices.Equal(list, []string{"none"}) {
		return nil, nil
	}
	cfg := &health.Config{}
	for _, text := range list {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, usage(fmt.Errorf("--health-check-addresses %s: must be addresses, or only none", text))
		}
		cfg.Addresses = append(cfg.Addresses, a)
	}
	return cfg, nil
}
