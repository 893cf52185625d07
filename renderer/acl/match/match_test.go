package match

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// A rule has the same match whether a port's name comes first or last, once or twice: Calico's datastore has the names as a user wrote them.
func TestNamesOfPortsInAnyOrder(t *testing.T) {
	parse := func(names ...string) *Match {
		var p Parser
		if _, problems := p.Parse(&felix.Rule{DstNamedPortIpSetIds: names, NotSrcNamedPortIpSetIds: names}); len(problems) > 0 {
			t.Fatal(problems)
		}
		return p.Keep()
	}
	want := parse("http", "web")
	for _, names := range [][]string{{"web", "http"}, {"http", "web", "http"}} {
		if !parse(names...).Same(want) {
			t.Errorf("%q is another match than %q", names, want.Dst.Named)
		}
	}
	if parse("http").Same(want) || !parse().Same(&Match{Proto: -1, NotProto: -1}) {
		t.Error("names do not matter")
	}
}
