// Package exit turns errors into exit codes of the program.
//
// Invariant: an error without a code is a failure at run time.
package exit

import (
	"slices"

	"github.com/spf13/cobra"
)

// Exit codes of the program. Its help documents them.
const (
	OK          = 0
	Failed      = 1   // a failure at run time
	Wrong       = 2   // flags, arguments or input files are wrong
	Differs     = 3   // plan: there are changes; status: not in sync, or not healthy; trace --diff, config diff: a difference; doctor: a finding; verify: a difference, or an assertion that does not hold; trace --expect: another verdict; trace --live: another path than predicted; cleanup --dry-run: values to remove
	Interrupted = 130 // Ctrl-C or SIGTERM ended the command before it was done
)

// Serves is the annotation of a command that runs until it is stopped. Then it is done.
const Serves = "serves"

// Stopped returns the exit code of a command that was stopped.
func Stopped(cmd *cobra.Command) int {
	if _, serves := cmd.Annotations[Serves]; serves {
		return OK
	}
	return Interrupted
}

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

// Worse returns the more serious exit code: failure before an interrupt before wrong usage before a finding.
func Worse(a, b int) int {
	rank := func(code int) int {
		if at := slices.Index([]int{OK, Differs, Wrong, Interrupted}, code); at >= 0 {
			return at
		}
		return 4
	}
	switch {
	case rank(a) >= rank(b):
		return a
	case rank(b) == 4:
		return Failed
	}
	return b
}
