package vppagent_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/pace"
)

// walks is the number of random walks of a property, unless -rapid.checks sets it.
const walks = 100

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", fmt.Sprint(pace.Fewer(walks, 8))); err != nil {
		panic(err)
	}
	os.Exit(m.Run()) // parses the flags of the command line, which take precedence
}
