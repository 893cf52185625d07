// Package model turns Kubernetes objects into plain, comparable values: the nouns every other room speaks.
//
// Invariant: a value of this package is immutable once published, holds no pointer into its source, does no I/O, and
// two values built from the same object are equal (lists are sorted and free of duplicates).
package model
