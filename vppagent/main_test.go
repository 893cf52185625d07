package vppagent_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/pace"
)

// walks is how many random walks a property takes unless -rapid.checks says otherwise.
const walks = 100

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", fmt.Sprint(pace.Fewer(walks, 8))); err != nil {
		panic(err)
	}
	os.Exit(m.Run()) // parses the flags of the command line, which win
}
