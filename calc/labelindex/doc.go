// Package labelindex turns the labels of items and the selectors of policies into matches, and every change of either into the matches that
// begin and end.
//
// Invariant: the matches depend on the present items, parents and selectors only. A changed item is compared with few selectors, and a new
// selector with few items, however many exist.
package labelindex
