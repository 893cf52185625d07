// Package drain plans how a load-balanced mapping of NAT44-ED stops to give a backend new flows and keeps the flows that it has.
//
// VPP has no such request: it removes a backend with all its flows, and a backend of weight 0 cannot be made of one that has a weight. But VPP adds
// the weights of all locals up in 8 bits, and looks for a random number in the sums by binary search. A pad of weight 256 − w lowers the sums of all locals
// behind it by w, so two neighbours of the pad compete for the same numbers, and the search finds only one of them: the other is drained.
// If they compete for fewer numbers than w, one of them gets a smaller share. Which one depends on the number of locals, so the package tries pads in a simulation of VPP's search (vpp/draw) until one does what is
// wanted.
//
//	weights   0  0   0  2  0   0  2  254   0  2  0
//	sums      0  0   0  2  2   2  4    2   2  4  4      numbers 3 and 4: the first or the last backend of sum 4
//
// Input: the layout of a mapping and the backends it is to have. Output: VPP's requests, in groups that VPP reads at once, and the layout after
// them. Invariant: no list of the plan has a sum of 0 (VPP would end), or gives a pad a flow. None gives a drained backend a
// new flow, except where Plan.Hurried counts it.
//
// To add a local and to remove one are separate requests, but VPP gives a local the slot that was freed last. So every change removes a local and
// adds another at once, in the same slot; or it adds or removes behind the last one.
package drain
