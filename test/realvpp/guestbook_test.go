package realvpp

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/guestbook"
)

// guestbookRole makes the test binary one of the guestbook's programs: NAME ROLE [ARGUMENTS].
const guestbookRole = "CONTIV_GUESTBOOK"

func TestMain(m *testing.M) {
	if role := strings.Fields(os.Getenv(guestbookRole)); len(role) > 1 {
		err := guestbook.Run(role[0], role[1], role[2:])
		fmt.Fprintln(os.Stderr, role[0], err)
		os.Exit(1)
	}
	var err error
	if programs, err = os.MkdirTemp("", "realvpp"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}
