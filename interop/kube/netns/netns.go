// Package netns makes network namespaces with a name in the file system, as container runtimes do, and runs programs in them.
//
//	Make      a namespace whose file is its name: it exists until Delete, or until the mount namespace with the file ends
//	Do        a function of this program in a namespace, for sockets: a socket stays in the namespace that it was made in
//	Program   a separate program in a namespace, with a file system and a host name of its own if wanted
//
// Invariant: no function changes the namespaces of a thread that other goroutines use.
package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Make makes a network namespace with that file as its name. Its loopback interface is up.
func Make(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
	if err != nil {
		return err
	}
	_ = f.Close() // it is empty
	err = apart(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		if err := unix.Mount(own(), file, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("name a network namespace %s: %w", file, err)
		}
		return LoopbackUp()
	})
	if err != nil {
		return errors.Join(err, Delete(file))
	}
	return nil
}

// Delete removes the name. The namespace ends with its last process.
func Delete(file string) error {
	if err := unix.Unmount(file, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", file, err)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Do runs f in a namespace, on a separate thread.
func Do(file string, f func() error) error {
	return apart(func() error {
		if err := enter(file); err != nil {
			return err
		}
		return f()
	})
}

// apart runs f on a thread that ends with it.
func apart(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

func enter(file string) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Setns(fd, unix.CLONE_NEWNET)
		_ = unix.Close(fd) // it was read only
	}
	if err != nil {
		return fmt.Errorf("enter the network namespace %s: %w", file, err)
	}
	return nil
}

// own is the namespace of this thread, by the kernel's name.
func own() string { return fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()) }

// ID returns a number that no other namespace has.
func ID(file string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// LoopbackUp makes the loopback interface of the thread's namespace usable.
func LoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	return nil
}

// IP executes commands of iproute2 in a namespace, one in a line. The namespace "" is that of the program.
func IP(file, batch string) error {
	run := func() error {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(batch)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip -batch: %w: %s", err, out)
		}
		return nil
	}
	if file == "" {
		return run()
	}
	return Do(file, run)
}

// Set writes a setting of a namespace's network, a file in /proc/sys/net.
func Set(file, name, value string) error {
	return Do(file, func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}

// Kill ends every process of a namespace, and returns how many it found. A process may have begun others meanwhile: the caller repeats it
// until it finds none.
func Kill(file string) (int, error) {
	n := 0
	all, err := Processes(file, "")
	for _, pid := range all {
		if unix.Kill(pid, unix.SIGKILL) == nil {
			n++
		}
	}
	return n, err
}

// Processes returns the processes of a namespace without this one: those whose first argument names that program, in any folder; "": all.
func Processes(file, program string) (out []int, err error) {
	want, err := ID(file)
	if err != nil {
		return nil, err
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	for _, path := range all {
		id, err := ID(path)
		if err != nil || id != want {
			continue // it has ended, or is none of them
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty: it has ended
		name, _, _ := strings.Cut(string(args), "\x00")
		if program == "" || filepath.Base(name) == program {
			out = append(out, pid)
		}
	}
	return out, nil
}
