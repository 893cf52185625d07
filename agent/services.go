package agent

import (
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
)

// ServiceRenderer selects the renderer of Services; the zero value is RendererAuto.
type ServiceRenderer = builtin.Choice

// The choices of renderers: see builtin.
const (
	RendererAuto  = builtin.Auto
	RendererNAT44 = builtin.NAT44
	RendererCNAT  = builtin.CNAT
)

// serviceRenderers returns the built-in renderers that the configuration asks for.
func (p *parts) serviceRenderers() []renderer.ServiceRendererAPI {
	if p.cfg.Services.Off {
		return nil
	}
	cfg := p.cfg.Services.Renderer
	cfg.NAT44.NoSourceRanges = p.cfg.NoSourceRanges()
	return builtin.New(cfg, p.values)
}
