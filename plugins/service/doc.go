// Package service turns Services, EndpointSlices, Nodes and local Pods into what service renderers are told.
//
//	Apply(change) ─▶ indexes ─▶ dirty services ─▶ build ─▶ compare ─▶ the seven methods of every renderer
//	Located       ─▶ interface sets, node state ───────────────────▶ (and UpdateNode of those that have it)
//
//	claims   address:port/protocol → services that ask for it; the oldest has it, unless the address is an owner's
//	users    endpoint address → slices that name it
//	pods     address → local pods, to know interfaces and to keep the NAT loopback free
//
// Invariant: what renderers were told last is a function of the current objects only, not of the order they came in;
// and a change of one object costs work in the services it touches, not in all of them.
package service
