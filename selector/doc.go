// Package selector turns Felix's label-selector language into canonical text, set identifiers and matches against labels.
//
// Invariant: a Selector is immutable and safe for concurrent use; text and identifiers are byte for byte those of Calico
// v3.31.0, and a Selector matches labels L only if L meets every one of its Restrictions and Anchors.
package selector
