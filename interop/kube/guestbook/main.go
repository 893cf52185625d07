// Command guestbook is the programs of the Pods of examples/guestbook: its first argument says which. Its name is that of its host.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/contiv-agent/contiv-agent/test/guestbook"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: guestbook", strings.Join(guestbook.Roles, "|"), "…")
		os.Exit(2)
	}
	name, err := os.Hostname()
	if err == nil {
		err = guestbook.Run(name, os.Args[1], os.Args[2:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
