package acl

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/pace"
)

// TestMain has properties checked less often under the race detector, which takes five times as long.
func TestMain(m *testing.M) {
	flag.Parse()
	const checks = 100 // rapid's default
	if fewer := pace.Fewer(checks, 2); fewer < checks {
		if err := flag.Set("rapid.checks", fmt.Sprint(fewer)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
