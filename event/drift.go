package event

// DriftKind is how VPP differs from what it was given.
type DriftKind string

// The kinds of drift.
const (
	DriftMissing  DriftKind = "missing"  // VPP does not have the value any more
	DriftChanged  DriftKind = "changed"  // VPP has another content, another order, or more or fewer parts of it
	DriftDisabled DriftKind = "disabled" // VPP has the value, and packets do not meet what it stands for
	DriftExtra    DriftKind = "extra"    // VPP has a value of ours again that the agent removed
)

// Drift is one value that another program changed in VPP, as a recheck found it.
type Drift struct {
	Key  string
	Kind string // of the value: "dnat44", "interface-acls", …
	What DriftKind
	// Repaired tells that VPP acknowledged the repair. If not, Err says why.
	Repaired bool
	Err      string
	Times    int    // how often the key drifted since the agent started, this time included
	Contest  string // why another program is known to change the key again and again; "": it is not
}

// String is "<key> is missing, repaired", with the error instead if there is one.
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
