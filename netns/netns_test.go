package netns

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// id is the namespace of this thread.
func id(t *testing.T) uint64 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		t.Error(err)
	}
	return st.Ino
}

// TestDo: a function runs in the namespace, no goroutine does afterwards, and errors come back.
func TestDo(t *testing.T) {
	var file *os.File
	missing := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			file, err = os.Open("/proc/thread-self/ns/net")
		}
		missing <- err
	}()
	if err := <-missing; err != nil {
		t.Skipf("needs root: %v", err)
	}
	defer file.Close()
	own, want := id(t), errors.New("of the function")
	for range 50 {
		there := own
		if err := Do(int(file.Fd()), func() error { there = id(t); return want }); !errors.Is(err, want) {
			t.Fatal(err)
		}
		if there == own || id(t) != own {
			t.Fatalf("the function ran in namespace %d, and the test is in %d, at first in %d", there, id(t), own)
		}
	}
	text, err := os.Open("netns.go")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if err := Do(int(text.Fd()), func() error { t.Error("called"); return nil }); err == nil {
		t.Error("a file that is no namespace: no error")
	}
}
