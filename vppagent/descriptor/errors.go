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
	Until      string // the condition for the change
}

func (e *FixedError) Error() string {
	return fmt.Sprintf("%s: VPP has %v, wanted is %v, and it cannot change until %s", e.Field, e.Have, e.Want, e.Until)
}

// DerivedError reports that the agent itself makes the value under that key, and that no owner can set it.
type DerivedError struct{ Key string }

func (e *DerivedError) Error() string { return fmt.Sprintf("%s is derived from another value", e.Key) }

// Gone reports that VPP, or the guard before it, refused because the object of the request does not exist, or its interface or table.
func Gone(err error) bool {
	for _, code := range []api.VPPApiError{api.NO_SUCH_ENTRY, api.ADDRESS_NOT_FOUND_FOR_INTERFACE, api.INVALID_SW_IF_INDEX, api.NO_SUCH_FIB} {
		if errors.Is(err, code) {
			return true
		}
	}
	g, guarded := errors.AsType[*vpp.GuardError](err)
	return guarded && g.Absent
}

// Optional returns err, or nil if VPP does not know the message: then it has no object of the feature either.
func Optional(err error) error {
	if _, missing := errors.AsType[*vpp.MissingError](err); missing {
		return nil
	}
	return err
}
