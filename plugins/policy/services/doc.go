// Package services turns Services and the node's state into what a driver of policies must know of them: which addresses are
// translated, which endpoints are behind the others, and which ports local pods serve.
//
// Invariant: the facts depend on the present Services and nodes only. It receives the same changes as the renderers, so it agrees with them.
package services
