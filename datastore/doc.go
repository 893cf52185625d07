// Package datastore turns objects into Calico's datastore keys and values, and keys and values into objects.
//
// Invariant: what is written is what Calico v3.31 writes, byte for byte: keys, order of fields, spelling of numbers. What is
// read is whole or refused, with the key and the reason; nothing half understood is let through.
package datastore
