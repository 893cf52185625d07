// Package encode turns objects of Kubernetes and Calico into the keys and values of Calico's datastore.
//
// Invariant: it writes exactly the bytes that Calico v3.31 writes: keys, order of fields, spelling of numbers. A refused policy is written in a
// form that fails closed.
package encode
