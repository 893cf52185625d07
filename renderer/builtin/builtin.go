package builtin

import (
	"fmt"

	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/cnat"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
)

// Choice names what serves Services. The zero value is Auto.
type Choice string

// The choices.
const (
	Auto  Choice = "auto"     // nat44 for IPv4, cnat for IPv6
	NAT44 Choice = nat44.Name // nat44 for IPv4; IPv6 is not served
	CNAT  Choice = cnat.Name  // cnat for both families
)

// Validate returns an error that names a choice that does not exist.
func (c Choice) Validate() error {
	switch c {
	case "", Auto, NAT44, CNAT:
		return nil
	}
	return fmt.Errorf("service renderer %q: must be auto, nat44 or cnat", string(c))
}

// Served returns the families in which Services have an effect.
func (c Choice) Served() renderer.Families {
	return renderer.Families{IPv4: true, IPv6: c != NAT44}
}

// PostDNAT returns the families in which the access lists of an input see packets to Services with the endpoint's address. A
// family that no renderer serves has no translation, which is the same view.
func (c Choice) PostDNAT() renderer.Families { return renderer.Families{IPv4: c == CNAT, IPv6: true} }

// cnat returns the families that belong to cnat.
func (c Choice) cnat() renderer.Families {
	return renderer.Families{IPv4: c == CNAT, IPv6: c != NAT44}
}

// Config has a choice and the settings of each renderer. Families within the settings are ignored; the choice decides them.
type Config struct {
	Choice Choice
	NAT44  nat44.Config
	CNAT   cnat.Config
}

// New returns the renderers of a choice. All of them write to the sink.
func New(cfg Config, sink renderer.Sink) []renderer.ServiceRendererAPI {
	all, second := renderer.Families{IPv4: true, IPv6: true}, cfg.Choice.cnat()
	var out []renderer.ServiceRendererAPI
	if first := all.Without(second); first.IPv4 {
		cfg.NAT44.Families = first
		out = append(out, nat44.New(cfg.NAT44, sink))
	}
	if second.IPv6 {
		cfg.CNAT.Families = second
		out = append(out, cnat.New(cfg.CNAT, sink))
	}
	return out
}
