package kube

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// version is Kubernetes'; peers/go.mod has the same.
const version = "v1.36.3"

// programs are the files of what runs here, and the folder of this run.
type programs struct {
	cluster, proxy, agnhost  string // from peers: paths in the user's cache
	agent, plugin, guestbook string // of this tree
	scratch                  string
}

var built programs // by build

// at returns the paths of programs: those of peers in the cache, those of this tree in a folder.
func at(cache, own, scratch string) programs {
	return programs{
		cluster: filepath.Join(cache, "cluster"), proxy: filepath.Join(cache, "kube-proxy"), agnhost: filepath.Join(cache, "agnhost"),
		agent: filepath.Join(own, "contiv-agent"), plugin: filepath.Join(own, "contiv-cni"), guestbook: filepath.Join(own, "guestbook"), scratch: scratch,
	}
}

// peers are the packages of programs that are built from the module of peers.
var peers = map[string]string{
	"cluster": "./cluster", "kube-proxy": "./kube-proxy", "agnhost": "k8s.io/kubernetes/test/images/agnhost",
}

// cached is the folder of the user's cache for programs built from this version of peers. Folders of other versions may
// belong to another checkout.
func cached() (string, error) {
	return cacheOf(version, "peers", "go.mod", "go.sum", "cluster/main.go", "kube-proxy/main.go")
}

// cacheOf is the folder of the user's cache for what is built from files of a folder. Its name has the prefix and a hash of the files.
func cacheOf(prefix, folder string, files ...string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range files {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(b), b)
	}
	return filepath.Join(dir, "contiv-agent", "kube", fmt.Sprintf("%s-%x", prefix, sum.Sum(nil)[:8])), nil
}

// stamped are the flags by which a program of Kubernetes knows its version.
const stamped = "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=" + version + " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"

// buildPeers makes those peers that the cache does not have. The flags are the same for all: they share what is compiled.
func buildPeers(ctx context.Context, say io.Writer, cache string, names ...string) error {
	for _, name := range names {
		file := filepath.Join(cache, name)
		if _, err := os.Stat(file); err == nil {
			continue
		}
		b := &building{say: say, dir: "peers", file: file, path: peers[name], flags: []string{"-tags", "grpcnotrace", stamped}}
		if err := b.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readonly lets no build change the product's go.mod.
var readonly = []string{"GOFLAGS=" + os.Getenv("GOFLAGS") + " -mod=readonly -buildvcs=false"}

// buildOwn makes the programs of this tree in the scratch folder, with the flags of make build: what that has compiled is not compiled again.
func buildOwn(ctx context.Context, say io.Writer, scratch string) error {
	for _, b := range []*building{
		{dir: "../..", file: filepath.Join(scratch, "contiv-agent"), path: "./cmd/contiv-agent", flags: []string{"-tags", "grpcnotrace", "-ldflags=-w"}, env: readonly},
		{dir: "../..", file: filepath.Join(scratch, "contiv-cni"), path: "./cmd/contiv-cni", flags: []string{"-ldflags", "-s -w"}, env: readonly},
		{dir: ".", file: filepath.Join(scratch, "guestbook"), path: "./guestbook", flags: []string{"-tags", "grpcnotrace"}},
	} {
		b.say = say
		if err := b.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// building is one go build, and says how far it is.
type building struct {
	say             io.Writer
	dir, file, path string
	flags, env      []string

	mu   sync.Mutex
	done int    // packages compiled
	last string // of them
	text bytes.Buffer
}

// sayEvery is how often progress is reported.
const sayEvery = 10 * time.Second

// run builds the program beside its place and then moves it there, so that one that was interrupted is none.
func (b *building) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	name, half := filepath.Base(b.file), fmt.Sprintf("%s.%d", b.file, os.Getpid())
	if err := os.MkdirAll(filepath.Dir(b.file), 0o755); err != nil {
		return err
	}
	cmd := b.command(ctx, append(append([]string{"build", "-v"}, b.flags...), "-o", half, b.path)...)
	cmd.Stdout, cmd.Stderr = b, b
	began, ended := time.Now(), make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() { b.report(ctx, name, began, ended) })
	err := cmd.Run()
	close(ended)
	reporting.Wait()
	if err != nil {
		return errors.Join(fmt.Errorf("build %s: %w\n%s", b.path, err, b.text.Bytes()), os.RemoveAll(half))
	}
	fmt.Fprintf(b.say, "built %s in %s (%d packages compiled)\n", name, time.Since(began).Round(time.Second/10), b.done)
	return os.Rename(half, b.file)
}

func (b *building) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = b.dir, append(append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -buildvcs=false", "CGO_ENABLED=0"), b.env...)
	return cmd
}

// Write counts the packages that go build -v names as it compiles them.
func (b *building) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, " ") {
			b.done, b.last = b.done+1, line
		}
	}
	return b.text.Write(p)
}

// report prints the progress until the build has ended. Packages in the build cache are not counted, so the number of all packages is an upper bound.
func (b *building) report(ctx context.Context, name string, began time.Time, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-time.After(time.Second):
	}
	kept := ""
	if b.dir == "peers" {
		kept = "; it takes minutes, and is kept in the user's cache"
	}
	fmt.Fprintf(b.say, "building %s%s\n", name, kept)
	all := 0
	if out, err := b.command(ctx, "list", "-deps", b.path).Output(); err == nil {
		all = bytes.Count(out, []byte("\n"))
	}
	for {
		select {
		case <-ended:
			return
		case <-time.After(sayEvery):
		}
		b.mu.Lock()
		done, last := b.done, b.last
		b.mu.Unlock()
		fmt.Fprintf(b.say, "building %s, %s: %d of at most %d packages compiled, now %s\n", name, time.Since(began).Round(time.Second), done, all, last)
	}
}
