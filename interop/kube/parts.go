package kube

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/contiv-agent/contiv-agent/interop/kube/clusterdns"
	"github.com/contiv-agent/contiv-agent/interop/kube/kubelet"
	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// Names under which this program, or a test, is a part of a site.
const (
	partKubelet = "kube-kubelet"
	partDNS     = "kube-dns"
)

// Part is a part of a site if the command line names one, and does not return then. Every main function calls it first.
func Part() {
	netns.Main()
	if len(os.Args) < 2 {
		return
	}
	var err error
	switch os.Args[1] {
	case partKubelet:
		err = beKubelet(os.Args[2:])
	case partDNS:
		err = clusterdns.Run(context.Background())
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func beKubelet(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want a configuration file, have %q", args)
	}
	cfg, err := kubelet.Load(args[0])
	if err != nil {
		return err
	}
	k, err := kubelet.New(cfg, slog.New(slog.NewTextHandler(os.Stdout, nil)))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return k.Run(ctx)
}

// self is this program's file.
func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err) // Linux has it
	}
	return path
}

// images are what Pods can run, with this VPP.
func images(vpp string) []kubelet.Image {
	const agnhost, guestbook = "/agnhost", "/guestbook"
	return []kubelet.Image{
		{Names: []string{"agnhost", "registry.k8s.io/e2e-test-images/agnhost"}, Program: built.agnhost, Path: agnhost, Entrypoint: []string{agnhost}, Args: []string{"pause"}},
		{Names: []string{"pause", "registry.k8s.io/pause"}, Program: built.guestbook, Path: guestbook, Entrypoint: []string{guestbook, "pause"}},
		{Names: []string{"example/frontend"}, Program: built.guestbook, Path: guestbook, Entrypoint: []string{guestbook, "frontend"}},
		{Names: []string{"example/redis"}, Program: built.guestbook, Path: guestbook, Entrypoint: []string{guestbook}, Args: []string{"leader"}},
		{Names: []string{"example/client"}, Program: built.guestbook, Path: guestbook, Entrypoint: []string{guestbook}, Args: []string{"pause"}},
		{Names: []string{"example/kube-dns"}, Program: self(), Path: "/kube-dns", Entrypoint: []string{"/kube-dns", partDNS}},
		{Names: []string{"busybox"}, Entrypoint: []string{"sh"}},
		{Names: []string{"contiv-agent"}, Program: built.agent, Path: "/contiv-agent", Entrypoint: []string{"/contiv-agent"}},
		{Names: []string{"vpp"}, Program: vpp, Path: "/vpp", Entrypoint: []string{"/vpp"}},
	}
}

// apart is the environment variable of a process that has a mount namespace to itself.
const apart = "CONTIV_KUBE_APART"

// Apart gives this program a mount namespace, and begins it anew in it: names of network namespaces are mounts, which then end with the
// program's last process. It returns in the new life, or with what is missing.
func Apart() error {
	if os.Getenv(apart) != "" {
		return nil
	}
	if err := netns.Possible(); err != nil {
		return fmt.Errorf("%w; sudo make run KUBE=1, or within: unshare -Urnm", err)
	}
	return netns.Again(append(os.Environ(), apart+"=1"))
}
