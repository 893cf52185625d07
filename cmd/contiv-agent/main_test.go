package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/driver"
	"github.com/contiv-agent/contiv-agent/cmd/query"
	"github.com/contiv-agent/contiv-agent/test/port"
)

// TestMain lets tests run this program in separate processes, by each of its names.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"contiv-agent": main, driver.Program: main, query.PluginName: main, query.CompletionName: main})
}

// TestCommands runs testdata/*.txt: a user's input, and the program's output.
func TestCommands(t *testing.T) {
	examples, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// Other processes read the examples. They are inputs of this test, whose results the go command keeps, only if it reads them too.
	if err := filepath.WalkDir("../../examples", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			_, err = os.Stat(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples+"/../../examples")
			for _, name := range []string{"ADDR1", "ADDR2"} {
				env.Setenv(name, port.Address(env.T()))
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"answering": answering,
			"waitfor-file": func(ts *testscript.TestScript, _ bool, args []string) {
				until(ts, "file "+args[0], func() bool { _, err := os.Stat(ts.MkAbs(args[0])); return err == nil })
			},
			"waitfor-text": func(ts *testscript.TestScript, _ bool, args []string) {
				until(ts, "text "+args[1], func() bool { return anyHas(ts.MkAbs(args[0]), args[1]) })
			},
			"waitfor-service": func(ts *testscript.TestScript, _ bool, args []string) {
				socket := "a.sock"
				if len(args) > 0 && strings.HasSuffix(args[0], ".sock") {
					socket, args = args[0], args[1:]
				}
				until(ts, "agent in sync", func() bool { return knows(ts.MkAbs(socket), args) })
			},
			"exitcode": exitCode,
		},
	})
}

// exitCode runs a command that must end with an exit code: exitcode CODE COMMAND ARGUMENT…
func exitCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// until polls for an effect of another process.
func until(ts *testscript.TestScript, what string, done func() bool) {
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("timeout while waiting for %s", what)
		}
	}
}

// anyHas reports whether a file of a pattern contains a text.
func anyHas(pattern, text string) bool {
	paths, _ := filepath.Glob(pattern) // the test names a valid pattern
	return slices.ContainsFunc(paths, func(path string) bool {
		content, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(content), text)
	})
}

// knows reports whether the agent behind a socket is in sync and has the named Services configured.
func knows(socket string, names []string) bool {
	st, err := control.FetchStatus(context.Background(), socket, false)
	if err != nil || !st.InSync {
		return false
	}
	for _, name := range names {
		if !slices.ContainsFunc(st.Services, func(s status.Service) bool { return s.Name == name && s.State == "CONFIGURED" }) {
			return false
		}
	}
	return true
}

// answering is an agent that answers every request with the content of a file: answering SOCKET FILE.
func answering(ts *testscript.TestScript, _ bool, args []string) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", ts.MkAbs(args[0]))
	ts.Check(err)
	answer := ts.ReadFile(args[1])
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	ts.Defer(func() { _ = srv.Close(); <-done })
}
