// Package netns turns a function into one that runs in another network namespace. A socket stays in the namespace that it was made in.
//
// Invariant: no goroutine gets a thread that is in another namespace than the process. A thread that cannot return ends with its goroutine.
package netns

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do runs f on a thread in the namespace of an open file, and returns f's error. f is not called if the namespace cannot be entered.
func Do(namespace int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		back, err := in(namespace, f)
		if back {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// in runs f in the namespace; back: the thread is in its own namespace.
func in(namespace int, f func() error) (back bool, err error) {
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, os.NewSyscallError("open the thread's network namespace", err)
	}
	defer unix.Close(own)
	if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
		return true, os.NewSyscallError("enter the network namespace", err)
	}
	err = f()
	return unix.Setns(own, unix.CLONE_NEWNET) == nil, err
}
