// Package cnat turns services and the state of a node into values for VPP's cnat plugin, in one address family or both.
//
//	ContivService ─▶ Service ─▶ a Translation for each frontend, reject routes ┐
//	NodeState     ─▶ Node    ─▶ source NAT policy, interfaces, …               ├─▶ renderer.Sink
//	                                                                           ┘
//	Renderer keeps the last of each and calls the two functions again when something they depend on changed.
//
// Invariant: Service and Node are pure; the same facts in any order give the same bytes. An object that cannot be rendered gets a
// note. No other renderer serves a family of this one.
package cnat
