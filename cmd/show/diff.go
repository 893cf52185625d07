package show

import (
	"fmt"
	"io"
	"slices"

	"github.com/contiv-agent/contiv-agent/client"
	"github.com/contiv-agent/contiv-agent/event"
)

// Diff is how the items of files differ from those of a client in an agent, and from VPP's values of the same keys.
type Diff struct {
	Equal bool `json:"equal"` // no difference
	// Agent are the differences to the client's items. Only: "file" is an item that put creates, "agent" one that it removes; without it, put changes
	// the fields.
	Agent []difference `json:"agent"`
	// VPP are the differences to VPP's values.
	VPP []lacking `json:"vpp"`
}

type difference struct {
	Key string `json:"key"`
	valueName
	Only   client.Side    `json:"only,omitempty"`
	Fields []client.Field `json:"fields,omitempty"` // is: in the agent; shall: in the file
}

type lacking struct {
	Key string `json:"key"`
	valueName
	What     string         `json:"what"`            // missing, differs, or unwanted: the file names it without a value
	State    string         `json:"state,omitempty"` // of the client's item in the agent, if it is not configured
	WaitsFor string         `json:"waitsFor,omitempty"`
	Error    string         `json:"error,omitempty"`
	Fields   []client.Field `json:"fields,omitempty"` // is: in VPP; shall: in the file
}

// The values of lacking.What.
const (
	missing  = "missing"
	differs  = "differs"
	unwanted = "unwanted"
)

// DiffOf compares files with the items of a client, and with VPP's values of the same keys. With everything, items that no file names differ, too.
func DiffOf(docs []client.Document, wanted, has []client.Item, everything bool) *Diff {
	d := &Diff{Agent: []difference{}, VPP: []lacking{}}
	for _, c := range client.Compare(docs, wanted, everything) {
		d.Agent = append(d.Agent, difference{c.Key, nameOfKey(c.Key), c.Only, c.Fields})
	}
	inVPP, states := map[string]client.Item{}, map[string]client.Item{}
	for _, i := range has {
		inVPP[i.Key] = i
	}
	for _, i := range wanted {
		states[i.Key] = i
	}
	for _, doc := range docs {
		there, found := inVPP[doc.Key]
		l := lacking{Key: doc.Key, valueName: nameOfKey(doc.Key)}
		switch {
		case doc.Message == nil && found:
			l.What = unwanted
		case doc.Message == nil:
			continue
		case !found:
			l.What = missing
			l.explain(states[doc.Key])
		default:
			if l.Fields = client.Lacks(there.Message, doc.Message); len(l.Fields) == 0 {
				continue
			}
			l.What = differs
		}
		d.VPP = append(d.VPP, l)
	}
	d.Equal = len(d.Agent)+len(d.VPP) == 0
	return d
}

// explain adds the agent's reason why VPP lacks an item; an item that the agent does not have has no state.
func (l *lacking) explain(i client.Item) {
	switch i.State {
	case event.Nonexistent, event.Configured:
	case event.Pending:
		l.State, l.WaitsFor = i.State.String(), i.Why
	default:
		l.State, l.Error = i.State.String(), i.Why
	}
}

// WriteText writes the differences as lines; none if there is no difference.
func (d *Diff) WriteText(w io.Writer) {
	for _, c := range d.Agent {
		fmt.Fprintf(w, "%s %s\n", map[client.Side]string{client.File: "+", client.Agent: "-", client.Both: "~"}[c.Only], c.Key)
		for _, field := range c.Fields {
			fmt.Fprintf(w, "    %s\n", field)
		}
	}
	for _, l := range d.VPP {
		fmt.Fprintf(w, "! %s\n", l.Key)
		switch {
		case l.What == unwanted:
			fmt.Fprintf(w, "    in VPP\n")
		case l.State == event.Pending.String():
			fmt.Fprintf(w, "    %s\n", withReason(l.State, "waits for "+l.WaitsFor))
		case l.State != "":
			fmt.Fprintf(w, "    %s\n", withReason(l.State, l.Error))
		case l.What == missing:
			fmt.Fprintf(w, "    not in VPP\n")
		}
		for _, field := range l.Fields {
			fmt.Fprintf(w, "    VPP: %s\n", field)
		}
	}
}

// Keys returns the keys that differ, sorted.
func (d *Diff) Keys() (out []string) {
	for _, c := range d.Agent {
		out = append(out, c.Key)
	}
	for _, l := range d.VPP {
		out = append(out, l.Key)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
