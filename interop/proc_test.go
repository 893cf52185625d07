package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/test/port"
)

// patience is how long anything may take that is expected to happen; a busy machine of CI is slow.
const patience = 30 * time.Second

// Process is a program that runs beside the test. Its output is kept, and printed if the test fails.
type Process struct {
	Name string
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	mu   sync.Mutex
	log  bytes.Buffer
	out  chan string
	done chan struct{}
	err  error // valid when done
}

// start runs a program until the test ends. Its standard output comes line by line from Line and is part of the log, unless
// cmd has another place for it.
func start(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Name: name, t: t, cmd: cmd, out: make(chan string, 1<<16), done: make(chan struct{})}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no orphan, whatever becomes of the test
	cmd.Stderr = p
	cmd.WaitDelay = 5 * time.Second
	var stdout io.Reader = strings.NewReader("")
	var err error
	if cmd.Stdout == nil {
		if stdout, err = cmd.StdoutPipe(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go p.live(stdout)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("---- %s ----\n%s", p.Name, p.Log())
		}
	})
	return p
}

// live reads lines until there are no more, and then waits for the end.
func (p *Process) live(stdout io.Reader) {
	for in := bufio.NewReader(stdout); ; {
		line, err := in.ReadString('\n')
		if line != "" {
			fmt.Fprint(p, line)
			select {
			case p.out <- strings.TrimSuffix(line, "\n"):
			default: // no reader waits; the lines are in the log
			}
		}
		if err != nil {
			break
		}
	}
	p.err = p.cmd.Wait()
	close(p.out)
	close(p.done)
}

// Write appends to the log; the process's own output comes here.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// Log returns the end of what the process wrote, without Felix's accounts of how it parses its parameters.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	const most = 20 << 10
	var out []byte
	for line := range bytes.Lines(p.log.Bytes()) {
		if !bytes.Contains(line, []byte("config_params.go")) && !bytes.Contains(line, []byte("param_types.go")) {
			out = append(out, line...)
		}
	}
	if len(out) > most {
		return "…" + string(out[len(out)-most:])
	}
	return string(out)
}

// Lines returns what the process wrote so far, the lines that contain any of these.
func (p *Process) Lines(any ...string) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range bytes.Lines(p.log.Bytes()) {
		if slices.ContainsFunc(any, func(part string) bool { return bytes.Contains(line, []byte(part)) }) {
			out = append(out, string(line))
		}
	}
	return out
}

// Send writes to the process's standard input.
func (p *Process) Send(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatalf("%s takes nothing more: %v", p.Name, err)
	}
}

// CloseInput ends the process's standard input.
func (p *Process) CloseInput() { p.in.Close() }

// Line returns the next line of the process's standard output.
func (p *Process) Line() string {
	p.t.Helper()
	select {
	case line, open := <-p.out:
		if !open {
			p.t.Fatalf("%s ended without a further line: %v", p.Name, p.err)
		}
		return line
	case <-time.After(patience):
		p.t.Fatalf("%s writes no line", p.Name)
	}
	return ""
}

// Running reports that the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait waits for the process's end and returns what it says of it.
func (p *Process) Wait() error {
	p.t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.Name)
		return nil
	}
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	if p.Running() {
		_ = p.cmd.Process.Signal(s) // it may have ended meanwhile; Wait reports that
	}
}

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// eventually asks again and again until there is no error left.
func eventually(t testing.TB, what string, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// freePort returns a TCP port without a listener.
func freePort(t testing.TB) int {
	t.Helper()
	return port.Free(t)
}

// toolchain builds the peers: with Go 1.26 json-iterator misreads Calico's labels, and what holds them runs out of memory.
const toolchain = "go1.25.4"

// scratch is a folder of this run.
var scratch string

// TestMain makes the folder and removes it.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "contiv-interop-")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var built sync.Map // name → func() (string, error), once each

// peer builds a program of Calico's or etcd's and returns its path: "calico-felix", "etcd", or a folder of peers. It stays
// in the user's cache, and is made again when its sources differ.
func peer(t testing.TB, name string) string {
	t.Helper()
	path := map[string]string{
		"calico-felix": "github.com/projectcalico/calico/felix/cmd/calico-felix",
		"etcd":         "go.etcd.io/etcd/server/v3",
	}[name]
	if path == "" {
		path = "./" + name
	}
	return binary(t, name, "peers", path, "GOTOOLCHAIN="+toolchain, "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -buildvcs=false", "CGO_ENABLED=0",
		"GONOSUMDB=github.com/projectcalico/*")
}

// product builds contiv-agent, as it is in this tree, and returns its path.
func product(t testing.TB) string {
	t.Helper()
	return binary(t, "contiv-agent", "..", "./cmd/contiv-agent", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly -buildvcs=false", "CGO_ENABLED=0")
}

func binary(t testing.TB, name, dir, path string, env ...string) string {
	t.Helper()
	build, _ := built.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		file := filepath.Join(cache, "contiv-agent", "interop", name)
		if dir == ".." { // two runs may be about two states of the product
			file = filepath.Join(scratch, name)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-ldflags=-s -w", "-o", file, path)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		fmt.Printf("built %s in %s\n", name, time.Since(began).Round(time.Second/10))
		return file, nil
	}))
	file, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return file
}
