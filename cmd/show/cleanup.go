package show

import (
	"fmt"
	"io"

	"github.com/contiv-agent/contiv-agent/agent/cleanup"
)

// Cleanup writes what a cleanup removed and left.
func Cleanup(w io.Writer, r *cleanup.Report) {
	if r.Away != "" {
		fmt.Fprintf(w, "VPP is not looked at: %s\n", r.Away)
	}
	fmt.Fprintf(w, "%d values removed, with %d messages to VPP\n", r.Removed, r.Writes)
	for _, o := range r.Kernel {
		fmt.Fprintf(w, "removed: %s\n", o)
	}
	for _, f := range r.Files {
		fmt.Fprintf(w, "file removed: %s\n", f)
	}
	for _, f := range r.Foreign {
		fmt.Fprintf(w, "foreign, not removed: %s\n", f)
	}
	for _, f := range r.Failed {
		fmt.Fprintf(w, "not removed: %s\n", f)
	}
	for _, v := range r.Left {
		fmt.Fprintf(w, "not removed: %s is %s\n", v.Key, withReason(v.State, v.Error))
	}
}
