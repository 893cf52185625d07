// Package nat44 turns services and the state of a node into values for VPP's NAT44-ED.
//
//	ContivService ─▶ Service ─▶ one DNat44, reject routes     ┐
//	NodeState     ─▶ Node    ─▶ global, interfaces, pools, …  ├─▶ renderer.Sink
//	                                                          ┘
//	Renderer keeps the last of each and calls the two functions again when something they depend on changed.
//
// Invariant: Service and Node are pure; the same facts in any order give the same bytes. An object that cannot be rendered gets a
// note. Rules named A1 … C24 in comments are explained in README.md.
package nat44
