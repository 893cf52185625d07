package event

import (
	"fmt"
	"strings"
)

// DriftKind says how VPP differs from the desired state.
type DriftKind string

// The kinds of drift.
const (
	DriftMissing  DriftKind = "missing"  // VPP no longer has the value
	DriftChanged  DriftKind = "changed"  // VPP has another content or order, or more or fewer parts of the value
	DriftDisabled DriftKind = "disabled" // VPP has the value, but packets do not pass the node that applies it
	DriftExtra    DriftKind = "extra"    // VPP has a value of ours again that the agent removed
)

// Drift is one value that another program changed in VPP, as a recheck found it.
type Drift struct {
	Key  string
	Kind string // kind of the value: "dnat44", "interface-acls", …
	What DriftKind
	// Repaired says that VPP acknowledged the repair. If it is false, Err says why.
	Repaired bool
	Err      string
	Times    int    // how often the key drifted since the agent started, including this time
	Contest  string // why another program is known to change the key repeatedly; "" if none is
}

// String is "<key> is missing, repaired", or the error instead of "repaired".
func (d Drift) String() string {
	text := d.Key + " is " + string(d.What)
	if d.Repaired {
		text += ", repaired"
	} else if d.Err != "" {
		text += ", not repaired: " + d.Err
	}
	if d.Contest != "" && d.Repaired {
		text += ": " + d.Contest
	}
	return text
}

// SummarizeDrift returns how many drifts are repaired, and a line about all of them that names the first ones, most at most.
func SummarizeDrift(list []Drift, most int) (repaired int, line string) {
	var names []string
	for _, d := range list {
		if d.Repaired {
			repaired++
		}
		if len(names) < most {
			names = append(names, d.String())
		}
	}
	if more := len(list) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return repaired, strings.Join(names, "; ")
}
