package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Program is a program and its surroundings.
type Program struct {
	Netns string   // file of its network namespace; "": that of the caller
	Root  *Root    // its file system; nil: that of the caller
	Dir   string   // working directory; "": the root's, or the caller's
	Args  []string // the program and its arguments; the program is looked for in the PATH of Env
	Env   []string
}

// Root is a file system that the program alone sees, besides a host name.
type Root struct {
	Dir      string // an empty folder; the file system is mounted there
	Hostname string
	Mounts   []Mount
}

// Mount is a folder or a file of the caller in a Root, or a new file system.
type Mount struct {
	Source   string // "": a new file system of that type
	Target   string // an absolute path in the Root; it is made
	Type     string // of a new file system
	ReadOnly bool
}

// entering is the name under which this program sets up the surroundings of another one and becomes it.
const entering = "netns-enter"

// Exit codes of a program that cannot be started, as of a shell.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// Start starts the program. The caller completes the command, which has one extra file. Main must be called by the main function of this
// program.
func (p Program) Start(complete func(*exec.Cmd)) (*exec.Cmd, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(entering, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), entering) //nolint:gosec // a file descriptor
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, 0); err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.ExtraFiles = []string{entering}, []*os.File{f}
	complete(cmd)
	return cmd, Start(cmd)
}

// starting gets commands for the thread that starts them.
var starting = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread() // no other goroutine gets the thread, and it never ends
		for f := range work {
			f()
		}
	}()
	return work
})

// Start starts a command from a thread that lives as long as this process. The kernel sends Pdeathsig when the thread that started the command
// ends, not the process; and a thread ends with each Do.
func Start(cmd *exec.Cmd) error {
	err := make(chan error)
	starting() <- func() { err <- cmd.Start() }
	return <-err
}

// Main becomes the program of a Program.Start if this process is one. Otherwise it returns, and keeps the main thread for the caller: Go ends
// no main thread, so one that had entered a namespace would hold it for ever, and show it as the namespace of the whole process.
func Main() {
	runtime.LockOSThread()
	if len(os.Args) == 0 || os.Args[0] != entering {
		return
	}
	var p Program
	f := os.NewFile(3, entering)
	err := json.NewDecoder(f).Decode(&p)
	_ = f.Close() // it was read only
	code := codeNotExecutable
	if err == nil {
		code, err = p.become()
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(code)
}

// become returns only if it fails.
func (p *Program) become() (code int, err error) {
	if len(p.Args) == 0 {
		return codeNotFound, errors.New("no program")
	}
	if p.Netns != "" {
		if err := enter(p.Netns); err != nil {
			return codeNotExecutable, err
		}
	}
	if p.Root != nil {
		if err := p.Root.enter(); err != nil {
			return codeNotExecutable, err
		}
	}
	if p.Dir != "" {
		if err := unix.Chdir(p.Dir); err != nil {
			return codeNotExecutable, fmt.Errorf("working directory %s: %w", p.Dir, err)
		}
	}
	os.Clearenv()
	for _, e := range p.Env {
		for i := range e {
			if e[i] == '=' {
				_ = os.Setenv(e[:i], e[i+1:]) // it came from an environment
				break
			}
		}
	}
	path, err := exec.LookPath(p.Args[0])
	if err != nil {
		return codeNotFound, err
	}
	return codeNotExecutable, fmt.Errorf("%s: %w", path, syscall.Exec(path, p.Args, p.Env)) //nolint:gosec // the purpose
}

// enter makes the file system and changes to it.
func (r *Root) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	if err := SeparateMounts(); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", r.Dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a root: %w", err)
	}
	for _, m := range r.Mounts {
		if err := m.mount(r.Dir); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	if err := unix.Chroot(r.Dir); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return unix.Sethostname([]byte(r.Hostname))
}

// SeparateMounts keeps mounts of a new mount namespace from the namespace that it is a copy of.
func SeparateMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	return nil
}

func (m *Mount) mount(root string) error {
	target := filepath.Join(root, m.Target)
	if m.Source == "" {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		return unix.Mount(m.Type, target, m.Type, 0, "")
	}
	if err := m.place(target); err != nil {
		return err
	}
	if err := unix.Mount(m.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if m.ReadOnly {
		return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

// place makes the file or folder that is mounted on.
func (m *Mount) place(target string) error {
	st, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	if st.IsDir() {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		if _, there := os.Stat(target); there == nil { // of a file system that is read only
			return nil
		}
		return err
	}
	return f.Close()
}

// Possible returns why this process cannot make nodes and Pods; nil: it can.
func Possible() error {
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("the program ip (iproute2) is missing: %w", err)
	}
	err := apart(func() error { return unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS) })
	if err != nil {
		return fmt.Errorf("network namespaces, veth pairs and packet sockets need root (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW): %w", err)
	}
	return nil
}

// Again begins this program anew in a separate mount namespace, with that environment. It returns only if it fails.
func Again(env []string) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := SeparateMounts(); err != nil {
		return err
	}
	path, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(path, os.Args, env) //nolint:gosec // this program
}
