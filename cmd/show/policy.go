package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// Counting explains the counts.
const Counting = "packets that the rule decided since its list last changed, of all pods here that share the list; later packets of an allowed flow are not counted"

// Policies writes the policies of a pod, rule by rule.
func Policies(w io.Writer, d *policy.Description) {
	where := strings.Join(d.Interfaces, ", ")
	if where == "" {
		where = "no interface in VPP yet"
	}
	fmt.Fprintf(w, "%s: %s, %s\n", d.Endpoint, where, strings.Join(d.Addresses, " "))
	counts := counts(hasHits(d.Ingress) || hasHits(d.Egress))
	writeDirection(w, "ingress", d.Ingress, d.Profiles, counts)
	writeDirection(w, "egress", d.Egress, d.Profiles, counts)
	switch {
	case d.Uncounted != "":
		fmt.Fprintf(w, "  no counts: %s\n", d.Uncounted)
	case d.Spoofed != nil:
		fmt.Fprintf(w, "  source check: %d packets dropped with a source address that is not the pod's\n", d.Spoofed.Packets)
	}
	switch {
	case d.Uncounted != "":
	case bool(counts):
		fmt.Fprintf(w, "  counts: %s\n", Counting)
	}
}

func hasHits(tiers []policy.Tier) bool {
	for _, t := range tiers {
		for _, p := range t.Policies {
			if slices.ContainsFunc(p.Rules, func(r policy.Rule) bool { return r.Hits != nil }) {
				return true
			}
		}
	}
	return false
}

// counts means that the output has a column of counts.
type counts bool

// cell returns the count of a rule, padded for the next column.
func (c counts) cell(h *policy.Hits) string {
	switch {
	case !bool(c):
		return ""
	case h == nil:
		return "-\t"
	case h.Packets == 1:
		return fmt.Sprintf("1 packet, %d bytes\t", h.Bytes)
	}
	return fmt.Sprintf("%d packets, %d bytes\t", h.Packets, h.Bytes)
}

// writeDirection writes the tiers of one direction as a packet meets them.
func writeDirection(w io.Writer, name string, tiers []policy.Tier, profiles []string, counts counts) {
	fmt.Fprintf(w, "  %s\n", name)
	tw := terminal.NewTable(w)
	for _, t := range tiers {
		fmt.Fprintf(tw, "    tier %s\n", t.Name)
		for _, p := range t.Policies {
			staged := ""
			if p.Staged {
				staged = " (staged: not enforced)"
			}
			fmt.Fprintf(tw, "      %s%s\n", p.Object, staged)
			for _, r := range p.Rules {
				fmt.Fprintf(tw, "        %s\t%s\t%s%s\n", r.Name, r.Action, counts.cell(r.Hits), orAny(cmp.Or(r.Words, r.Match)))
			}
		}
		fmt.Fprintf(tw, "      packets that no rule decides: %s\n", t.End)
	}
	if len(tiers) == 0 || tiers[len(tiers)-1].End == "pass" {
		fmt.Fprintf(tw, "    profiles decide: %s\n", orDash(strings.Join(profiles, ", ")))
	}
	_ = tw.Flush() // an error means that standard output is closed
}

func orAny(match string) string {
	if match == "" {
		return "anything"
	}
	return match
}

// PolicyNames returns the policies of pods, each once: networkpolicy/prod/web.
func PolicyNames(described []*policy.Description) (out []string) {
	for _, d := range described {
		for _, t := range slices.Concat(d.Ingress, d.Egress) {
			for _, p := range t.Policies {
				if name := objectName(p.Object); !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
	}
	return out
}

// objectName turns "NetworkPolicy prod/web" into networkpolicy/prod/web.
func objectName(object string) string {
	kind, name, _ := strings.Cut(object, " ")
	return strings.ToLower(kind) + "/" + name
}
