package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/contiv-agent/contiv-agent/verify"
)

// Verified writes the checks of a node: those that are not equal, or all.
func Verified(w io.Writer, r *verify.Report, all bool) {
	if r.Why != "" {
		fmt.Fprintf(w, "%s: %s\n", r.Node, withReason(string(r.Verdict), r.Why))
		return
	}
	for _, what := range r.Omitted {
		fmt.Fprintf(w, "%s: without %s\n", r.Node, what)
	}
	for _, which := range r.Refused {
		fmt.Fprintf(w, "%s: refused, and compared as a policy that denies: %s\n", r.Node, which)
	}
	count := map[verify.Verdict]int{}
	pods := map[string]bool{}
	for _, c := range r.Checks {
		count[c.Verdict]++
		pods[c.Pod] = true
		verifiedPod(w, &c, all)
	}
	frontends := verifiedServices(w, r, all)
	fmt.Fprintf(w, "%s: %d pods, %d checks: %d equal for all headers, %d different, %d not compared\n", r.Node, len(pods), len(r.Checks), count[verify.Equal], count[verify.Different], count[verify.Unknown])
	clear(count)
	for _, k := range r.Services {
		count[k.Verdict]++
	}
	fmt.Fprintf(w, "%s: %d frontends of Services, %d checks: %d equal, %d different, %d not compared\n", r.Node, frontends, len(r.Services), count[verify.Equal], count[verify.Different], count[verify.Unknown])
	if r.Probes != nil {
		clear(count)
		for i := range r.Probes {
			count[r.Probes[i].Verdict]++
			verifiedPod(w, &r.Probes[i], all)
		}
		fmt.Fprintf(w, "%s: %d packets of %d pods sent: %d equal, %d different, %d not compared\n", r.Node, r.PacketsSent, len(r.Probes), count[verify.Equal], count[verify.Different], count[verify.Unknown])
	}
}

// verifiedPod writes the check of a pod.
func verifiedPod(w io.Writer, c *verify.Check, all bool) {
	if c.Verdict == verify.Equal && !all {
		return
	}
	fmt.Fprintf(w, "%s, %s: %s\n", c.Pod, c.Packets, withReason(string(c.Verdict), c.Why))
	if d := c.Difference; d != nil {
		fmt.Fprintf(w, "  packet  %s\n  vpp     %s\n  policy  %s\n", d.Packet, d.VPP, d.Policy)
		if d.Trace != "" {
			fmt.Fprintf(w, "  trace   %s\n", d.Trace)
		}
	}
}

// verifiedServices writes the checks of Services in the same form, and returns how many frontends they compared.
func verifiedServices(w io.Writer, r *verify.Report, all bool) (frontends int) {
	for _, k := range r.Services {
		frontends += k.Frontends
		if k.Verdict == verify.Equal && !all {
			continue
		}
		fmt.Fprintf(w, "%s: %s\n", k.Of, withReason(string(k.Verdict), strings.Join(k.Why, "; ")))
		for _, d := range k.Differences {
			fmt.Fprintf(w, "  packet  %s\n  vpp     %s\n  service %s\n", d.Packet, d.VPP, d.Service)
			if d.Trace != "" {
				fmt.Fprintf(w, "  trace   %s\n", d.Trace)
			}
		}
	}
	return frontends
}
