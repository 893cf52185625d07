package manifest

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// loadBroken loads the folder of broken examples under the name that its README uses.
func loadBroken(t *testing.T) []event.Change {
	t.Helper()
	t.Chdir("../..")
	changes, err := Load("examples/broken")
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// Each broken example yields one message, and the folder's README quotes every one of them word for word.
func TestBrokenExampleYieldsDocumentedMessage(t *testing.T) {
	var got []string
	for _, c := range loadBroken(t) {
		if c.Err != nil {
			got = append(got, c.Err.Error())
		}
	}
	readme, err := os.ReadFile("examples/broken/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(readme)) {
		if strings.HasPrefix(line, "examples/broken/") {
			want = append(want, strings.TrimSpace(line))
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("messages (- README, + Load):\n%s", d)
	}
}

// All valid objects in the folder are loaded, whatever is broken beside them. Extreme but legal values are valid.
func TestBrokenExampleKeepsValidObjects(t *testing.T) {
	endpoints, services := map[string]int{}, map[string]bool{}
	for _, c := range loadBroken(t) {
		switch o := c.Object.(type) {
		case *model.Service:
			services[o.ID.Name] = true
		case *model.EndpointSlice:
			endpoints[o.Service.Name] += len(o.Endpoints)
		case *model.Pod:
			if n := len(o.ID.Name); n > 6 && n != 253 {
				t.Errorf("pod %s: name of %d characters", o.ID, n)
			}
		}
	}
	long := "long-" + strings.Repeat("s", 57) + "e"
	for _, name := range []string{"web", "before", "after", "crowd", "vip-a", "vip-b", long} {
		if !services[name] {
			t.Errorf("Service %s is missing", name)
		}
	}
	if want := 7; len(services) != want {
		t.Errorf("%d services, want %d: %v", len(services), want, services)
	}
	if d := cmp.Diff(map[string]int{"web": 1, "crowd": 300, "vip-a": 1, "vip-b": 1, long: 1}, endpoints); d != "" {
		t.Errorf("endpoints per service (- want):\n%s", d)
	}
}
