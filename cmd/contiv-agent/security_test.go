package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every flag that makes a listener is in SECURITY.md with its default.
func TestSecurityPageHasTheListeners(t *testing.T) {
	page, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(run|fanout) --([a-z-]+)` \\| `([^`]*)`").FindAllStringSubmatch(string(page), -1) {
		said = append(said, m[1]+" --"+m[2]+" "+m[3])
	}
	var have []string
	listens := regexp.MustCompile(`^(listen|metrics|.*-listen|.*-bind-address|health-check-addresses|grpc-socket|status-socket)$`)
	for _, cmd := range []*cobra.Command{newRun(), newFanout()} {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if listens.MatchString(f.Name) {
				have = append(have, cmd.Name()+" --"+f.Name+" "+f.DefValue)
			}
		})
	}
	slices.Sort(said)
	slices.Sort(have)
	if !slices.Equal(said, have) {
		t.Errorf("SECURITY.md has\n%s\nthe flags are\n%s", strings.Join(said, "\n"), strings.Join(have, "\n"))
	}
	for _, limit := range []string{"max-connections 10000", "hello-within 10s", "write-within 2m0s"} {
		name, want, _ := strings.Cut(limit, " ")
		if got := newFanout().Flags().Lookup(name).DefValue; got != want {
			t.Errorf("fanout --%s is %s, the page has %s", name, got, want)
		}
	}
}
