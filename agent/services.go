package agent

import (
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
)

// ServiceRenderer selects the renderer of Services; the zero value is RendererAuto.
type ServiceRenderer = builtin.Choice

// The choices of renderers: see builtin.
const (
	RendererAuto  = builtin.Auto
	RendererNAT44 = builtin.NAT44
	RendererCNAT  = builtin.CNAT
)

// ServedFamilies returns the address families in which this agent serves Services.
func (c *Config) ServedFamilies() renderer.Families {
	if c.NoServices {
		return renderer.Families{}
	}
	return c.ServiceRenderer.Served()
}

// postDNAT4 reports whether access lists of an input see the endpoint in IPv4 packets to Services.
func (c *Config) postDNAT4() bool {
	return c.PostDNAT || !c.NoServices && c.ServiceRenderer.PostDNAT().IPv4
}

// noSourceRanges returns why this agent does not enforce source ranges; "": it does.
func (c *Config) noSourceRanges() string {
	switch {
	case c.NoPolicies:
		return nat44.PoliciesOff
	case c.Driver != nil:
		return nat44.ListsOfDriver
	}
	return ""
}

// serviceRenderers returns the built-in renderers that the configuration asks for.
func (p *parts) serviceRenderers() []renderer.ServiceRendererAPI {
	if p.cfg.NoServices {
		return nil
	}
	cfg := builtin.Config{Choice: p.cfg.ServiceRenderer, NAT44: p.cfg.NAT44, CNAT: p.cfg.CNAT}
	cfg.NAT44.NoSourceRanges = p.cfg.noSourceRanges()
	return builtin.New(cfg, p.values)
}
