package powerloss

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kind is what an Op does.
type Kind string

// The kinds of operations.
const (
	Create   Kind = "create" // an empty file
	Folder   Kind = "mkdir"
	Write    Kind = "write"
	Truncate Kind = "truncate" // to At bytes
	Rename   Kind = "rename"   // to To
	Link     Kind = "link"     // To is a further name
	Remove   Kind = "remove"
	Sync     Kind = "sync" // of a file or of a folder's names
	Say      Kind = "say"  // Data to standard output
)

// Op is what a process did to a file or folder, by its path below the traced folder.
type Op struct {
	Kind     Kind
	Path, To string
	At       int64
	Data     []byte
}

// String returns "write store.db: 4096 bytes at 8192".
func (o Op) String() string {
	switch o.Kind {
	case Write:
		return fmt.Sprintf("write %s: %d bytes at %d", o.Path, len(o.Data), o.At)
	case Truncate:
		return fmt.Sprintf("truncate %s: to %d bytes", o.Path, o.At)
	case Say:
		return fmt.Sprintf("say %q", o.Data)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", o.Kind, o.Path, o.To))
}

// call is a system call that a thread has begun.
type call struct {
	nr      uint64
	args    [6]uint64
	existed bool // the file that it opens
}

// tracer follows the threads of one process.
type tracer struct {
	dir     string
	ops     []Op
	disk    *Disk        // instead of ops; nil: none
	asks    string       // the folder of Follow
	pending map[int]call // by thread
}

// Flags of wait4 and of ptrace that package unix does not have under a name.
const (
	stopOfCall   = syscall.SIGTRAP | 0x80 // with PTRACE_O_TRACESYSGOOD
	callEntry    = 1                      // PTRACE_SYSCALL_INFO_ENTRY
	callExit     = 2                      // PTRACE_SYSCALL_INFO_EXIT
	syscallInfo  = 0x420e                 // PTRACE_GET_SYSCALL_INFO
	standardOut  = 1
	traceOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
)

// Trace runs a command and returns what it did below dir, and what it wrote to standard output, in order. The command uses absolute paths. It is an error if it fails.
func Trace(dir string, argv, env []string) ([]Op, error) {
	t := &tracer{dir: dir, pending: map[int]call{}}
	err := t.runCommand(argv, env, nil)
	return t.ops, err
}

// Follow runs a command until its end, and keeps what a disk would have of the files that it writes below dir. If the command makes a folder ASKS/LOSS-SEED-…, with the number of a
// Loss and of a seed, then this folder has what a loss of power at that moment leaves of dir, before the command continues. The command writes to standard output.
func Follow(dir, asks string, argv, env []string) error {
	disk, err := NewDisk(nil)
	if err != nil {
		return err
	}
	t := &tracer{dir: dir, asks: asks, disk: disk, pending: map[int]call{}}
	return t.runCommand(argv, env, os.Stdout)
}

// runCommand runs a command to its end; out is its standard output, nil: none.
func (t *tracer) runCommand(argv, env []string, out *os.File) error {
	runtime.LockOSThread() // ptrace knows threads
	defer runtime.UnlockOSThread()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	if out == nil {
		out = null
	}
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Env: env, Files: []*os.File{null, out, os.Stderr}, Sys: &syscall.SysProcAttr{Ptrace: true}})
	if err != nil {
		return err
	}
	err = t.follow(p.Pid)
	if err != nil {
		_ = p.Kill()
	}
	return errors.Join(err, p.Release())
}

// answer fills a folder that asks for the disk.
func (t *tracer) answer(tid int, c call) error {
	path, err := t.pathOf(tid, c.args[0], c.args[1])
	if err != nil || t.asks == "" || filepath.Dir(path) != t.asks {
		return err
	}
	var loss Loss
	var seed uint64
	if _, err := fmt.Sscanf(filepath.Base(path), "%d-%d-", &loss, &seed); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return t.disk.Restore(path, loss, rand.New(rand.NewPCG(seed, 1)))
}

