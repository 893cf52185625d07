// Package datastore has the keys and the shapes of values of Calico's datastore, and turns keys and values into objects. Package encode makes
// them of objects.
//
// Invariant: the decoder reads a whole value or refuses it with key and reason; it never returns a partly understood value.
package datastore
