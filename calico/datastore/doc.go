// Package datastore turns objects into the keys and values of Calico's datastore, and keys and values into objects.
//
// Invariant: the encoder writes exactly the bytes that Calico v3.31 writes: keys, order of fields, spelling of numbers. The
// decoder reads a whole value or refuses it with key and reason; it never returns a partly understood value.
package datastore
