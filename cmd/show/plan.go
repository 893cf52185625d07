package show

import (
	"fmt"
	"io"

	"github.com/contiv-agent/contiv-agent/vppagent"
)

// Plan writes the changes of a plan, and counts them in the last line.
func Plan(w io.Writer, p *vppagent.Plan) {
	fmt.Fprint(w, p)
	if p.Empty() {
		return
	}
	count, messages, unknown := map[vppagent.Action]int{}, 0, 0
	for _, level := range p.Levels {
		for i := range level {
			count[level[i].Action]++
			messages += len(level[i].Messages)
			if level[i].Unknown != "" {
				unknown++
			}
		}
	}
	fmt.Fprintf(w, "plan: %d to create, %d to update, %d to delete; %d messages", count[vppagent.Create], count[vppagent.Update], count[vppagent.Delete], messages)
	if unknown > 0 {
		fmt.Fprintf(w, ", and those of %d changes that are not known yet", unknown)
	}
	fmt.Fprintln(w)
}

// PlanNames returns the keys of the values that a plan changes, in its order.
func PlanNames(p *vppagent.Plan) (out []string) {
	for _, level := range p.Levels {
		for i := range level {
			out = append(out, level[i].Key)
		}
	}
	return out
}
