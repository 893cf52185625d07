// Package etcd turns what is stored in an etcd under a node's prefix into values of the controller's, and what becomes of them into
// statuses that are stored beside them.
//
// Invariant: what the controller was told is what etcd had at one revision, key by key, except for keys whose value is refused: those
// keep the last value that was good, and say so. What did not change is not told again, however often the connection is lost.
package etcd
