package show

import (
	"fmt"
	"io"

	"github.com/contiv-agent/contiv-agent/kv"
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

// PlanData is a plan for programs: keys have their model and name as fields, and the changes are counted.
type PlanData struct {
	*vppagent.Plan
	Levels   [][]planStep `json:"levels"`
	Invalid  []planNote   `json:"invalid,omitempty"`
	Pending  []planNote   `json:"pending,omitempty"`
	Creates  int          `json:"creates"`
	Updates  int          `json:"updates"`
	Deletes  int          `json:"deletes"`
	Messages int          `json:"messages"` // that are known
}

// valueName is the model and the name of a key; both "": the key has no model.
type valueName struct {
	Model string `json:"model,omitempty"` // vpp.nat.dnat44
	Name  string `json:"name,omitempty"`  // "": the model has one key
}

type planStep struct {
	vppagent.Step
	valueName
}

type planNote struct {
	vppagent.Note
	valueName
}

func nameOfKey(key string) valueName {
	m, name, _ := kv.Lookup(key)
	return valueName{m.Name, name}
}

// DataOf returns a plan for programs.
func DataOf(p *vppagent.Plan) *PlanData {
	d := &PlanData{Plan: p, Levels: [][]planStep{}, Invalid: notesOf(p.Invalid), Pending: notesOf(p.Pending)}
	for _, level := range p.Levels {
		var steps []planStep
		for i := range level {
			steps = append(steps, planStep{level[i], nameOfKey(level[i].Key)})
			d.Messages += len(level[i].Messages)
			switch level[i].Action {
			case vppagent.Create:
				d.Creates++
			case vppagent.Update:
				d.Updates++
			case vppagent.Delete:
				d.Deletes++
			}
		}
		d.Levels = append(d.Levels, steps)
	}
	return d
}

func notesOf(list []vppagent.Note) (out []planNote) {
	for _, n := range list {
		out = append(out, planNote{n, nameOfKey(n.Key)})
	}
	return out
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
