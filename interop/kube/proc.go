package kube

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
	"github.com/contiv-agent/contiv-agent/test/port"
)

// patience is how long anything may take that is expected to happen; a busy machine of CI is slow.
const patience = 5 * time.Minute

// tb is what the parts of a cluster need from their test or program: Fatalf does not return, and Cleanup ends the parts.
type tb interface {
	Helper()
	Context() context.Context
	TempDir() string
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// process is a program that runs beside the test. Its output is kept, and the end of it printed if the test fails.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.Closer
	done chan struct{}

	mu   sync.Mutex
	log  bytes.Buffer
	echo io.Writer // gets what it writes as well; nil: nobody
}

// start runs a program until the test ends. It is killed with the test, whatever becomes of that.
func start(t tb, name string, cmd *exec.Cmd) *process {
	t.Helper()
	return watch(t, name, func(complete func(*exec.Cmd)) (*exec.Cmd, error) {
		complete(cmd)
		return cmd, netns.Start(cmd)
	})
}

// launch is start of a program in a network namespace.
func launch(t tb, name string, program netns.Program) *process {
	t.Helper()
	return watch(t, name, program.Start)
}

func watch(t tb, name string, begin func(complete func(*exec.Cmd)) (*exec.Cmd, error)) *process {
	t.Helper()
	p := &process{name: name, done: make(chan struct{})}
	var failed, err error
	p.cmd, err = begin(func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // only the parent process gets a Ctrl-C
		cmd.Stdout, cmd.Stderr = p, p
		cmd.WaitDelay = 5 * time.Second
		p.in, failed = cmd.StdinPipe() // some end with it
	})
	if err := errors.Join(failed, err); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended shows in its log
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("---- %s ----\n%s", p.name, p.tail())
			p.keep(t)
		}
	})
	return p
}

// Write keeps what the process writes.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.echo != nil {
		_, _ = p.echo.Write(b) // the reader has ended
	}
	return p.log.Write(b)
}

// show passes on what the process writes from now on.
func (p *process) show(w io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.echo = w
}

// tail is the end of what it wrote.
func (p *process) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.log.Bytes()
	if most := 4 << 10; len(b) > most {
		b = b[len(b)-most:]
	}
	return string(b)
}

// all is what it wrote.
func (p *process) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// logsTo is the folder the whole logs of a failed test's processes are kept in; unset: nowhere.
const logsTo = "CONTIV_KUBE_LOGS"

// keep writes the whole log where people want it.
func (p *process) keep(t tb) {
	dir := os.Getenv(logsTo)
	if dir == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	file := filepath.Join(dir, fmt.Sprintf("%s-%d.log", strings.ReplaceAll(p.name, " ", "-"), p.pid()))
	if err := os.WriteFile(file, p.log.Bytes(), 0o600); err != nil {
		t.Errorf("log of %s: %v", p.name, err)
	}
}

// wrote reports whether it has written that text.
func (p *process) wrote(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.log.Bytes(), []byte(text))
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// running is an error once the process has ended.
func (p *process) running() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s has ended:\n%s", p.name, p.tail())
	default:
		return nil
	}
}

// eventually asks again and again until there is no error left; a process that has ended ends the wait.
func eventually(t tb, what string, ask func() error, needs ...*process) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		over := t.Context().Err()
		for _, p := range needs {
			over = cmp.Or(over, p.running())
		}
		switch {
		case over != nil:
			err = over
		case time.Now().Before(deadline):
			continue
		}
		t.Fatalf("%s", blame("%s: %v", what, err))
	}
}

// lastWords are why the first tests failed. The logs of processes come after the failure, and some see only the end of what was written.
var lastWords struct {
	mu  sync.Mutex
	all []string
}

// blame makes a text of it, which is said again after the logs if it is among the first.
func blame(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	lastWords.mu.Lock()
	defer lastWords.mu.Unlock()
	if len(lastWords.all) < 3 {
		lastWords.all = append(lastWords.all, text)
	}
	return text
}

// repeat says again what was blamed at the end of a test that failed, if it is called before any process is started. Tests that run
// beside it may be among those that are blamed.
func repeat(t tb) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		lastWords.mu.Lock()
		defer lastWords.mu.Unlock()
		for _, text := range lastWords.all {
			t.Logf("---- failed ----\n%s", text)
		}
	})
}

// freePort returns a TCP port without a listener.
func freePort(t tb) int {
	t.Helper()
	return port.Free(t)
}

// get returns what a page says; an answer other than 200 is an error.
func get(url string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), err
}

// shortDir is a folder for unix sockets, whose names are short.
func shortDir(t tb) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "contiv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a leftover in the temporary folder harms nobody
	return dir
}
