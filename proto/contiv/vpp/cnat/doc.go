// Package cnat turns what VPP's cnat plugin does (translations of both address families, its source NAT, the interfaces it is on)
// into protobuf values and back; ligato has no messages for it. Invariant: names and numbers are an interface to stored data; they
// are added to, never changed.
package cnat
