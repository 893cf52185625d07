package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/doctor"
)

// Findings writes the checks of a VPP: those that are not ok, or all.
func Findings(w io.Writer, r *doctor.Report, all bool) {
	if r.Simulated {
		fmt.Fprintf(w, "the simulated VPP, as release %s\n", r.Version)
	} else {
		fmt.Fprintf(w, "VPP %s, process %d\n", r.Version, r.PID)
	}
	tw := terminal.NewTable(w)
	fine := 0
	var skipped []string
	for _, c := range r.Checks {
		if c.Verdict == doctor.OK && !all {
			fine++
			continue
		}
		if c.Verdict == doctor.Skipped && !all {
			skipped = append(skipped, c.Name)
			continue
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", c.Verdict, c.Name, c.Found)
		for _, line := range []struct{ what, text string }{
			{"", c.Consequence}, {"startup.conf: ", c.Startup}, {"until its next start: ", c.Command},
		} {
			if line.text != "" {
				fmt.Fprintf(tw, "\t\t%s%s\n", line.what, line.text)
			}
		}
	}
	_ = tw.Flush() // an error means that standard output is closed
	if len(skipped) > 0 {
		fmt.Fprintf(w, "skipped, because the simulated VPP does not have it: %s\n", strings.Join(skipped, ", "))
	}
	if fine > 0 {
		fmt.Fprintf(w, "%d checks are ok (--all shows them)\n", fine)
	}
}
