// Package verified turns clusters on simulated VPPs, and changes of their access lists and translations, into findings of the package verify.
//
// Invariant: a correct VPP is equal for all headers, and a change is found unless no packet shows it. After every message of a change, access lists pass
// only what they pass before or after it.
package verified
