// Package exit turns errors into exit codes of the program.
//
// Invariant: an error without a code is a failure at run time.
package exit

import "slices"

// Exit codes of the program. Its help documents them.
const (
	OK      = 0
	Failed  = 1 // a failure at run time
	Wrong   = 2 // flags, arguments or input files are wrong
	Differs = 3 // plan: there are changes; status: not in sync, or not healthy; trace --diff, config diff: a difference; doctor: a finding; verify: a difference, or an assertion that does not hold; cleanup --dry-run: values to remove
)

// Error is an error with an exit code. A nil err prints nothing.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the error without its code.
func (e *Error) Unwrap() error { return e.Err }

// Usage marks an error as an error of the user: exit code 2.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Wrong, err}
}

// Worse returns the more serious exit code: failure before wrong usage before a finding.
func Worse(a, b int) int {
	rank := func(code int) int {
		if at := slices.Index([]int{OK, Differs, Wrong}, code); at >= 0 {
			return at
		}
		return 3
	}
	switch {
	case rank(a) >= rank(b):
		return a
	case rank(b) == 3:
		return Failed
	}
	return b
}
