// Package etcd turns the configuration stored in an etcd under a node's prefix into values for the controller, and the states of
// these values into statuses that it writes beside them.
//
// Invariant: the controller has the content of etcd at one revision, key by key, except for keys whose value is refused: these keep
// their last valid value, and their status says so. The source never sends an unchanged value again, however often the connection is
// lost.
package etcd