// follow handles all stops of the process until its end.
func (t *tracer) follow(pid int) error {
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
		return fmt.Errorf("the start of the process: %w", err)
	}
	if err := syscall.PtraceSetOptions(pid, traceOptions); err != nil {
		return fmt.Errorf("options of ptrace: %w", err)
	}
	for tid, signal := pid, 0; ; {
		if err := syscall.PtraceSyscall(tid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("ptrace: %w", err)
		}
		var err error
		for signal = 0; ; {
			if tid, err = syscall.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil); err != nil {
				return fmt.Errorf("wait for the process: %w", err)
			}
			if ws.Stopped() {
				break
			}
			if tid == pid {
				if ws.ExitStatus() != 0 {
					return fmt.Errorf("the process ended with %d, signal %v", ws.ExitStatus(), ws.Signal())
				}
				return nil
			}
		}
		switch s := ws.StopSignal(); {
		case s == stopOfCall:
			if err := t.handleStop(tid); err != nil {
				return err
			}
		case s != syscall.SIGTRAP && s != syscall.SIGSTOP: // those of ptrace itself
			signal = int(s)
		}
	}
}

// handleStop handles the begin or the end of a system call. The process may end meanwhile, which wakes and kills the thread: what could not be read of it then is no error.
func (t *tracer) handleStop(tid int) error {
	err := t.handleCall(tid)
	if err != nil {
		if _, gone := readCall(tid); errors.Is(gone, syscall.ESRCH) {
			return nil
		}
	}
	return err
}

// readCall reads a struct ptrace_syscall_info; the error is ESRCH if the thread does not stand any more.
func readCall(tid int) (info [88]byte, err error) {
	if _, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, syscallInfo, uintptr(tid), uintptr(len(info)), uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		return info, errno
	}
	return info, nil
}

func (t *tracer) handleCall(tid int) error {
	info, err := readCall(tid)
	if err != nil {
		return fmt.Errorf("ptrace: %w", err)
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(info[24+8*i:]) }
	switch info[0] {
	case callEntry:
		c := call{nr: word(0)}
		for i := range c.args {
			c.args[i] = word(1 + i)
		}
		if c.nr == unix.SYS_OPENAT {
			if path, err := t.pathOf(tid, c.args[0], c.args[1]); err == nil {
				_, err := os.Lstat(path)
				c.existed = err == nil
			}
		}
		t.pending[tid] = c
	case callExit:
		if result := int64(word(0)); result >= 0 { //nolint:gosec // a negative errno
			return t.noteCall(tid, t.pending[tid], result)
		}
	}
	return nil
}

// noteCall records a call that succeeded.
func (t *tracer) noteCall(tid int, c call, result int64) error {
	switch c.nr {
	case unix.SYS_OPENAT:
		return t.noteOpen(tid, c)
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		return t.noteWrite(tid, c, result)
	case unix.SYS_FTRUNCATE:
		return t.appendFile(tid, c, Op{Kind: Truncate, At: int64(c.args[1])}) //nolint:gosec // a length
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		return t.appendFile(tid, c, Op{Kind: Sync})
	case unix.SYS_MKDIRAT:
		return errors.Join(t.appendPath(tid, c, Op{Kind: Folder}), t.answer(tid, c))
	case unix.SYS_UNLINKAT:
		return t.appendPath(tid, c, Op{Kind: Remove})
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		return t.appendPair(tid, c, Rename)
	case unix.SYS_LINKAT:
		return t.appendPair(tid, c, Link)
	case unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_FALLOCATE, unix.SYS_COPY_FILE_RANGE, unix.SYS_SENDFILE, unix.SYS_TRUNCATE:
		return fmt.Errorf("system call %d is not modelled", c.nr)
	}
	return nil
}

