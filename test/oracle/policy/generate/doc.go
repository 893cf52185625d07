// Package generate makes random clusters of Kubernetes and Calico objects, changes them step by step, and lists the flows that are worth
// asking about.
//
//	NewWorld(seed) ─ Step, Step, … ─▶ Objects ─▶ policy.Read
//	                  └─ Flows: all pairs of pods, nodes, addresses outside × ports × protocols × families
//
// Invariant: a seed gives the same objects, steps and flows each time, and all objects are as an API server would accept them, except those that
// Garble spoils.
package generate
