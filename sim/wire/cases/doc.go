// Package cases has frames for a VPP with five interfaces, and what VPP 25.10 sends because of each (testdata/25.10.txt, recorded by
// test/realvpp). The same frames go to a real VPP, to a process of the sim with host interfaces, and to sim/wire in memory.
//
// Invariant: the cases have an order, and each depends on what VPP learned in earlier ones.
package cases
