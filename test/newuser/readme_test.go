// Package newuser executes the first commands of the README, as a reader would.
package newuser

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// root is the folder of the README.
const root = "../.."

// patience is how long the agent may take to be ready, its build included.
const patience = 10 * time.Minute

// editor changes a node port, or the peers of a policy, in a file, as $EDITOR would.
const editor = "#!/bin/sh\nPATH=/usr/bin:/bin exec sed -i -e 's/nodePort: 30080/nodePort: 30082/' -e 's/podSelector: {}/podSelector: {matchLabels: {app: nobody}}/' \"$1\"\n"

// commands returns the commands of the first block of a section of the README.
func commands(t *testing.T, section string) []string {
	t.Helper()
	for _, b := range commandBlocks(t) {
		if b.page == "README.md" && b.section == section {
			return b.lines()
		}
	}
	t.Fatalf("no block of sh below %s", section)
	return nil
}

// user is a reader at a shell.
type user struct {
	t      *testing.T
	env    []string
	agent  *exec.Cmd     // nil: make run was not started yet
	ended  chan struct{} // closed when it ended
	output *os.File      // of it
}

// programs are those of a machine with Go and make only: the two, a shell, and coreutils. There is no git, no C compiler, no sed, awk or grep.
var programs = []string{
	"go", "make", "bash", "sh", "basename", "cat", "chmod", "cp", "cut", "date", "dirname", "env", "expr", "head", "hostname", "id", "install", "ln", "ls", "mkdir", "mktemp", "mv", "nproc",
	"printf", "pwd", "readlink", "realpath", "rm", "rmdir", "seq", "sleep", "sort", "stat", "tail", "tee", "test", "timeout", "touch", "tr", "true", "uname", "uniq", "wc",
}

// bare returns the environment of a new user on such a machine: no variables but those that say where Go's modules are, an empty home, and a PATH with nothing else.
// The build cache is empty with CONTIV_NEWUSER=cold, so that the times are those of a first build.
func bare(t *testing.T) (env []string) {
	t.Helper()
	dir := t.TempDir()
	bin, home := filepath.Join(dir, "bin"), filepath.Join(dir, "home")
	if err := errors.Join(os.Mkdir(bin, 0o700), os.Mkdir(home, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, name))
		}
		if err != nil && (name == "go" || name == "make" || name == "bash") {
			t.Fatal(err)
		}
	}
	env = []string{"PATH=" + bin, "HOME=" + home}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE", "GOPROXY", "GONOSUMDB", "GOSUMDB", "GOFLAGS", "GOTOOLCHAIN").Output()
	values := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if err != nil || len(values) != 7 {
		t.Fatalf("go env: %v\n%s", err, out)
	}
	for i, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GONOSUMDB", "GOSUMDB", "GOFLAGS", "GOTOOLCHAIN"} {
		if name == "GOCACHE" && os.Getenv("CONTIV_NEWUSER") == "cold" {
			values[i] = filepath.Join(dir, "cache")
		}
		env = append(env, name+"="+values[i])
	}
	return env
}

