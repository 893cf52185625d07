// Command demo runs a real Kubernetes control plane, and three nodes whose Pods are processes: each with a kubelet, a VPP and an agent. It
// deploys the guestbook, and prints how to use it. `make run KUBE=1` starts it, in the folder above this one.
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
	kube.Part()
	d := kube.Demo{Out: os.Stdout}
	flag.StringVar(&d.Guestbook, "guestbook", "../../examples/guestbook", "folder of the example")
	flag.StringVar(&d.Programs, "programs", "../../bin", "folder with contiv-agent, contiv-cni and guestbook")
	flag.BoolVar(&d.Once, "once", false, "end with exit code 0 when the guestbook has answered, and a policy has forbidden what it should")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "demo takes no arguments")
		os.Exit(2)
	}
	if err := kube.Apart(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := d.Run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
