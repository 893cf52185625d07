package cnat

import (
	"errors"

	"github.com/contiv-agent/contiv-agent/renderer"
)

// Config chooses what is left open by Kubernetes. The zero value serves no family.
type Config struct {
	// Families are the address families that this renderer serves.
	renderer.Families

	// Maglev chooses endpoints by Maglev's table: few connections of a client change their endpoint when endpoints come and go, and
	// all nodes choose alike. Otherwise by a hash over their number. Services with session affinity have Maglev anyway.
	Maglev bool

	// LocalEndpointWeight is how much likelier an endpoint of this node is than one of another, 0 and 1: equally.
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

// Where packets go that are to be dropped: addresses of networks for documentation (RFC 5737) and discard (RFC 6666). Each has a
// route of its own: an endpoint that only a shorter prefix covers, and that one drops, kills VPP.
const (
	DiscardIPv4 = "192.0.2.4"
	DiscardIPv6 = "100::4"
)

// Name is what a Service's annotation calls this renderer.
const Name = "cnat"