// TestReadme executes the commands of the README's section Try it, on a machine with Go and make only.
func TestReadme(t *testing.T) {
	if os.Getenv("CONTIV_NEWUSER") == "" {
		t.Skip("it builds the agent and listens at its usual addresses: make newuser")
	}
	dir := t.TempDir()
	edit := filepath.Join(dir, "editor")
	if err := os.WriteFile(edit, []byte(editor), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	u := &user{t: t, env: append(bare(t), "EDITOR="+edit), output: log}
	list := commands(t, "Try it")
	if len(list) < 10 {
		t.Fatalf("only %d commands: %q", len(list), list)
	}
	u.keepFiles(list)
	defer u.stop()
	for _, command := range list {
		began, committed := time.Now(), u.committed()
		code := u.do(command)
		if strings.HasPrefix(command, "$EDITOR examples/") {
			u.awaitLine(committed)
		}
		if text := u.said(); bytes.Contains(text, []byte("command not found")) {
			t.Fatalf("%s needs more than Go and make:\n%s", command, text)
		}
		if strings.Contains(command, "--diff") && code != 3 {
			t.Errorf("%s: exit code %d: it does not see the edit", command, code)
		}
		t.Logf("%-8s exit code %d  %s", time.Since(began).Round(10*time.Millisecond), code, command)
		if _, comment, _ := strings.Cut(command, "#"); code != 0 && (code != 3 || !strings.Contains(comment, "xit code 3") && !strings.Contains(command, "--diff") && !strings.Contains(command, " diff ")) {
			t.Errorf("%s: exit code %d", command, code)
		}
	}
}

// keepFiles restores the files that commands edit.
func (u *user) keepFiles(list []string) {
	for _, command := range list {
		name, edits := strings.CutPrefix(command, "$EDITOR ")
		name, _, _ = strings.Cut(name, " ")
		path := filepath.Join(root, name)
		text, err := os.ReadFile(path)
		if !edits || err != nil { // a copy that a command makes
			continue
		}
		u.t.Cleanup(func() {
			if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // as it was
				u.t.Error(err)
			}
		})
	}
	u.t.Cleanup(func() { os.RemoveAll(filepath.Join(root, "my-guestbook")) })
}

// do executes a command and returns its exit code.
func (u *user) do(command string) int {
	if strings.HasPrefix(command, "make run") {
		return u.start(command)
	}
	cmd := u.shell(command)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if exit.ExitCode() != 3 {
			u.t.Logf("%s\n%s", command, out)
		}
		return exit.ExitCode()
	case err != nil:
		u.t.Fatal(err)
	case len(out) == 0 && !strings.HasPrefix(command, "cp ") && !strings.HasPrefix(command, "$EDITOR"):
		u.t.Errorf("%s: no output", command)
	}
	return 0
}

func (u *user) shell(command string) *exec.Cmd {
	cmd := exec.CommandContext(u.t.Context(), "bash", "-o", "pipefail", "-c", command)
	cmd.Dir, cmd.Env = root, u.env
	return cmd
}

// start starts a command in the background and waits until the agent is healthy.
func (u *user) start(command string) int {
	u.agent, u.ended = u.shell(command), make(chan struct{})
	u.agent.Stdout, u.agent.Stderr = u.output, u.output
	u.agent.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := u.agent.Start(); err != nil {
		u.t.Fatal(err)
	}
	go func() {
		defer close(u.ended)
		_ = u.agent.Wait()
	}()
	for deadline := time.Now().Add(patience); u.shell("bin/contiv-agent status").Run() != nil; {
		select {
		case <-u.ended:
			u.t.Fatalf("%s ended:\n%s", command, u.said())
		case <-time.After(200 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			u.t.Fatalf("%s: not healthy:\n%s", command, u.said())
		}
	}
	return 0
}

// committed is the number of the agent's lines about transactions.
func (u *user) committed() int { return bytes.Count(u.said(), []byte("msg=committed")) }

// awaitLine waits until the agent logs one line more, about its change of VPP.
func (u *user) awaitLine(before int) {
	for deadline := time.Now().Add(time.Minute); u.committed() == before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			u.t.Fatalf("the agent does not follow the edit:\n%s", u.said())
		}
	}
}

func (u *user) said() []byte {
	text, _ := os.ReadFile(u.output.Name())
	return text
}

// stop ends the agent, as Ctrl-C does: every process of the terminal gets the signal.
func (u *user) stop() {
	if u.agent == nil {
		return
	}
	_ = syscall.Kill(-u.agent.Process.Pid, syscall.SIGINT)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	select {
	case <-u.ended:
	case <-ctx.Done():
		u.t.Errorf("Ctrl-C does not end the agent:\n%s", u.said())
		_ = syscall.Kill(-u.agent.Process.Pid, syscall.SIGKILL)
	}
}
