// Package config turns a change of any size into messages and back: a separate API beside Contiv's and ligato's. Invariant:
// names and numbers are an interface to other programs; they are added to, never changed.
package config
