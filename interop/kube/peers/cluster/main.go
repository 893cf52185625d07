// Command cluster is what a cluster's control plane is made of, in one program that shares its code: its first argument says which part
// it is, the others are that part's own.
//
//	cluster etcd …
//	cluster kube-apiserver …
//	cluster kube-controller-manager …
//	cluster kube-scheduler …
//	cluster kubectl …
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cluster etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubectl …")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	switch part := os.Args[0]; part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllers.NewControllerManagerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand())
	case "kubectl":
		run(kubectl.NewDefaultKubectlCommand())
	default:
		fmt.Fprintf(os.Stderr, "cluster: no part is called %q\n", part)
		os.Exit(2)
	}
}

func run(command *cobra.Command) { os.Exit(cli.Run(command)) }