func (t *tracer) noteOpen(tid int, c call) error {
	if c.args[2]&unix.O_CREAT != 0 && !c.existed {
		return t.appendPath(tid, c, Op{Kind: Create})
	}
	if c.args[2]&unix.O_TRUNC != 0 {
		return t.appendPath(tid, c, Op{Kind: Truncate})
	}
	return nil
}

func (t *tracer) noteWrite(tid int, c call, n int64) error {
	data := make([]byte, n)
	if err := readMemory(tid, data, c.args[1]); err != nil {
		return err
	}
	if c.nr == unix.SYS_WRITE && c.args[0] == standardOut {
		if t.disk == nil {
			t.ops = append(t.ops, Op{Kind: Say, Data: data})
		}
		return nil
	}
	at := int64(c.args[3]) //nolint:gosec // an offset
	if c.nr == unix.SYS_WRITE {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", tid, c.args[0]))
		if err != nil {
			return err
		}
		if _, err := fmt.Sscanf(string(text), "pos: %d", &at); err != nil {
			return fmt.Errorf("position of a file: %w", err)
		}
		at -= n // the position is that after the write
	}
	return t.appendFile(tid, c, Op{Kind: Write, At: at, Data: data})
}

// appendFile adds an operation on the file that a call names by its first argument.
func (t *tracer) appendFile(tid int, c call, o Op) error {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, c.args[0]))
	if err != nil {
		return err
	}
	return t.appendOp(o, path, "")
}

// appendPath adds an operation on the path that a call names by its first two arguments.
func (t *tracer) appendPath(tid int, c call, o Op) error {
	path, err := t.pathOf(tid, c.args[0], c.args[1])
	if err != nil {
		return err
	}
	return t.appendOp(o, path, "")
}

func (t *tracer) appendPair(tid int, c call, kind Kind) error {
	from, err := t.pathOf(tid, c.args[0], c.args[1])
	if err != nil {
		return err
	}
	to, err := t.pathOf(tid, c.args[2], c.args[3])
	if err != nil {
		return err
	}
	return t.appendOp(Op{Kind: kind}, from, to)
}

// appendOp adds an operation, if its path is below the folder.
func (t *tracer) appendOp(o Op, path, to string) error {
	below := func(path string) string {
		rel, err := filepath.Rel(t.dir, path)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			return ""
		}
		return rel
	}
	if o.Path, o.To = below(path), below(to); o.Path == "" {
		return nil
	}
	if (o.Kind != Sync || t.disk != nil) && strings.HasSuffix(path, " (deleted)") {
		return nil // nobody finds it again
	}
	if to != "" && filepath.Dir(o.To) != filepath.Dir(o.Path) {
		return fmt.Errorf("%s: between two folders, which is not modelled", o)
	}
	if t.disk != nil {
		if err := t.disk.apply(o); err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
		return nil
	}
	t.ops = append(t.ops, o)
	return nil
}

// pathOf returns the path that a call names by a folder's descriptor and a text in the process's memory.
func (t *tracer) pathOf(tid int, folder, text uint64) (string, error) {
	var b [unix.PathMax]byte
	n := 0
	for ; n < len(b); n++ { // a text may end with its page
		if err := readMemory(tid, b[n:n+1], text+uint64(n)); err != nil { //nolint:gosec // n < PathMax
			return "", err
		}
		if b[n] == 0 {
			break
		}
	}
	path := string(b[:n])
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	if int32(folder) == unix.AT_FDCWD { //nolint:gosec // an int of C
		dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", tid))
		return filepath.Join(dir, path), err
	}
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, folder))
	return filepath.Join(dir, path), err
}

// readMemory reads a thread's memory.
func readMemory(tid int, b []byte, at uint64) error {
	if len(b) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	remote := []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}
	if n, err := unix.ProcessVMReadv(tid, local, remote, 0); err != nil || n != len(b) {
		return fmt.Errorf("memory of the process: %d of %d bytes: %w", n, len(b), err)
	}
	return nil
}
