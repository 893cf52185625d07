// Command vpp is the simulated VPP under the name and with the arguments of a real one: -c and a startup.conf, of which it reads the API socket.
// The program contiv-agent must be in the path.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"syscall"
)

var socketName = regexp.MustCompile(`(?m)^socksvr\s*{\s*socket-name\s+(\S+)\s*}`)

func main() {
	fmt.Fprintln(os.Stderr, "vpp:", become(os.Args[1:]))
	os.Exit(1)
}

// become returns only if it fails.
func become(args []string) error {
	if len(args) != 2 || args[0] != "-c" {
		return fmt.Errorf("want -c FILE, have %q", args)
	}
	conf, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	socket := socketName.FindSubmatch(conf)
	if socket == nil {
		return fmt.Errorf("%s names no API socket", args[1])
	}
	program, err := exec.LookPath("contiv-agent")
	if err != nil {
		return err
	}
	return syscall.Exec(program, []string{"vpp", "sim", "--host-interfaces", "--socket", string(socket[1])}, os.Environ()) //nolint:gosec // the purpose
}
