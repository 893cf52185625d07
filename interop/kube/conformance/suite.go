// Package conformance turns the module of network-policy-api into its conformance suite, as its authors test with it: the tests beside
// this folder build it with `go test -c sigs.k8s.io/network-policy-api/conformance`. It is a module of its own, for it wants other versions of
// client-go than the product has. Invariant: nothing of the suite is changed or left out.
package conformance

import (
	_ "sigs.k8s.io/network-policy-api/conformance/tests" // so that the requirement stays
)
