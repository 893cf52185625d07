package cnat

import (
	"errors"

	"github.com/contiv-agent/contiv-agent/renderer"
)

// Config has the choices that Kubernetes does not make. The zero value serves no family.
type Config struct {
	// Families are the address families that this renderer serves.
	renderer.Families

	// Maglev chooses endpoints by Maglev's table: few connections of a client change their endpoint when endpoints change, and all
	// nodes choose alike. Otherwise a hash over their number chooses. Services with session affinity always use Maglev.
	Maglev bool

	// LocalEndpointWeight is the weight of an endpoint on this node relative to one on another; 0 and 1: equal.
	LocalEndpointWeight uint8

	// DisableSNAT keeps the addresses of pods in packets that leave the cluster.
	DisableSNAT bool
}

// Validate names every field that cannot be honoured.
func (c Config) Validate() error {
	if !c.IPv4 && !c.IPv6 {
		return errors.New("cnat serves neither IPv4 nor IPv6")
	}
	return nil
}

// Destinations of packets to be dropped: addresses of networks for documentation (RFC 5737) and discard (RFC 6666). Each has a
// separate route: an endpoint that only a shorter prefix covers, and that one drops, crashes VPP.
const (
	DiscardIPv4 = "192.0.2.4"
	DiscardIPv6 = "100::4"
)

// Name is the name of this renderer in a Service's annotation.
const Name = "cnat"
