// Package model turns Kubernetes objects into plain, comparable values. All other packages use these types.
//
// Invariant: a value of this package is immutable once published, holds no pointer into its source, does no I/O, and
// two values built from the same object are equal (lists are sorted and free of duplicates).
package model
