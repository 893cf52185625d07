// Package service turns Services, EndpointSlices, Nodes and local Pods into the calls of service renderers.
//
//	Apply(change) ─▶ indexes ─▶ dirty services ─▶ build ─▶ compare ─▶ the seven methods of every renderer
//	Located       ─▶ interface sets, node state ───────────────────▶ (and UpdateNode of those that have it)
//
//	claims   address:port/protocol → services that ask for it; the oldest has it, unless the address is an owner's
//	users    endpoint address → slices that name it
//	pods     address → local pods, to know interfaces and to keep the NAT loopback free
//
// Invariant: the last state sent to a renderer depends on the current objects only, not on the order of changes. A change of one
// object costs work only in the services that it affects.
package service
