package netns

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// A namespace exists by its name, has separate interfaces, and ends with the name and its processes.
func TestNamespace(t *testing.T) {
	if err := Possible(); err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "netns", "pod")
	if err := Make(file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Delete(file) })
	if err := Make(file); err == nil {
		t.Error("the same name twice")
	}
	if err := IP(file, "link add eth9 type veth peer name eth8\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := net.InterfaceByName("eth9"); err == nil {
		t.Error("eth9 is in this namespace")
	}
	var inside []net.Interface
	if err := Do(file, func() (err error) { inside, err = net.Interfaces(); return err }); err != nil || len(inside) != 3 || inside[0].Flags&net.FlagUp == 0 {
		t.Errorf("%v, %v", inside, err)
	}
	before, err := ID("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 50 { // also on the thread that the kernel takes for the process
		if err := Do(file, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := ID("/proc/self/ns/net"); err != nil || now != before {
		t.Error("the process shows the namespace as its own")
	}
	p := Program{Netns: file, Args: []string{"sleep", "1000"}, Env: os.Environ()}
	cmd, err := p.Start(func(*exec.Cmd) {})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		n, err := Kill(file)
		if err != nil || time.Since(begin) > time.Minute {
			t.Fatal(n, err)
		}
		if n > 0 {
			break
		}
	}
	if err := <-ended; err == nil {
		t.Error("the program ended by itself")
	}
	if err := Delete(file); err != nil {
		t.Error(err)
	}
	if err := Delete(file); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the name exists")
	}
}

// A command that ends with this process does not end with another thread of it.
func TestStart(t *testing.T) {
	if err := Possible(); err != nil {
		t.Skip(err)
	}
	for range 20 {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		if err := Start(cmd); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := Do("/proc/self/ns/net", func() error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Process.Kill() // it may have ended
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Fatalf("the command ended by itself: %v", err)
		}
	}
}

// A program has the file system, the host name and the environment that it is given, and no others.
func TestProgram(t *testing.T) {
	if err := Possible(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hello"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(r *Root, args ...string) (string, int) {
		t.Helper()
		var out bytes.Buffer
		p := Program{Root: r, Args: args, Env: []string{"PATH=/usr/bin:/bin", "WORD=a=b"}}
		cmd, err := p.Start(func(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = &out, &out })
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code says it
		return out.String(), cmd.ProcessState.ExitCode()
	}
	r := &Root{Dir: root, Hostname: "a-pod", Mounts: []Mount{{Source: "/proc", Target: "/proc"}, {Target: "/run", Type: "tmpfs"}, {Source: filepath.Join(dir, "hello"), Target: "/etc/hello", ReadOnly: true}}}
	for _, folder := range []string{"/usr", "/bin", "/lib", "/lib64"} {
		if _, err := os.Stat(folder); err == nil {
			r.Mounts = append(r.Mounts, Mount{Source: folder, Target: folder, ReadOnly: true})
		}
	}
	out, code := run(r, "sh", "-c", "cat /etc/hello; cat /proc/sys/kernel/hostname; echo $WORD $HOME; echo x > /run/x && ls /run /etc; echo x > /etc/hello")
	if want := "hello\na-pod\na=b\n/etc:\nhello\n\n/run:\nx\n"; !strings.HasPrefix(out, want) || code == 0 {
		t.Errorf("%q, want %q; exit code %d of a write to a file that is read only", out, want, code)
	}
	if left, _ := os.ReadDir(root); len(left) > 0 {
		t.Errorf("the root shows outside: %v", left)
	}
	if out, code := run(nil, "no-such-program"); code != 127 || !strings.Contains(out, "no-such-program") {
		t.Errorf("%q, %d", out, code)
	}
}
