// Command make turns the commit of this tree into the files of a release.
//
//	make release VERSION=v1.2.3
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/contiv-agent/contiv-agent/release"
)

func main() {
	var c release.Config
	flag.StringVar(&c.Version, "version", "", "version, as v1.2.3 (default: the commit's tag, or v0.0.0-g and its commit)")
	flag.StringVar(&c.Out, "out", "dist", "folder of the files")
	flag.StringVar(&c.URL, "url", "", "where the files will be (default: GitHub's folder of the release)")
	arches := flag.String("arches", "amd64,arm64", "architectures")
	flag.Parse()
	c.Source, c.Log, c.Arches = ".", os.Stderr, strings.Split(*arches, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := describeCommit(ctx, &c); err != nil {
		fail(err)
	}
	if err := release.Make(ctx, c); err != nil {
		fail(err)
	}
	fmt.Printf("%s: release %s of commit %.12s\n", c.Out, c.Version, c.Revision)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "make release:", err)
	os.Exit(1)
}

// describeCommit completes a configuration from the commit.
func describeCommit(ctx context.Context, c *release.Config) error {
	changes, err := git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("the tree has changes; commit them first:\n%s", changes)
	}
	head, err := git(ctx, "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	commit, seconds, _ := strings.Cut(head, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	c.Revision, c.Time = commit, time.Unix(at, 0)
	if c.Version == "" {
		if c.Version, err = git(ctx, "describe", "--tags", "--exact-match"); err != nil {
			c.Version = fmt.Sprintf("v0.0.0-g%.12s", commit)
		}
	}
	if c.URL == "" {
		c.URL = "https://github.com/contiv-agent/contiv-agent/releases/download/" + c.Version
	}
	return nil
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
