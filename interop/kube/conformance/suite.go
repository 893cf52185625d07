// Package conformance turns the module of network-policy-api into its conformance suite: the tests beside this folder build
// it with `go test -c sigs.k8s.io/network-policy-api/conformance`. It is a separate module, because it needs other versions
// of client-go than the product. Invariant: the suite is complete and unchanged.
package conformance

import (
	_ "sigs.k8s.io/network-policy-api/conformance/tests" // so that the requirement stays
)
