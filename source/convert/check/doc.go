// Package check turns fields of Kubernetes objects into values, and wrong ones into problems that say object, field and what was expected.
//
// Invariant: the rules are those of an API server. A field that breaks one gives the zero value and one problem, with the field's path.
package check
