package agent

import (
	"fmt"

	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/cnat"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
)

// ServiceRenderer says what serves Services.
type ServiceRenderer string

// What can serve Services. Never do two serve one family, for they would meet on the same interfaces.
const (
	// RendererAuto is nat44 for IPv4 and cnat for IPv6; the zero value is the same.
	RendererAuto ServiceRenderer = "auto"
	// RendererNAT44 is nat44 for IPv4; IPv6 is not served.
	RendererNAT44 ServiceRenderer = nat44.Name
	// RendererCNAT is cnat for both.
	RendererCNAT ServiceRenderer = cnat.Name
)

func (r ServiceRenderer) validate() error {
	switch r {
	case "", RendererAuto, RendererNAT44, RendererCNAT:
		return nil
	}
	return fmt.Errorf("service renderer %q: must be auto, nat44 or cnat", string(r))
}

// cnatConfig is cnat's part; false: there is none.
func (c *Config) cnatConfig() (cnat.Config, bool) {
	out := c.CNAT
	out.IPv4, out.IPv6 = c.ServiceRenderer == RendererCNAT, c.ServiceRenderer != RendererNAT44
	return out, out.IPv6 && !c.NoServices
}

// postDNAT4 reports that access lists of an input see IPv4 packets to Services with the endpoint in them.
func (c *Config) postDNAT4() bool {
	return c.PostDNAT || c.ServiceRenderer == RendererCNAT && !c.NoServices
}

// noSourceRanges is why source ranges are not this agent's to enforce; "": they are.
func (c *Config) noSourceRanges() string {
	switch {
	case c.NoPolicies:
		return nat44.PoliciesOff
	case c.Driver != nil:
		return nat44.ListsOfDriver
	}
	return ""
}

// serviceRenderers are the built-in ones that are asked for.
func (p *parts) serviceRenderers() []renderer.ServiceRendererAPI {
	if p.cfg.NoServices {
		return nil
	}
	var out []renderer.ServiceRendererAPI
	second, has := p.cfg.cnatConfig()
	if p.cfg.ServiceRenderer != RendererCNAT {
		first := p.cfg.NAT44
		first.LeaveIPv6, first.NoSourceRanges = has, p.cfg.noSourceRanges()
		out = append(out, nat44.New(first, p.values))
	}
	if has {
		out = append(out, cnat.New(second, p.values))
	}
	return out
}
