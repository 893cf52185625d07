// Package renderer turns the service processor's view of Kubernetes Services into calls that any renderer can implement.
//
//	plugins/service ── ServiceRendererAPI (and NodeRenderer) ──▶ renderer/nat44, others ── Sink ──▶ controller
//
// Names, fields and signatures are those of the Contiv service renderer API. Each later addition is a field at the end of
// ContivService or a separate interface, so a renderer written for that API compiles and works unchanged.
//
// Invariant: a value handed across this seam is never modified afterwards, by either side.
package renderer
