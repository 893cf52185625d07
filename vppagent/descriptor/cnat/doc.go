// Package cnat turns translations, roles of interfaces and the source policy of VPP's plugin cnat into requests, for its API of 24.06 and for that
// of 26.06.
//
// Invariant: the plugin is optional. A VPP without it has no value of these kinds, and all other kinds work.
package cnat
