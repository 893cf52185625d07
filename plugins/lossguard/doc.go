// Package lossguard holds the removal of many objects at once, between the sources and the loop: an API server that answers with empty lists, or
// whose etcd was restored from an old backup, must not empty every node.
//
//	source ─ Update ─▶ book ─▶ additions, changes, small removals ─▶ loop
//	                    └────▶ many removals: held for a time, or until they are confirmed
//
// The book is a pure state machine: objects in force, changes and the time go in, the changes that pass come out. Guard is the shell around it.
//
// Invariant: every change passes in the end, or a later change of its object replaces it. The guard makes no change up: what passes is a change of the
// source, or an EndpointSlice of the source with endpoints that it had before.
package lossguard
