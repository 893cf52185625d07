package show

import (
	"fmt"
	"io"

	"github.com/contiv-agent/contiv-agent/verify/intent"
	"github.com/contiv-agent/contiv-agent/verify/intent/change"
)

// Changed writes the connections that a change of manifests opens and closes.
func Changed(w io.Writer, r *change.Report) {
	for _, part := range []struct {
		name string
		rows []change.Row
	}{{"opened", r.Opened}, {"closed", r.Closed}} {
		for i := range part.rows {
			row := &part.rows[i]
			fmt.Fprintf(w, "%s: %s -> %s: %s\n", part.name, change.GroupsText(row.From), change.GroupsText(row.To), row.Ports)
			example := row.After
			if part.name == "closed" && row.Before != nil || example == nil {
				example = row.Before
			}
			if example != nil {
				fmt.Fprintf(w, "  packet  %s\n", example.Packet)
			}
			writeSide(w, "before", row.Before)
			writeSide(w, "after", row.After)
		}
	}
	for _, text := range r.Unknown {
		fmt.Fprintf(w, "not compared: %s\n", text)
	}
	fmt.Fprintf(w, "%d kinds of connections opened, %d closed\n", len(r.Opened), len(r.Closed))
}

// writeSide writes who decides about a packet in one set of manifests.
func writeSide(w io.Writer, name string, e *intent.Example) {
	if e == nil {
		fmt.Fprintf(w, "  %-7s a pod of it is not there\n", name)
		return
	}
	for _, decides := range []struct{ at, why string }{{"sender " + e.From, e.Egress}, {"receiver " + e.To, e.Ingress}} {
		if decides.why != "" {
			fmt.Fprintf(w, "  %-7s %s: %s\n", name, decides.at, decides.why)
		}
	}
}
