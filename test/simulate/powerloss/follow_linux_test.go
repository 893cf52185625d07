package powerloss

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/atomicfile"
)

// endIn is the folder of TestEnding.
const endIn = "CONTIV_POWERLOSS_END"

// TestAsking is the process that Follow follows: it asks what a loss of power leaves of a file that it has synced and of one that it has not.
func TestAsking(t *testing.T) {
	dir, asks := os.Getenv(workIn), os.Getenv(AskIn)
	if asks == "" {
		t.Skip("TestFollow runs it")
	}
	synced, other := filepath.Join(dir, "synced"), filepath.Join(dir, "other")
	if err := errors.Join(atomicfile.Write(synced, []byte("a"), 0o600), os.WriteFile(other, []byte("b"), 0o600)); err != nil {
		t.Fatal(err)
	}
	expect := func(ask string, want map[string]string) {
		t.Helper()
		at := filepath.Join(asks, ask)
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if got := content(t, at); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", ask, got, want)
		}
	}
	both := map[string]string{"synced": "a", "other": "b"}
	expect("0-1-everything", both)
	expect("1-1-nothing", map[string]string{"synced": "a"})
	expect("2-1-names", map[string]string{"synced": "a", "other": ""})
	if err := errors.Join(atomicfile.SyncFolder(other), atomicfile.SyncFolder(dir)); err != nil {
		t.Fatal(err)
	}
	expect("1-2-nothing", both)
}

// TestEnding is a process that ends while its threads are in the midst of system calls.
func TestEnding(t *testing.T) {
	dir := os.Getenv(endIn)
	if dir == "" {
		t.Skip("TestFollowEnd runs it")
	}
	for i := range 8 {
		go func() {
			for {
				_ = os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte("a"), 0o600)
			}
		}()
	}
	time.Sleep(5 * time.Millisecond)
	os.Exit(0)
}

// A process may end while its threads are in the midst of system calls: that is no error.
func TestFollowEnd(t *testing.T) {
	for range 20 {
		dir := memory(t)
		env := []string{endIn + "=" + dir, "GOMAXPROCS=4", "GODEBUG=asyncpreemptoff=1", "TMPDIR=" + os.TempDir()}
		if err := Follow(dir, memory(t), slices.Concat(os.Args[:1], []string{"-test.run=^TestEnding$", "-test.count=1"}), env); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that asks in the midst of its work gets what a loss of power leaves at that moment. One that fails is an error.
func TestFollow(t *testing.T) {
	for _, test := range []struct {
		dir, asks string
		fails     bool
	}{{memory(t), memory(t), false}, {filepath.Join(memory(t), "missing"), memory(t), true}} {
		env := []string{workIn + "=" + test.dir, AskIn + "=" + test.asks, "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "TMPDIR=" + os.TempDir()}
		argv := slices.Concat(os.Args[:1], []string{"-test.run=^TestAsking$", "-test.count=1"})
		if err := Follow(test.dir, test.asks, argv, env); (err != nil) != test.fails {
			t.Errorf("%s: %v", test.dir, err)
		}
	}
}
