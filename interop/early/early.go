// Package early turns protobuf's refusal of two files that declare the same names into consent, for this process.
// Invariant: it is initialised before any generated code, because it imports nothing but os, and packages are
// initialised in the order of their dependencies and then of their paths.
package early

import "os"

// Felix's messages and our restatement of them have the same names, as they must; both are linked here.
var _ = os.Setenv("GOLANG_PROTOBUF_REGISTRATION_CONFLICT", "ignore")
