package arrange

import "testing"

// wanted are the arrangements that a value can want, and none.
func wanted() []Arrangement {
	return []Arrangement{{}, Regular(true, false, false), Regular(false, true, false), Regular(true, true, false), Regular(false, false, true), OfPod()}
}

// found are the arrangements that VPP can have: each combination of roles with each node up to two times.
func found() (out []Arrangement) {
	for _, roles := range wanted()[:5] {
		for n := range uint8(27) {
			roles.Nodes = [nodeCount]uint8{n % 3, n / 3 % 3, n / 9}
			out = append(out, roles)
		}
	}
	return out
}

// TestArrangementsAreReached: the steps from any arrangement to any other end there; none removes a role that is not set, and the role inside is
// neither removed, nor joined by outside, while the node of both roles is on the arc without the role outside.
func TestArrangementsAreReached(t *testing.T) {
	for _, have := range found() {
		for _, want := range wanted() {
			steps := have.To(want)
			at := have
			for _, s := range steps {
				switch own := !at.Outside && at.Nodes[Classify] > 0; {
				case !s.On && (s.Part == Inside && !at.Inside || s.Part == Outside && !at.Outside || s.Part == Output && !at.Output):
					t.Errorf("%+v to %+v: %+v removes what is not set", have, want, steps)
				case own && want != Regular(true, true, false) && (s == Step{Inside, false}), own && at.Inside && have.Nodes[Classify] < 2 && (s == Step{Outside, true}):
					t.Errorf("%+v to %+v: %+v changes roles under the node", have, want, steps)
				}
				at = at.After(s)
			}
			if at != want {
				t.Errorf("%+v to %+v: %+v ends at %+v", have, want, steps, at)
			}
		}
	}
}
