// Command demo runs a real Kubernetes control plane on loopback, an agent and a simulated VPP for each node of the
// guestbook, and prints how to use them. `make run KUBE=1` starts it, in the folder above this one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/contiv-agent/contiv-agent/interop/kube"
)

func main() {
	d := kube.Demo{Out: os.Stdout}
	flag.StringVar(&d.Guestbook, "guestbook", "../../examples/guestbook", "folder of the example")
	flag.BoolVar(&d.Once, "once", false, "end with exit code 0 when all nodes are in sync, and packets go where they should")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "demo takes no arguments")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := d.Run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
