package show

import (
	"fmt"
	"io"

	"github.com/contiv-agent/contiv-agent/verify/intent"
)

// Asserted writes the assertions that do not hold, or all.
func Asserted(w io.Writer, r *intent.Report, all bool) {
	count := map[intent.Verdict]int{}
	for _, one := range r.Results {
		if count[one.Verdict]++; one.Verdict == intent.Holds && !all {
			continue
		}
		name := ""
		if one.Name != "" {
			name = one.Name + ": "
		}
		fmt.Fprintf(w, "%s%s %s: %s\n", name, one.Kind, one.Demand, withReason(string(one.Verdict), one.Why))
		if one.Reason != "" {
			fmt.Fprintf(w, "  because   %s\n", one.Reason)
		}
		if one.Example != nil {
			writeExample(w, one.Example)
		}
	}
	fmt.Fprintf(w, "%d assertions: %d hold, %d violated, %d not decided; %d pods in %d classes\n", len(r.Results), count[intent.Holds], count[intent.Violated], count[intent.Undecided], r.Pods, r.Classes)
}

func writeExample(w io.Writer, e *intent.Example) {
	fmt.Fprintf(w, "  packet    %s\n", e.Packet)
	if e.Egress != "" {
		fmt.Fprintf(w, "  sender    %s: %s\n", e.From, e.Egress)
	}
	if e.Ingress != "" {
		fmt.Fprintf(w, "  receiver  %s: %s\n", e.To, e.Ingress)
	}
	if e.Trace != "" {
		fmt.Fprintf(w, "  trace     %s\n", e.Trace)
	}
}
