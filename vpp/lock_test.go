package vpp

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func lockIn(dir, node string, parts ...string) *Lock {
	l := &Lock{Owner: Owner{PID: 12, Node: node, Command: "contiv-agent run"}}
	for _, p := range parts {
		l.Paths = append(l.Paths, filepath.Join(dir, "api.sock.owner-"+p))
	}
	return l
}

// running is a connection that runs until end is called.
func running(f *fake, l *Lock) (c *Conn, end func()) {
	c = New(Config{Dial: f.dial, Lock: l})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	return c, func() { cancel(); <-done }
}

// The second agent waits and names the owner. When the first ends, the second connects, with generation 1.
func TestLockHasOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFake(nil), t.TempDir()
		defer f.close()
		f.handle = handler
		first, endFirst := running(f, lockIn(dir, "node-1", "services", "policies"))
		time.Sleep(time.Second)
		second, endSecond := running(f, lockIn(dir, "node-1", "policies"))
		defer endSecond()
		other, endOther := running(f, lockIn(t.TempDir(), "node-1", "policies"))
		defer endOther()
		time.Sleep(10 * time.Second)
		if !first.State().Connected || !other.State().Connected {
			t.Errorf("first %+v, at another VPP %+v", first.State(), other.State())
		}
		st := second.State()
		if st.Connected || !errors.Is(st.Err, ErrOwned) || !strings.Contains(st.Err.Error(), "contiv-agent run, process 12 on node-1, since 2000-01-01T00:00:00Z") {
			t.Errorf("second: %+v", st)
		}
		if r := second.Do(t.Context(), cli("x"))[0]; !errors.Is(r.Err, ErrOwned) {
			t.Errorf("a call meanwhile: %v", r.Err)
		}
		path := filepath.Join(dir, "api.sock.owner-policies")
		if o, owned := FindOwner(path); !owned || o.Node != "node-1" {
			t.Errorf("owner %v %v", o, owned)
		}
		endFirst()
		time.Sleep(time.Second)
		if st := second.State(); !st.Connected || st.Generation != 1 {
			t.Errorf("second after the first: %+v", st)
		}
		if _, owned := FindOwner(filepath.Join(dir, "api.sock.owner-services")); owned {
			t.Error("the first still owns what it had alone")
		}
	})
}

// Agents that own different parts of VPP run beside each other.
func TestLockOfOtherParts(t *testing.T) {
	a, b := lockIn(t.TempDir(), "n", "services"), &Lock{}
	b.Paths = []string{strings.Replace(a.Paths[0], "services", "policies", 1)}
	defer a.unlockFiles()
	defer b.unlockFiles()
	if err := errors.Join(a.lockFiles(), b.lockFiles()); err != nil {
		t.Error(err)
	}
}

// A Lock takes all its files or none.
func TestLockTakesAllOrNone(t *testing.T) {
	dir := t.TempDir()
	a, both := lockIn(dir, "n", "policies"), lockIn(dir, "n", "services", "policies")
	defer a.unlockFiles()
	if err := a.lockFiles(); err != nil {
		t.Fatal(err)
	}
	if err := both.lockFiles(); !errors.Is(err, ErrOwned) || both.held != nil {
		t.Fatalf("%v, held %v", err, both.held)
	}
	if _, owned := FindOwner(both.Paths[0]); owned {
		t.Error("a part of what was not taken is held")
	}
}

// If the folder is replaced, as when VPP's service restarts, the owner locks the file in the new folder, or stops if
// another agent has locked it.
func TestLockOfAReplacedFolder(t *testing.T) {
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, dir := newFake(nil), t.TempDir()
			defer f.close()
			f.handle = handler
			c, end := running(f, lockIn(dir, "node-1", "services"))
			defer end()
			time.Sleep(1500 * time.Millisecond) // between two checks of the owner
			if err := os.Remove(filepath.Join(dir, "api.sock.owner-services")); err != nil {
				t.Fatal(err)
			}
			rival := lockIn(dir, "node-2", "services")
			defer rival.unlockFiles()
			if taken {
				if err := rival.lockFiles(); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(3 * time.Second)
			st := c.State()
			if st.Connected == taken || taken && !errors.Is(st.Err, ErrOwned) {
				t.Errorf("taken %t: %+v", taken, st)
			}
			if o, owned := FindOwner(rival.Paths[0]); !owned || (o.Node == "node-2") != taken {
				t.Errorf("taken %t: owner %v %v", taken, o, owned)
			}
		})
	}
}

// A missing folder means a VPP that has not started.
func TestLockWithoutAFolder(t *testing.T) {
	l := lockIn(filepath.Join(t.TempDir(), "none"), "n", "services")
	if err := l.lockFiles(); !errors.Is(err, errDial) {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Dir(l.Paths[0]), 0o755); err != nil {
		t.Fatal(err)
	}
	defer l.unlockFiles()
	if err := l.lockFiles(); err != nil {
		t.Error(err)
	}
}

// A link at the lock's path is not followed: the lock must not write to its target.
func TestLockFollowsNoLink(t *testing.T) {
	l, victim := lockIn(t.TempDir(), "n", "services"), filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), os.Symlink(victim, l.Paths[0])); err != nil {
		t.Fatal(err)
	}
	if err := l.lockFiles(); err == nil || !strings.Contains(err.Error(), "--vpp-lock") {
		t.Error(err)
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "precious" {
		t.Errorf("%q %v", b, err)
	}
}

// A parsed owner equals the written one, whatever else the file contains.
func FuzzOwner(f *testing.F) {
	f.Add([]byte(`{"pid":12,"node":"node-1","command":"contiv-agent run","since":"2026-01-02T15:04:05Z"}` + "\n"))
	f.Add([]byte(``))
	f.Add([]byte(`{"pid":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseOwner(b)
		if err != nil {
			return
		}
		text, err := json.Marshal(o)
		if err != nil {
			return // a year that JSON cannot express
		}
		if again, err := parseOwner(text); err != nil || again.String() != o.String() {
			t.Errorf("%q is %v, and written %v: %v", b, o, again, err)
		}
		path := filepath.Join(t.TempDir(), "lock")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l := &Lock{Paths: []string{path}, Owner: Owner{PID: 1}}
		if err := l.lockFiles(); err != nil {
			t.Fatal(err)
		}
		defer l.unlockFiles()
		if got, err := readOwner(path); err != nil || got.PID != 1 || slices.Contains([]byte(got.Node), 0) {
			t.Errorf("after %q: %v, %v", b, got, err)
		}
	})
}
