package acl

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/pace"
)

// TestMain has properties checked less often under the race detector, which takes five times as long; make wide checks all.
func TestMain(m *testing.M) {
	flag.Parse()
	const checks = 100 // rapid's default
	fewer := pace.Fewer(checks, 4)
	if testing.Short() {
		fewer = checks / 2 // rapid divides by five again
	}
	if fewer < checks {
		if err := flag.Set("rapid.checks", fmt.Sprint(fewer)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
