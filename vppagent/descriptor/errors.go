package descriptor

import (
	"errors"
	"fmt"

	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// FixedError reports that a field of a value cannot change while the value exists in VPP. Retrying does not help.
type FixedError struct {
	Field      string
	Have, Want any
	Until      string // what has to happen first
}

func (e *FixedError) Error() string {
	return fmt.Sprintf("%s: VPP has %v, wanted is %v, and it cannot change until %s", e.Field, e.Have, e.Want, e.Until)
}

// DerivedError reports that a value under that key is made by the agent itself and cannot be given.
type DerivedError struct{ Key string }

func (e *DerivedError) Error() string { return fmt.Sprintf("%s is derived from another value", e.Key) }

// Gone reports that VPP, or the guard before it, refused because what the request is about is not there: the object, its interface, or
// its table.
func Gone(err error) bool {
	for _, code := range []api.VPPApiError{api.NO_SUCH_ENTRY, api.ADDRESS_NOT_FOUND_FOR_INTERFACE, api.INVALID_SW_IF_INDEX, api.NO_SUCH_FIB} {
		if errors.Is(err, code) {
			return true
		}
	}
	g, guarded := errors.AsType[*vpp.GuardError](err)
	return guarded && g.Absent
}

// Optional is err, or nil if VPP does not know the message: then it has nothing of what was asked for either.
func Optional(err error) error {
	if _, missing := errors.AsType[*vpp.MissingError](err); missing {
		return nil
	}
	return err
}
