package vpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// ErrOwned means that another agent owns the VPP, or the part of it that this agent would program.
var ErrOwned = errors.New("another agent owns this VPP")

// Owner describes the holder of a Lock; its JSON is the content of the lock file.
type Owner struct {
	PID     int       `json:"pid"` // in its own PID namespace
	Node    string    `json:"node,omitempty"`
	Command string    `json:"command,omitempty"`
	Since   time.Time `json:"since"`
}

// String returns "contiv-agent run, process 12 on node-1, since 2026-01-02T15:04:05Z".
func (o Owner) String() string {
	text := fmt.Sprintf("process %d", o.PID)
	if o.Command != "" {
		text = o.Command + ", " + text
	}
	if o.Node != "" {
		text += " on " + o.Node
	}
	return text + ", since " + o.Since.UTC().Format(time.RFC3339)
}

// Lock is a set of files beside VPP's socket, one for each part of VPP's configuration that has one owner at a time.
// flock(2) holds them; the kernel releases them when the process ends for any reason. One goroutine may use a Lock. The
// zero value holds nothing.
type Lock struct {
	// Paths are the files. The agent locks all of them or none.
	Paths []string
	// Owner is written into the files; lockFiles sets its Since.
	Owner Owner

	held []*os.File
}

// lockFiles locks all files, or returns an error; one that wraps ErrOwned names the owner. If they are locked already, lockFiles
// checks that they are still at their paths: removing the folder of VPP's socket removes the lock.
func (l *Lock) lockFiles() error {
	if l == nil || l.held != nil && l.current() {
		return nil
	}
	l.unlockFiles()
	l.Owner.Since = time.Now()
	for _, path := range l.Paths {
		f, err := l.takeOne(path)
		if err != nil {
			l.unlockFiles()
			return err
		}
		l.held = append(l.held, f)
	}
	return nil
}

func (l *Lock) takeOne(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o644) // do not follow a link, which could lead to any file
	writable := err == nil
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) { // a read-only file can be locked as well
		if readable, readErr := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0); readErr == nil {
			f, err = readable, nil
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // VPP creates the folder when it starts
		return nil, fmt.Errorf("%w: lock of VPP: %w", errDial, err)
	case err != nil:
		return nil, fmt.Errorf("lock of VPP: %w; --vpp-lock names another file, or none", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ownedBy(path)
	}
	if err == nil && writable {
		err = l.writeOwner(f)
	}
	if err == nil && !sameFile(f, path) {
		err = fmt.Errorf("%w: %s was replaced just now", ErrOwned, path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// writeOwner replaces the former owner's text.
func (l *Lock) writeOwner(f *os.File) error {
	b, err := json.Marshal(l.Owner)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if _, err = f.WriteAt(b, 0); err == nil {
		err = f.Truncate(int64(len(b)))
	}
	if err != nil {
		return fmt.Errorf("lock of VPP: %w", err)
	}
	return nil
}

// current reports whether the locked files are still at their paths.
func (l *Lock) current() bool {
	for i, f := range l.held {
		if !sameFile(f, l.Paths[i]) {
			return false
		}
	}
	return true
}

func sameFile(f *os.File, path string) bool {
	here, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(here, there)
}

// unlockFiles unlocks the files and keeps them: removing a file would let two agents hold locks of different files.
func (l *Lock) unlockFiles() {
	if l == nil {
		return
	}
	for _, f := range l.held {
		_ = f.Close() // a failed close loses nothing
	}
	l.held = nil
}

func ownedBy(path string) error {
	o, err := readOwner(path)
	if err != nil {
		return fmt.Errorf("%w (%s is locked by a process that has not written who it is)", ErrOwned, path)
	}
	return fmt.Errorf("%w: %s; %s is its lock", ErrOwned, o, path)
}

// maxOwner bounds how much of a lock file is read, since other programs may write it.
const maxOwner = 4 << 10

func readOwner(path string) (Owner, error) {
	f, err := os.Open(path)
	if err != nil {
		return Owner{}, err
	}
	defer f.Close()
	b := make([]byte, maxOwner)
	n, err := f.Read(b)
	if err != nil {
		return Owner{}, err
	}
	return parseOwner(b[:n])
}

func parseOwner(b []byte) (o Owner, err error) {
	err = json.Unmarshal(b, &o)
	return o, err
}

// FindOwner returns the holder of the lock file at path; false if no process holds it or the file does not exist. It locks
// the file for a moment to find out.
func FindOwner(path string) (Owner, bool) {
	f, err := os.Open(path)
	if err != nil {
		return Owner{}, false
	}
	defer f.Close() // also unlocks
	if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return Owner{}, false
	}
	o, _ := readOwner(path)
	return o, true
}
