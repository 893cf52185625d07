package nat

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// TestBothRolesAreReadAtOnce: VPP forwards no packet of an interface that has gained or lost one of its two roles, because it reads both requests at
// once.
func TestBothRolesAreReadAtOnce(t *testing.T) {
	const name = "pod1"
	w := descriptor.NewWorld(descriptor.Options{}, nil)
	w.AddInterface(&descriptor.Iface{Index: 1, Name: name})
	none, both := arrangement{}, regular(true, true, false)
	for _, c := range []struct{ have, want arrangement }{{none, both}, {both, none}} {
		ops, err := rearrange(w, name, c.have, c.want)
		if err != nil {
			t.Fatal(err)
		}
		if len(ops) != 2 || !ops[0].Call.Joined || !ops[0].Call.AtOnce {
			t.Errorf("%+v → %+v: %+v, want two calls at once", c.have, c.want, ops)
		}
	}
}
